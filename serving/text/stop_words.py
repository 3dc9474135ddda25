"""Stop words: in text, in token ids, and as the word lists of TensorRT-LLM (which bad words use, too)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class StopWordScan:
    """Filter that passes the text of one sequence up to its first stop word.

    The first stop word is the one that is complete first; of two that are complete together, the longer one. The
    concatenated output therefore does not depend on how the text was cut into pieces. Text that may be the start of a stop
    word is withheld until that is decided. Empty stop words are ignored.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = tuple(word for word in words if word)
        self._withheld = ""
        self.stopped = False

    def add(self, piece: str, is_last: bool = False, may_stop: bool = True) -> str:
        """Add the next piece; returns the text that passes now, "" after a stop word (``stopped``).

        With ``may_stop`` False a word that is complete in the piece passes; one that is complete later counts.
        """
        if self.stopped or not self._words:
            return "" if self.stopped else piece
        text = self._withheld + piece
        cut = self._first_stop(text) if may_stop else None
        if cut is not None:
            self.stopped = True
            return text[:cut]
        withheld = 0 if is_last else self._possible_start(text)
        self._withheld = text[len(text) - withheld :]
        return text[: len(text) - withheld]

    def _first_stop(self, text: str) -> int | None:
        """Start of the first word that is complete after what was withheld: one that is complete before may not stop."""
        held = len(self._withheld)
        found = ((text.find(word, max(0, held - len(word) + 1)), word) for word in self._words)
        matches = [(start + len(word), start) for start, word in found if start >= 0]
        return min(matches)[1] if matches else None

    def _possible_start(self, text: str) -> int:
        """Length of the longest suffix of ``text`` that is the start of a stop word."""
        longest = min(len(text), max(map(len, self._words)) - 1)
        for length in range(longest, 0, -1):
            end = text[-length:]
            if any(word.startswith(end) for word in self._words):
                return length
        return 0


def first_stop_sequence(token_ids: Sequence[int], stop_sequences: Sequence[Sequence[int]], start: int = 0) -> int | None:
    """End (exclusive) in ``token_ids`` of the first stop sequence that ends after ``start``, or None."""
    for end in range(start + 1, len(token_ids) + 1):
        if any(len(stop) <= end and tuple(token_ids[end - len(stop) : end]) == tuple(stop) for stop in stop_sequences if stop):
            return end
    return None


def to_word_list(tokenizer: Any, words: Sequence[bytes]) -> NDArray[np.int32]:
    """Encode ``words`` to an int32 array [2, n]: row 0 flat token ids (padded with 0), row 1 cumulative ends (padded with -1).

    Words without a token are skipped; without words n is 0. Source: upstream preprocessing ``_to_word_list_format``.
    """
    encoded = [ids for word in words if (ids := tokenizer.encode(word.decode(), add_special_tokens=False))]
    ids = [token for tokens in encoded for token in tokens]
    ends = np.cumsum([len(tokens) for tokens in encoded])
    table = np.zeros((2, len(ids)), dtype=np.int32)
    table[0] = ids
    table[1] = -1
    table[1, : len(ends)] = ends
    return table


def from_word_list(table: NDArray[np.int32]) -> tuple[tuple[int, ...], ...]:
    """Token sequences of a [2, n] word list: the inverse of ``to_word_list``."""
    ids, ends = table.tolist() if table.size else ([], [])
    starts = [0, *ends]
    return tuple(tuple(ids[start:end]) for start, end in zip(starts, ends, strict=False) if end > start >= 0)
