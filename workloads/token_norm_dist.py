"""The ``token_norm_dist`` workload: random token ids, with input and output lengths drawn from their laws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from workloads.errors import WorkloadError
from workloads.exact_text import TextCodec, exact_text
from workloads.lengths.samples import PairedLengths
from workloads.random_streams import Stream, generator
from workloads.request import NO_LIMITS, LengthLimits, Request
from workloads.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class DrawnRequests:
    """Requests with lengths of a law, and the number of those dropped as too long."""

    requests: tuple[Request, ...]
    dropped_too_long: int


@dataclass(frozen=True)
class TokenNormDist:
    """Random prompts: lengths of ``lengths``, ids uniform over ``token_ids`` (the vocabulary without special tokens).

    With ``codec``, prompts carry text of exactly as many tokens, and the ids that it encodes to (``exact_text``).
    """

    lengths: PairedLengths
    token_ids: Sequence[int] | range
    seed: int
    limits: LengthLimits = NO_LIMITS
    codec: TextCodec | None = None
    ignore_eos: bool = True

    def draw(self, count: int) -> DrawnRequests:
        """Draw ``count`` requests and drop those beyond the limits. Raises WorkloadError where none is left."""
        if not len(self.token_ids):
            raise WorkloadError("the vocabulary has no token to draw from; give --vocab_size")
        input_lengths, output_lengths = (drawn.tolist() for drawn in self.lengths.draw(count, self.seed))
        prompts = self._prompts(input_lengths)
        requests = tuple(
            self._request(number, ids, output_length)
            for number, (ids, output_length) in enumerate(zip(prompts, output_lengths, strict=True))
            if self.limits.allow(len(ids), output_length)
        )
        if not requests:
            raise WorkloadError("every prompt is longer than allowed; ask for shorter ones, or raise --max_input_len")
        return DrawnRequests(requests, count - len(requests))

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self.token_ids)

    def _prompts(self, lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Token ids of one prompt a length. A dropped prompt is drawn too, so that limits do not change the others."""
        generator_of_ids = generator(self.seed, Stream.TOKEN_IDS)
        for length in lengths:
            yield self._vocabulary.draw(generator_of_ids, length)

    def _request(self, number: int, ids: tuple[int, ...], output_tokens: int) -> Request:
        text = None
        if self.codec is not None:
            redrawn = generator(self.seed, Stream.TEXTS, number)
            text, ids = exact_text(self.codec, ids, lambda count: self._vocabulary.draw(redrawn, count))
        return Request(
            output_tokens=output_tokens, prompt=text, input_ids=ids, input_tokens=len(ids), ignore_eos=self.ignore_eos
        )
