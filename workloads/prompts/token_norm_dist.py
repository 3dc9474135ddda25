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
from workloads.prompts.rounds import Making, texts_at_once
from workloads.prompts.shared_prefixes import (
    NO_GROUP,
    Draw,
    GroupPrefix,
    PrefixTexts,
    PromptText,
    SharedPrefixes,
    ids_after,
    text_after,
)
from workloads.prompts.vocabulary import Vocabulary


@dataclass(frozen=True)
class TokenNormDist:
    """Random prompts: lengths of ``lengths``, ids uniform over ``token_ids`` (the vocabulary without special tokens).

    With ``codec``, prompts carry text of exactly as many tokens, and the ids that it encodes to (``exact_text``).
    With ``shared``, prompts begin with the prefixes of groups, and ``lengths`` has the lengths of what follows them.
    ``on_drawn`` is called with the number of prompts drawn so far, after each: an exact text takes a millisecond or more.
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
        prefixes = self._prefixes(most)
        kept: list[int] = []
        requests: list[Request] = []
        for number, prompt in enumerate(self._prompts(input_lengths, output_lengths, prefixes)):
            if prompt is not None:
                kept.append(number)
                requests.append(self._request(prompt, input_lengths[number], output_lengths[number]))
            if self.on_drawn is not None:
                self.on_drawn(number + 1)
        if not requests:
            shorter = (
                ("lower ", Field("prefix_len"), " or ", Field("system_prompt_len"), ", or ") if self.shared is not None else ()
            )
            raise WorkloadError(
                "every prompt is longer than ", *self.limits.words, " allows; ", *shorter, "request shorter ones"
            )
        of_requests = () if self.shared is None else tuple(map(prefixes, kept))
        return Drawn(tuple(requests), most - len(requests), kept=tuple(kept), prefixes=of_requests)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self.token_ids)

    @property
    def _shared_tokens(self) -> int:
        return 0 if self.shared is None else self.shared.tokens

    def _prompts(
        self, lengths: Sequence[int], output_lengths: Sequence[int], prefixes: Callable[[int], GroupPrefix]
    ) -> Iterator[PromptText | None]:
        """The prompt of each request, None for one that is dropped: its ids are drawn too, so that limits do not change the
        others.
        """
        ids_of_each = self._vocabulary.draw_each(generator(self.seed, Stream.TOKEN_IDS), lengths)
        sent = (
            (number, ids) if self.limits.allow(self._shared_tokens + len(ids), output_length) else None
            for number, (ids, output_length) in enumerate(zip(ids_of_each, output_lengths, strict=True))
        )
        if self.codec is None:
            return (None if drawn is None else ids_after(prefixes(drawn[0]).prompt, drawn[1]) for drawn in sent)
        makings = (
            _dropped() if drawn is None else text_after(prefixes(drawn[0]).prompt, drawn[1], self._redraw(drawn[0]))
            for drawn in sent
        )
        return self.codec.make_each(makings, texts_at_once([self._shared_tokens + tokens for tokens in lengths]))

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

    def _request(self, prompt: PromptText, own_tokens: int, output_tokens: int) -> Request:
        return Request(
            output_tokens=output_tokens,
            prompt=prompt.text,
            input_ids=prompt.ids,
            input_tokens=len(prompt.ids),
            requested_input_tokens=self._shared_tokens + own_tokens,
            ignore_eos=self.ignore_eos,
        )


def _dropped() -> Making[None]:
    """Makes nothing."""
    return
    yield
