"""Text that ends before its first stop word, also when the word comes in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopWordScan:
    """Lets the text of one sequence through up to the first stop word.

    The first stop word is the one that is complete first; of two that are complete together the longer one counts. What
    comes out, joined, therefore does not depend on how the text was cut into pieces. Text that may be the beginning of a
    stop word is held back until it is known not to be. Empty stop words are ignored.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(word for word in words if word)
        self._held = ""
        self.stopped = False

    def add(self, piece: str, is_last: bool = False) -> str:
        """Take the next piece; returns what may be shown now, "" once a stop word was found (``stopped``)."""
        if self.stopped or not self._words:
            return "" if self.stopped else piece
        text = self._held + piece
        cut = self._first_stop(text)
        if cut is not None:
            self.stopped, self._held = True, ""
            return text[:cut]
        held = 0 if is_last else self._possible_start(text)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def _first_stop(self, text: str) -> int | None:
        found = [(start + len(word), start) for word in self._words if (start := text.find(word)) >= 0]
        return min(found)[1] if found else None

    def _possible_start(self, text: str) -> int:
        """Length of the longest end of ``text`` that begins a stop word."""
        longest = min(len(text), max(map(len, self._words)) - 1)
        for length in range(longest, 0, -1):
            end = text[-length:]
            if any(word.startswith(end) for word in self._words):
                return length
        return 0


def first_stop_sequence(token_ids: Sequence[int], stop_sequences: Sequence[Sequence[int]], start: int = 0) -> int | None:
    """Where the first stop sequence that ends after ``start`` ends in ``token_ids`` (exclusive), or None."""
    for end in range(start + 1, len(token_ids) + 1):
        if any(len(stop) <= end and tuple(token_ids[end - len(stop) : end]) == tuple(stop) for stop in stop_sequences if stop):
            return end
    return None
