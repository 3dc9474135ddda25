"""Messages that are dropped: what is wrong with one, and how many there were, in bounded memory however many come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Generic, TypeVar

_MOST_KEPT = 100
_LONGEST_REASON = 200
Sender = TypeVar("Sender")


class BadMessageError(Exception):
    """A message that is dropped: its text says what is wrong with it."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason))


def printable(text: str) -> str:
    """The beginning of a text that a stranger may have chosen, without what would act on a terminal."""
    cut = text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]} …"
    return "".join(character if character.isprintable() else "?" for character in cut)


class DroppedMessages(Generic[Sender]):
    """Beyond the first hundred senders and reasons, only the number of messages is kept."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Sender, str]] = Counter()
        self._others = 0

    @property
    def total(self) -> int:
        return self._counts.total() + self._others

    def add(self, sender: Sender, reason: str, count: int = 1) -> bool:
        """Count messages; returns whether they are the first of their sender and reason."""
        key = (sender, reason)
        if key in self._counts:
            self._counts[key] += count
            return False
        if len(self._counts) < _MOST_KEPT:
            self._counts[key] = count
            return True
        self._others += count
        return False

    def __iter__(self) -> Iterator[tuple[Sender, str, int]]:
        """Sender, reason and count, most frequent first."""
        for (sender, reason), count in self._counts.most_common():
            yield sender, reason, count
