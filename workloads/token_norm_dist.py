"""The ``token_norm_dist`` workload: random token ids, with input and output lengths from normal distributions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from workloads.errors import WorkloadError
from workloads.exact_text import TextCodec
from workloads.random_streams import Stream, generator
from workloads.request import LONGEST_TOKENS, NO_LIMITS, LengthLimits, Request
from workloads.shared_prefixes import NO_GROUP, GroupPrefix, PrefixTexts, PromptText, SharedPrefixes, prompt_after
from workloads.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class NormalLengths:
    """Lengths in tokens: max(1, ceil(N(mean, stdev))), as upstream draws them; stdev 0 is constant."""

    mean: float
    stdev: float

    def draw(self, count: int, seed: int, stream: Stream) -> NDArray[np.int64]:
        """``count`` lengths, shape [count], each at least 1."""
        lengths = generator(seed, stream).normal(self.mean, self.stdev, count)
        whole: NDArray[np.int64] = np.maximum(1, np.ceil(lengths)).astype(np.int64)
        return whole

    def check(self, mean: str, stdev: str) -> None:
        """Raise WorkloadError naming the option ``mean`` or ``stdev`` if it is out of range."""
        if not 1 <= self.mean <= LONGEST_TOKENS:
            raise WorkloadError(f"{mean} {self.mean:g}: the mean must lie between 1 and {LONGEST_TOKENS:,} tokens")
        if not 0 <= self.stdev <= LONGEST_TOKENS:
            raise WorkloadError(f"{stdev} {self.stdev:g}: the deviation must lie between 0 and {LONGEST_TOKENS:,} tokens")


@dataclass(frozen=True, slots=True)
class NormalRequests:
    """Requests with normally distributed lengths, and the number of those dropped as too long.

    ``prefixes`` are those that the requests were made with, in their order; empty without shared ones.
    """

    requests: tuple[Request, ...]
    dropped_too_long: int
    prefixes: tuple[GroupPrefix, ...] = ()


@dataclass(frozen=True)
class TokenNormDist:
    """Random prompts: normally distributed lengths, ids uniform over ``token_ids`` (the vocabulary without special tokens).

    With ``codec``, prompts carry text of exactly as many tokens, and the ids that it encodes to (``exact_text``).
    With ``shared``, prompts begin with the prefixes of groups, and ``inputs`` are the lengths of what follows them.
    """

    inputs: NormalLengths
    outputs: NormalLengths
    token_ids: Sequence[int] | range
    seed: int
    limits: LengthLimits = NO_LIMITS
    codec: TextCodec | None = None
    ignore_eos: bool = True
    shared: SharedPrefixes | None = None

    def draw(self, count: int) -> NormalRequests:
        """Draw ``count`` requests and drop those beyond the limits. Raises WorkloadError for impossible parameters."""
        self.inputs.check("--input_mean", "--input_stdev")
        self.outputs.check("--output_mean", "--output_stdev")
        if not len(self.token_ids):
            raise WorkloadError("the vocabulary has no token to draw from; give --vocab_size")
        input_lengths = self.inputs.draw(count, self.seed, Stream.INPUT_LENGTHS).tolist()
        output_lengths = self.outputs.draw(count, self.seed, Stream.OUTPUT_LENGTHS).tolist()
        prompts = self._prompts(input_lengths)
        prefixes = self._prefixes(count)
        shared_tokens = 0 if self.shared is None else self.shared.tokens
        kept: list[int] = []
        requests: list[Request] = []
        for number, (ids, output_length) in enumerate(zip(prompts, output_lengths, strict=True)):
            if self.limits.allow(shared_tokens + len(ids), output_length):
                kept.append(number)
                requests.append(self._request(number, prefixes(number).prompt, ids, output_length))
        if not requests:
            shorter = "" if self.shared is None else "--prefix_len, --system_prompt_len or "
            raise WorkloadError(f"every prompt is longer than allowed; lower {shorter}--input_mean, or raise --max_input_len")
        of_requests = () if self.shared is None else tuple(map(prefixes, kept))
        return NormalRequests(tuple(requests), count - len(requests), of_requests)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self.token_ids)

    def _prompts(self, lengths: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Token ids of one prompt a length. A dropped prompt is drawn too, so that limits do not change the others."""
        generator_of_ids = generator(self.seed, Stream.TOKEN_IDS)
        for length in lengths:
            yield self._vocabulary.draw(generator_of_ids, length)

    def _prefixes(self, count: int) -> Callable[[int], GroupPrefix]:
        """The prefix of each of ``count`` requests, by its number."""
        if self.shared is None:
            return lambda number: NO_GROUP
        texts = PrefixTexts(self.shared, self._vocabulary, self.seed, self.codec)
        groups = self.shared.groups_of(count, self.seed).tolist()
        return lambda number: GroupPrefix(groups[number], texts.of_group(groups[number]))

    def _request(self, number: int, prefix: PromptText, ids: tuple[int, ...], output_tokens: int) -> Request:
        redrawn = generator(self.seed, Stream.TEXTS, number)
        made = prompt_after(prefix, self.codec, ids, lambda count: self._vocabulary.draw(redrawn, count))
        return Request(
            output_tokens=output_tokens,
            prompt=made.text,
            input_ids=made.ids,
            input_tokens=len(made.ids),
            ignore_eos=self.ignore_eos,
        )
