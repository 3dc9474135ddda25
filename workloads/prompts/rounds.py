"""Texts made in rounds: what all that are under way have to decode and to encode goes to the tokenizer at once.

A tokenizer uses all cores for many texts, and one for a single text. The makings know nothing of each other, and each draws
from a random stream of its own, so that no text depends on how many are made at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

from workloads.prompts.tails import Encoded, TokenIds

Made = TypeVar("Made")

Making = Generator[str | TokenIds, str | TokenIds | None, Made]
"""Asks for the text of token ids or for the token ids of a text, any number of times, and returns what it makes of them."""

_TOKENS_AT_ONCE = 65_536  # a third of a second on one core, in which Ctrl-C waits, and 10 MB
_LEAST_AT_ONCE, _MOST_AT_ONCE = 8, 512


def decoded(ids: TokenIds) -> Making[str]:
    """The text of ``ids``; for ``yield from`` in a making."""
    text = yield ids
    assert isinstance(text, str)
    return text


def encoded(text: str) -> Making[TokenIds]:
    """The token ids of ``text``; for ``yield from`` in a making."""
    ids = yield text
    assert ids is not None
    assert not isinstance(ids, str)
    return ids


def texts_at_once(lengths: Sequence[int]) -> int:
    """How many texts of these lengths, in tokens, are made at once: enough for all cores, few enough for memory and Ctrl-C."""
    of_mean_length = _TOKENS_AT_ONCE * len(lengths) // max(1, sum(lengths))
    return min(_MOST_AT_ONCE, max(_LEAST_AT_ONCE, of_mean_length))


def made_in_rounds(
    makings: Iterable[Making[Made]],
    decode_each: Callable[[Sequence[TokenIds]], Sequence[str]],
    encode_each: Callable[[Sequence[tuple[str, Encoded | None]]], Sequence[TokenIds]],
    at_once: int,
) -> Iterator[Made]:
    """What each of ``makings`` returns, in their order. ``at_once`` are under way: one that ends makes room for the next.

    ``encode_each`` is given each text with the one before it of the same making. A making that takes many rounds holds back
    those after it, however soon they end.
    """
    source = iter(makings)
    in_order: deque[_UnderWay[Made]] = deque()
    waiting: list[_UnderWay[Made]] = []
    while True:
        added = [_UnderWay(making) for making in islice(source, at_once - len(waiting))]
        in_order.extend(added)
        waiting += added
        if not in_order:
            return
        ids = [(each, each.asks) for each in waiting if each.asks is not None and not isinstance(each.asks, str)]
        for (each, _), text in zip(ids, decode_each([asked for _, asked in ids]), strict=True):
            each.go_on(text)
        texts = [(each, each.asks) for each in waiting if isinstance(each.asks, str)]
        for (each, text), token_ids in zip(texts, encode_each([(asked, each.encoded) for each, asked in texts]), strict=True):
            each.encoded = Encoded(text, token_ids)
            each.go_on(token_ids)
        waiting = [each for each in waiting if each.asks is not None]
        while in_order and in_order[0].asks is None:
            yield in_order.popleft().made


class _UnderWay(Generic[Made]):
    """A making with its last text, and what it ``asks`` for next; None once it has ended and has ``made`` its part."""

    __slots__ = ("_making", "asks", "encoded", "made")

    made: Made

    def __init__(self, making: Making[Made]) -> None:
        self._making = making
        self.asks: str | TokenIds | None = None
        self.encoded: Encoded | None = None
        self.go_on(None)

    def go_on(self, answer: str | TokenIds | None) -> None:
        """Go on to the next thing that it asks for; ``answer`` is what it got for the last one."""
        try:
            self.asks = self._making.send(answer)
        except StopIteration as end:
            self.asks = None
            self.made = end.value
