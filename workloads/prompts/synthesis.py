"""Prompts of a trace's own lengths, for rows that have lengths or block hashes but no text.

A block-hash trace (Mooncake, Qwen-Bailian) names each block of a prompt by a hash of its tokens and of all before them.
So equal hashes give equal tokens, block for block, and a prefix cache meets the prefixes that it met in production.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from workloads.elements.errors import Field, WorkloadError
from workloads.elements.random_streams import Stream, generator
from workloads.elements.request import NO_LIMITS, LengthLimits, Request, class_of_file
from workloads.elements.token_ids import TokenIds, token_ids
from workloads.prompts.drawn import Drawn
from workloads.prompts.exact_text import TextCodec, exact_requests
from workloads.prompts.vocabulary import Vocabulary
from workloads.table.workload import Workload

_HASHES = 2**64  # hashes may be negative, seeds may not


@dataclass(frozen=True)
class Synthesis:
    """Random prompts of the lengths of ``workload``, their ids uniform over ``token_ids``.

    With ``codec`` prompts carry text of exactly as many tokens; of block hashes only ids can be made. ``first_row`` is the
    number of the first row in the file: a part of a trace has the prompts that it has in the whole, so no two parts share any.
    """

    workload: Workload
    token_ids: Sequence[int] | range
    seed: int
    codec: TextCodec | None = None
    limits: LengthLimits = NO_LIMITS
    ignore_eos: bool = True
    first_row: int = 0

    def draw(self, most: int | None) -> Drawn:
        """At most ``most`` requests, in the workload's order; those beyond the limits are dropped and counted.

        Raises WorkloadError for a workload without lengths, or with block hashes for a target that takes text.
        """
        workload = self.workload
        table, block_tokens = workload.table, workload.facts.block_tokens
        has_blocks = block_tokens is not None and table["block_hashes"].null_count < len(workload)
        if has_blocks and self.codec is not None:
            raise WorkloadError(
                f"{workload.facts.source}: its shared prefixes are made of token ids; ",
                Field("model"),
                " must name one that takes them, as tensorrt_llm, or ",
                Field("protocol"),
                " openai_completions with ",
                Field("tokenizer_dir"),
                " sends them to a server of OpenAI's protocols",
            )
        classes = table["request_class"].to_pylist()
        inputs, outputs = table["input_tokens"], table["output_tokens"]
        if inputs.null_count or outputs.null_count:
            raise WorkloadError(f"{workload.facts.source}: some rows have neither a prompt nor both lengths")
        lengths = list(zip(inputs.to_pylist(), outputs.to_pylist(), strict=True))
        kept: list[int] = []
        dropped = rows = 0
        for row, (input_tokens, output_tokens) in enumerate(lengths):
            if len(kept) == most:
                break
            rows += 1
            if self.limits.allow(input_tokens, output_tokens):
                kept.append(row)
            else:
                dropped += 1
        if not kept:
            raise WorkloadError(
                f"every prompt of {workload.facts.source} is longer than ",
                *self.limits.words,
                " allows; nothing is left to send",
            )
        ids_of_rows = (
            self._ids(row, lengths[row][0], table["block_hashes"][row].as_py() if has_blocks else None, block_tokens or 0)
            for row in kept
        )
        made = self._requests(kept, lengths, ids_of_rows)
        named = (
            request if classes[row] is None else replace(request, traffic_class=class_of_file(classes[row]))
            for row, request in zip(kept, made, strict=True)
        )
        return Drawn(tuple(named), dropped, kept=tuple(kept), rows=rows)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self.token_ids)

    def _ids(self, row: int, input_tokens: int, hashes: Sequence[int] | None, block_tokens: int) -> Sequence[int]:
        """The random ids of a row."""
        ids: Sequence[int] = self._of_row(row, input_tokens) if hashes is None else self._blocks(hashes, block_tokens)
        ids = ids[:input_tokens]  # the last block may be a part of one
        missing = input_tokens - len(ids)
        if missing >= max(1, block_tokens):
            raise WorkloadError(
                f"row {self.first_row + row + 1}: {len(hashes or ())} blocks are fewer than its {input_tokens:,} tokens need"
            )
        if missing:  # a partial last block, of which a trace may leave out the hash, is the row's own
            ids = token_ids((*ids, *self._of_row(row, missing)))
        return ids

    def _requests(
        self, rows: Sequence[int], lengths: Sequence[tuple[int, int]], ids_of_rows: Iterable[Sequence[int]]
    ) -> Iterator[Request]:
        """The request of each of ``rows``, whose ids are given; ``lengths`` has the input and output length of all rows."""
        of_rows = [(input_tokens, max(1, output_tokens)) for input_tokens, output_tokens in (lengths[row] for row in rows)]
        return exact_requests(ids_of_rows, map(self._redraw, rows), of_rows, self.codec, self.ignore_eos)

    def _redraw(self, row: int) -> Callable[[int], TokenIds]:
        """Draws further ids for the text of a row."""
        redrawn = generator(self.seed, Stream.TEXTS, self.first_row + row)
        return lambda count: self._vocabulary.draw(redrawn, count)

    def _of_row(self, row: int, count: int) -> TokenIds:
        return self._drawn(Stream.TOKEN_IDS, self.first_row + row, count)

    def _blocks(self, hashes: Sequence[int], block_tokens: int) -> TokenIds:
        blocks = (self._drawn(Stream.BLOCKS, block_hash % _HASHES, block_tokens) for block_hash in hashes)
        return token_ids(token for block in blocks for token in block)

    def _drawn(self, stream: Stream, number: int, count: int) -> TokenIds:
        return self._vocabulary.draw(generator(self.seed, stream, number), count)


def has_prompts(workload: Workload) -> bool:
    """Whether any row has text."""
    return bool(workload.table["prompt"].null_count < len(workload))
