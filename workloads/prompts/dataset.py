"""The ``dataset`` workload: the prompts of a file as requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from workloads.elements.errors import Field, WorkloadError
from workloads.elements.request import LONGEST_TOKENS, NO_LIMITS, LengthLimits, Request
from workloads.prompts.drawn import Drawn
from workloads.table.workload import Workload

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, slots=True)
class OutputLengths:
    """Output lengths in tokens for rows that have none of their own: ``tokens_per_word`` of the answer, at least 1, which is
    upstream's rule (words are split at single spaces); ``without_answer`` where there is no answer either.
    """

    tokens_per_word: float = 1.3
    without_answer: int = 256


@dataclass(frozen=True, slots=True)
class _Row:
    number: int
    prompt: str
    answer: str | None
    output_tokens: int | None
    has_history: bool


@dataclass(frozen=True, slots=True)
class DatasetPrompts:
    """The first turn of each conversation of ``workload``, in the file's order.

    ``encode`` gives token ids; without it a request carries text only, and lengths are not checked.
    """

    workload: Workload
    encode: Encode | None
    lengths: OutputLengths
    limits: LengthLimits = NO_LIMITS
    ignore_eos: bool = False

    def draw(self, most: int | None) -> Drawn:
        """At most ``most`` requests; those beyond the limits are dropped and counted. Raises WorkloadError."""
        check_lengths(self.lengths, self.limits, self.encode)
        requests: list[Request] = []
        kept: list[int] = []
        used = dropped = without_length = without_history = 0
        for row in _first_turns(self.workload):
            if len(requests) == most:
                break
            used += 1
            request = _request(row, self.encode, self.lengths, self.ignore_eos)
            if request.input_tokens is not None and not self.limits.allow(request.input_tokens, request.output_tokens):
                dropped += 1
                continue
            requests.append(request)
            kept.append(row.number)
            without_length += row.output_tokens is None and row.answer is None
            without_history += row.has_history
        if not requests:
            raise too_long(self.limits)
        return Drawn(
            tuple(requests),
            dropped,
            kept=tuple(kept),
            rows=used,
            without_length=without_length,
            without_history=without_history,
        )


def too_long(limits: LengthLimits) -> WorkloadError:
    """The error of a dataset of which no prompt is within ``limits``."""
    return WorkloadError("every prompt of the dataset is longer than ", *limits.words, " allows; nothing is left to send")


def check_lengths(lengths: OutputLengths, limits: LengthLimits, encode: Encode | None) -> None:
    """Raise WorkloadError for lengths out of range and limits that need a tokenizer."""
    if not 0 < lengths.tokens_per_word < float("inf"):
        raise WorkloadError(Field("op_tokens_per_word"), f" {lengths.tokens_per_word:g}: must be a positive number")
    if not 0 < lengths.without_answer <= LONGEST_TOKENS:
        raise WorkloadError(Field("output_tokens"), f" {lengths.without_answer}: must be from 1 to {LONGEST_TOKENS:,}")
    if limits.max_input_len is not None and encode is None:
        raise WorkloadError(Field("max_input_len"), " counts tokens, so it needs ", Field("tokenizer_dir"))


def _first_turns(workload: Workload) -> list[_Row]:
    """The rows that begin a conversation."""
    table = workload.table
    is_first = pc.and_(table["prompt"].is_valid(), table["parent"].is_null())
    numbers = pc.indices_nonzero(is_first)
    first: pa.Table = table.take(numbers)
    columns = (first[name].to_pylist() for name in ("prompt", "answer", "output_tokens"))
    return [_Row(*row) for row in zip(numbers.to_pylist(), *columns, first["history"].is_valid().to_pylist(), strict=True)]


def _request(row: _Row, encode: Encode | None, lengths: OutputLengths, ignore_eos: bool) -> Request:
    ids = None if encode is None else tuple(encode(row.prompt))
    if not row.prompt.strip() or ids == ():
        raise WorkloadError(f"row {row.number + 1} of the dataset has an empty prompt")
    output_tokens = output_tokens_of(row.output_tokens, row.answer, lengths)
    return Request(
        output_tokens=output_tokens,
        prompt=row.prompt,
        input_ids=ids,
        input_tokens=None if ids is None else len(ids),
        ignore_eos=ignore_eos,
    )


def output_tokens_of(own: int | None, answer: str | None, lengths: OutputLengths) -> int:
    """The output length of a row: its own, else by the words of its answer, else the one without an answer.

    Raises WorkloadError for one that no model has.
    """
    if own is not None:
        return max(1, own)
    if answer is None:
        return lengths.without_answer
    by_words = max(1, int(len(answer.split(" ")) * lengths.tokens_per_word))
    if by_words > LONGEST_TOKENS:
        raise WorkloadError(
            Field("op_tokens_per_word"), f" {lengths.tokens_per_word:g}: requests more than {LONGEST_TOKENS:,} tokens"
        )
    return by_words
