"""The ``token_norm_dist`` workload: random token ids, with input and output lengths drawn from their laws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from workloads.errors import WorkloadError
from workloads.exact_text import TextCodec
from workloads.lengths.samples import PairedLengths
from workloads.random_streams import Stream, generator
from workloads.request import NO_LIMITS, LengthLimits, Request
from workloads.shared_prefixes import NO_GROUP, GroupPrefix, PrefixTexts, PromptText, SharedPrefixes, prompt_after
from workloads.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class DrawnRequests:
    """Requests with lengths of a law, and the number of those dropped as too long.

    ``prefixes`` are those that the requests were made with, in their order; empty without shared ones.
    """

    requests: tuple[Request, ...]
    dropped_too_long: int
    prefixes: tuple[GroupPrefix, ...] = ()


@dataclass(frozen=True)
class TokenNormDist:
    """Random prompts: lengths of ``lengths``, ids uniform over ``token_ids`` (the vocabulary without special tokens).

    With ``codec``, prompts carry text of exactly as many tokens, and the ids that it encodes to (``exact_text``).
    With ``shared``, prompts begin with the prefixes of groups, and ``lengths`` has the lengths of what follows them.
    """

    lengths: PairedLengths
    token_ids: Sequence[int] | range
    seed: int
    limits: LengthLimits = NO_LIMITS
    codec: TextCodec | None = None
    ignore_eos: bool = True
    shared: SharedPrefixes | None = None

    def draw(self, count: int) -> DrawnRequests:
        """Draw ``count`` requests and drop those beyond the limits. Raises WorkloadError where none is left."""
        if not len(self.token_ids):
            raise WorkloadError("the vocabulary has no token to draw from; give --vocab_size")
        input_lengths, output_lengths = (drawn.tolist() for drawn in self.lengths.draw(count, self.seed))
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
            shorter = "" if self.shared is None else "lower --prefix_len or --system_prompt_len, "
            raise WorkloadError(f"every prompt is longer than allowed; {shorter}ask for shorter ones, or raise --max_input_len")
        of_requests = () if self.shared is None else tuple(map(prefixes, kept))
        return DrawnRequests(tuple(requests), count - len(requests), of_requests)

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
