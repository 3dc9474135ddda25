"""Text of one generated sequence, token by token, up to the stop word that ends it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from serving.text.detokenization import complete_characters, decode, next_context
from serving.text.stop_words import StopWordScan

_WINDOW_TOKENS = 64  # decoding this many costs little more than 16, and a longer window makes a restart rare


class TextStream:
    """Incremental text of one sequence, in complete characters, for a reader of all its tokens."""

    def __init__(self, tokenizer: Any, skip_special_tokens: bool, special_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._special_ids = special_ids
        self._window: list[int] = []
        self._shown = ""  # text of the window, without what is withheld

    def add(self, token_ids: Sequence[int], is_last: bool = False) -> str:
        """Text that these tokens add; the concatenated results equal ``decode`` of all tokens."""
        if len(self._window) > _WINDOW_TOKENS:
            self._window = next_context(self._window, (), self._special_ids)
            self._shown = complete_characters(decode(self._tokenizer, self._window, self._skip))
        self._window.extend(token_ids)
        text = decode(self._tokenizer, self._window, self._skip)
        text = text if is_last else complete_characters(text)
        added = text[len(self._shown) :]
        self._shown = text
        return added


class GeneratedText:
    """Text of one sequence, cut before the first stop word. The text of ``prompt`` comes first and is not searched."""

    def __init__(self, stream: TextStream, stop_words: Sequence[str] = (), prompt: Sequence[int] = ()) -> None:
        self._stream = stream
        self._scan = StopWordScan(stop_words)
        self._pieces = [stream.add(prompt)] if prompt else []

    @property
    def stopped(self) -> bool:
        """Whether a stop word has occurred; nothing is added after it."""
        return self._scan.stopped

    def add(self, token_ids: Sequence[int], is_last: bool = False, may_stop: bool = True) -> str:
        """Text that these tokens add; an incomplete character or a possible start of a stop word is withheld.

        With ``may_stop`` False a stop word that these tokens complete ends nothing.
        """
        piece = self._scan.add(self._stream.add(token_ids, is_last), is_last, may_stop)
        self._pieces.append(piece)
        return piece

    def whole(self) -> str:
        """All text so far."""
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]
