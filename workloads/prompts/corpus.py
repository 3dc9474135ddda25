"""Prompts cut from a text corpus, of exact lengths in tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
import pyarrow as pa

from workloads.elements.errors import WorkloadError
from workloads.elements.random_streams import Stream, generator
from workloads.elements.request import LengthLimits, Request
from workloads.elements.token_ids import TokenIds, packed_ids
from workloads.lengths.samples import PairedLengths
from workloads.prompts.drawn import Drawn
from workloads.prompts.exact_text import TextCodec, exact_requests
from workloads.table.workload import Workload

_CUT_CHARACTER = "\ufffd"  # what a tokenizer decodes a part of a character to

_Place = tuple[int, int, int]
"""Input and output length of a prompt, and where in the corpus it begins."""


class Pieces(StrEnum):
    """Where prompts begin: each where the one before it ends, so that no two share text, or anywhere, drawn from the seed."""

    CONSECUTIVE = "consecutive"
    RANDOM = "random"


@dataclass(frozen=True)
class CorpusPrompts:
    """Prompts of ``lengths``, cut from ``corpus``, which is the text of all paragraphs, by the tokens of ``codec``.

    For a model that takes token ids (``as_ids``) a prompt is a piece of the corpus' tokens, exactly. For a model that takes
    text it is the text of a piece, which has the requested length when it is encoded by itself: where the cut divides a word or
    a character, its ends may be encoded by other tokens, a part of a character is left out, and what is then missing is taken
    from the text after the piece. The middle of the prompt is that of the corpus.
    """

    corpus: str
    codec: TextCodec
    lengths: PairedLengths
    pieces: Pieces
    seed: int
    limits: LengthLimits
    as_ids: bool
    ignore_eos: bool

    @cached_property
    def ids(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The tokens of the corpus, shape [n]."""
        return np.asarray(self.codec.encode(self.corpus), np.int64)

    def draw(self, most: int | None) -> Drawn:
        """At most ``most`` requests; None: as many consecutive ones as the corpus has. Those beyond the limits are dropped and
        counted. Raises WorkloadError for a corpus that is shorter than a prompt.
        """
        ids = self.ids
        made: list[Request] = []
        places = list(self._places(ids.size, most))
        sent = [place for place in places if self.limits.allow(*place[:2])]
        dropped, inexact = len(places) - len(sent), 0
        for request in self._requests(ids, sent):
            inexact += request.input_tokens != request.requested_input_tokens
            if request.input_tokens:  # a part of a character has no text
                made.append(request)
        if not made:
            reason = ["it is shorter than one"]
            if dropped or inexact:
                too_long = ["all are longer than ", *self.limits.words, " allows"]
                reason = too_long if dropped else ["no text has so few tokens"]
            raise WorkloadError(f"the corpus has {ids.size:,} tokens, and no prompt can be cut from it: ", *reason)
        return Drawn(tuple(made), dropped, inexact=inexact)

    def _places(self, size: int, count: int | None) -> Iterator[_Place]:
        """The places in the corpus of ``size`` tokens."""
        most = size if count is None else min(count, size) if self.pieces is Pieces.CONSECUTIVE else count
        inputs, outputs = (drawn.tolist() for drawn in self.lengths.draw(most, self.seed))
        random = generator(self.seed, Stream.PIECES)
        start = 0
        for input_tokens, output_tokens in zip(inputs, outputs, strict=True):
            if self.pieces is Pieces.RANDOM:
                start = int(random.integers(0, max(1, size - input_tokens + 1)))
            if start + input_tokens > size:
                if self.pieces is Pieces.RANDOM:
                    raise WorkloadError(f"the corpus has {size:,} tokens, and a prompt of {input_tokens:,} is requested")
                return
            yield input_tokens, output_tokens, start
            start += input_tokens

    def _requests(self, ids: np.ndarray[tuple[int], np.dtype[np.int64]], places: Sequence[_Place]) -> Iterator[Request]:
        """The request of each place."""
        pieces = (packed_ids(ids[start : start + length]) for length, _, start in places)
        following = (_Following(ids, start + length) for length, _, start in places)
        lengths = [place[:2] for place in places]
        return exact_requests(pieces, following, lengths, None if self.as_ids else self._whole_characters(), self.ignore_eos)

    def _whole_characters(self) -> TextCodec:
        """The codec without the parts of characters that a cut leaves."""
        return self.codec if _CUT_CHARACTER in self.corpus else self.codec.without(_CUT_CHARACTER)


class _Following:
    """The tokens of the corpus from ``place`` on, from its start again at its end."""

    def __init__(self, ids: np.ndarray[tuple[int], np.dtype[np.int64]], place: int) -> None:
        self._ids = ids
        self._place = place

    def __call__(self, count: int) -> TokenIds:
        places = np.arange(self._place, self._place + count) % self._ids.size
        self._place += count
        return packed_ids(self._ids[places])


def corpus_text(workload: Workload) -> str:
    """The paragraphs of a text as one, in their order."""
    prompts: pa.ChunkedArray = workload.table["prompt"]
    return "\n\n".join(prompts.to_pylist())
