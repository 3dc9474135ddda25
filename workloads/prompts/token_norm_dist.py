"""The ``token_norm_dist`` workload: random token ids, with input and output lengths drawn from their laws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from workloads.elements.errors import Field, WorkloadError
from workloads.elements.random_streams import Stream, generator
from workloads.elements.request import NO_LIMITS, LengthLimits, Request
from workloads.elements.token_ids import TokenIds
from workloads.lengths.samples import PairedLengths
from workloads.prompts.drawn import Drawn
from workloads.prompts.exact_text import TextCodec
from workloads.prompts.shared_prefixes import NO_GROUP, Draw, GroupPrefix, PrefixTexts, PromptText, SharedPrefixes, prompt_after
from workloads.prompts.vocabulary import Vocabulary


@dataclass(frozen=True)
class TokenNormDist:
    """Random prompts: lengths of ``lengths``, ids uniform over ``token_ids`` (the vocabulary without special tokens).

    With ``codec``, prompts carry text of exactly as many tokens, and the ids that it encodes to (``exact_text``).
    With ``shared``, prompts begin with the prefixes of groups, and ``lengths`` has the lengths of what follows them.
    ``on_drawn`` is called with the number of prompts drawn so far, after each: exact texts take milliseconds each.
    """

    lengths: PairedLengths
    token_ids: Sequence[int] | range
    seed: int
    limits: LengthLimits = NO_LIMITS
    codec: TextCodec | None = None
    ignore_eos: bool = True
    shared: SharedPrefixes | None = None
    on_drawn: Callable[[int], None] | None = None

    def draw(self, most: int | None) -> Drawn:
        """Draw ``most`` requests and drop those beyond the limits. Raises WorkloadError where none is left."""
        if most is None:
            raise WorkloadError("random prompts have no end; give ", Field("num_requests"))
        if not len(self.token_ids):
            raise WorkloadError("the vocabulary has no token to draw from; give ", Field("vocab_size"))
        input_lengths, output_lengths = (drawn.tolist() for drawn in self.lengths.draw(most, self.seed))
        prompts = self._prompts(input_lengths)
        prefixes = self._prefixes(most)
        shared_tokens = 0 if self.shared is None else self.shared.tokens
        kept: list[int] = []
        requests: list[Request] = []
        for number, (ids, output_length) in enumerate(zip(prompts, output_lengths, strict=True)):
            if self.limits.allow(shared_tokens + len(ids), output_length):
                kept.append(number)
                requests.append(self._request(number, prefixes(number).prompt, ids, output_length))
            if self.on_drawn is not None:
                self.on_drawn(number + 1)
        if not requests:
            shorter = (
                ("lower ", Field("prefix_len"), " or ", Field("system_prompt_len"), ", ") if self.shared is not None else ()
            )
            raise WorkloadError(
                "every prompt is longer than allowed; ", *shorter, "request shorter ones, or raise ", Field("max_input_len")
            )
        of_requests = () if self.shared is None else tuple(map(prefixes, kept))
        return Drawn(tuple(requests), most - len(requests), prefixes=of_requests)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self.token_ids)

    def _prompts(self, lengths: Sequence[int]) -> Iterator[TokenIds]:
        """Token ids of one prompt a length. A dropped prompt is drawn too, so that limits do not change the others."""
        return self._vocabulary.draw_each(generator(self.seed, Stream.TOKEN_IDS), lengths)

    def _prefixes(self, count: int) -> Callable[[int], GroupPrefix]:
        """The prefix of each of ``count`` requests, by its number."""
        if self.shared is None:
            return lambda number: NO_GROUP
        texts = PrefixTexts(self.shared, self._vocabulary, self.seed, self.codec)
        groups = self.shared.groups_of(count, self.seed).tolist()
        return lambda number: GroupPrefix(groups[number], texts.of_group(groups[number]))

    def _redraw(self, number: int) -> Draw:
        """Draws further ids for the text of request ``number``; its generator is made where the first is drawn."""
        redrawn: list[np.random.Generator] = []

        def draw(count: int) -> TokenIds:
            if not redrawn:
                redrawn.append(generator(self.seed, Stream.TEXTS, number))
            return self._vocabulary.draw(redrawn[0], count)

        return draw

    def _request(self, number: int, prefix: PromptText, ids: Sequence[int], output_tokens: int) -> Request:
        made = prompt_after(prefix, self.codec, ids, self._redraw(number))
        return Request(
            output_tokens=output_tokens,
            prompt=made.text,
            input_ids=made.ids,
            input_tokens=len(made.ids),
            requested_input_tokens=(0 if self.shared is None else self.shared.tokens) + len(ids),
            ignore_eos=self.ignore_eos,
        )
