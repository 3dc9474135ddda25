"""The text of one generated sequence, from its tokens to the stop word that ends it."""

from __future__ import annotations

from collections.abc import Sequence

from serving.text.detokenization import TextStream
from serving.text.stop_words import StopWordScan


class GeneratedText:
    """Whole characters as tokens come, cut before the first stop word. A ``prompt`` stands before and is not searched."""

    def __init__(self, stream: TextStream, stop_words: Sequence[str] = (), prompt: Sequence[int] = ()) -> None:
        self._stream = stream
        self._scan = StopWordScan(stop_words)
        self._pieces = [stream.add(prompt)] if prompt else []

    @property
    def stopped(self) -> bool:
        """Whether a stop word was found; nothing is added after it."""
        return self._scan.stopped

    def add(self, token_ids: Sequence[int], is_last: bool = False) -> str:
        """The text that these tokens add; what may be half a character or the beginning of a stop word is held back."""
        piece = self._scan.add(self._stream.add(token_ids, is_last), is_last)
        self._pieces.append(piece)
        return piece

    def whole(self) -> str:
        """Everything so far."""
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]
