"""From the token ids of a sequence to its text, its log probabilities and the reason of its end."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from serving.front_end.core_response import CoreResponse
from serving.front_end.generation import Generation
from serving.front_end.request_times import Metrics, Stamps, metrics_of
from serving.text.detokenization import decode
from serving.text.generated_text import GeneratedText, TextStream
from serving.text.token_bytes import token_bytes


@dataclass(frozen=True, slots=True)
class LikelyToken:
    """The text of one token, its bytes, which may be a part of a character, and its natural log probability."""

    text: str
    utf8: bytes
    log_prob: float


@dataclass(frozen=True, slots=True)
class TokenLogProb(LikelyToken):
    """A token of a sequence, and the likeliest tokens in its place. ``offset`` counts the characters of those before it."""

    offset: int
    top: tuple[LikelyToken, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """What one response adds to the choice ``index``. ``log_probs`` None: not requested. The last has a ``finish_reason``."""

    index: int
    text: str
    token_ids: Sequence[int]
    log_probs: Sequence[TokenLogProb] | None = None
    finish_reason: str | None = None


class Choice:
    """One sequence, from its first response to its end; ``end_ids`` are the tokens that end it, the engine's own first.

    Within the first ``min_tokens`` tokens nothing ends it. ``is_cut``: a stop text or a token ended it that the engine does not
    know.
    """

    def __init__(
        self, index: int, generation: Generation, tokenizer: Any, special_ids: Collection[int], end_ids: Sequence[int]
    ) -> None:
        self._index = index
        self._generation = generation
        self._tokenizer = tokenizer
        self._end_ids = end_ids
        self._has_own_ends = generation.min_tokens > 0 and len(end_ids) > 1  # which the engine does not know
        self._text = GeneratedText(TextStream(tokenizer, generation.skip_special_tokens, special_ids), generation.stop)
        self._characters = 0  # of all tokens so far, each alone
        self.tokens = 0
        self.is_finished = False
        self.is_cut = False
        self._stamps: Stamps | None = None

    def add(self, response: CoreResponse) -> Piece:
        """What the response adds. After the end of the choice it adds nothing."""
        least = max(0, self._generation.min_tokens - self.tokens)  # of these tokens are within the minimum
        if self._has_own_ends:
            response = self._until_end(response, least)
        ids = response.token_ids
        has_end = len(ids) > least and ids[-1] in self._end_ids
        is_last = response.is_final or has_end or self.tokens + len(ids) >= (self._generation.max_tokens or 0)
        text, count = self._text_of_tokens(ids[:-1] if has_end else ids, least, is_last)
        if self._text.stopped and count < len(ids):
            response, has_end = _beginning(response, count), False
            ids = response.token_ids
        self.tokens += len(ids)
        reason = None
        if self._text.stopped or has_end:
            reason = "stop"
        elif is_last:
            reason = "length" if self.tokens >= (self._generation.max_tokens or 0) else "stop"
        self.is_finished = reason is not None
        self.is_cut = (self._has_own_ends and ids[-1] != self._end_ids[0]) if has_end else self._text.stopped
        return Piece(self._index, text, ids, self._log_probs(response), reason)

    def _until_end(self, response: CoreResponse, least: int) -> CoreResponse:
        """``response`` up to its first end token after ``least`` tokens: the engine may not know that token as an end."""
        for count, token in enumerate(response.token_ids[least:], start=least + 1):
            if token in self._end_ids:
                return _beginning(response, count)
        return response

    def _text_of_tokens(self, ids: Sequence[int], least: int, is_last: bool) -> tuple[str, int]:
        """What ``ids`` add to the text, and how many of them do: those up to the end of the first stop text that is complete
        after the first ``least``. A response may hold more, where the client reads more slowly than the engine generates.
        """
        if not self._generation.stop or not ids:
            return self._text.add(ids, is_last), len(ids)
        text = ""
        for count, token in enumerate(ids, start=1):
            text += self._text.add((token,), is_last and count == len(ids), may_stop=count > least)
            if self._text.stopped:
                return text, count
        return text, len(ids)

    def note_times(self, response: CoreResponse) -> None:
        """Keep the engine's stamps, of which the last response has all."""
        if response.stamps is not None:
            self._stamps = response.stamps

    @property
    def metrics(self) -> Metrics | None:
        """The engine's times of the sequence so far; None unless they are requested."""
        return None if self._stamps is None else metrics_of(self._stamps, self.tokens)

    def end(self) -> Piece:
        """What ends a choice whose last response did not say so."""
        self.is_finished = True
        return Piece(self._index, self._text.add((), is_last=True), (), () if self._wants_log_probs else None, "stop")

    @property
    def _wants_log_probs(self) -> bool:
        return self._generation.top_logprobs is not None

    def _log_probs(self, response: CoreResponse) -> Sequence[TokenLogProb] | None:
        if not self._wants_log_probs:
            return None
        if response.logits is None:
            return tuple(map(self._token, response.token_ids, response.log_probs))
        return tuple(map(self._from_logits, response.token_ids, response.logits))

    def _from_logits(self, token: int, logits: NDArray[Any]) -> TokenLogProb:
        values = logits.astype(np.float64)
        values -= values.max()
        values -= np.log(np.exp(values).sum())
        count = min(self._generation.top_logprobs or 0, len(values))
        likeliest = np.argsort(-values, kind="stable")[:count]
        top = tuple(LikelyToken(*self._text_of(int(id_)), float(values[id_])) for id_ in likeliest)
        return self._token(token, float(values[token]), top)

    def _token(self, token: int, log_prob: float, top: tuple[LikelyToken, ...] = ()) -> TokenLogProb:
        (text, utf8), offset = self._text_of(token), self._characters
        self._characters += len(text)
        return TokenLogProb(text, utf8, log_prob, offset, top)

    def _text_of(self, token: int) -> tuple[str, bytes]:
        text = decode(self._tokenizer, (token,), skip_special_tokens=False)
        return text, token_bytes(self._tokenizer, token, text)


def _beginning(response: CoreResponse, count: int) -> CoreResponse:
    """The first ``count`` tokens of a response."""
    logits = None if response.logits is None else response.logits[:count]
    return replace(response, token_ids=response.token_ids[:count], log_probs=response.log_probs[:count], logits=logits)
