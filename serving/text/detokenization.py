"""Text from tokens: a tokenizer folder, and streamed pieces that join to the unstreamed text.

Decoding a streamed token by itself loses the space before it (SentencePiece) and breaks characters whose bytes span
tokens (byte-level BPE). A piece is therefore the difference of two decodings that start a few tokens earlier,
and an unfinished character at the end is held back until it is finished or the sequence ends. This is the
"prefix offset" idea of Text Generation Inference, made stateless: who streams tokens sends the few before them along.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

CONTEXT_TOKENS = 16  # more than the tokens that the characters held back (_UNFINISHED_CHARACTERS) can span
_WINDOW_TOKENS = 64  # decoding this many costs little more than 16; a longer memory makes a new start rare
# A detokenization context is one of these marks and then the tokens before a piece.
MORE_FOLLOWS = -2
END_OF_SEQUENCE = -1
_REPLACEMENT = "\ufffd"  # what a decoder writes for bytes that are no character, or not yet
_UNFINISHED_CHARACTERS = 3  # a character of 4 bytes cut after 3: byte-fallback decoders write one replacement a byte


def load_tokenizer(tokenizer_dir: Path) -> Any:
    """Load a Hugging Face tokenizer folder, never the network. Raises ValueError when it holds none."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"  # it would tell the user to install torch
    from transformers import AutoTokenizer

    if not tokenizer_dir.is_dir():
        raise ValueError(f"{tokenizer_dir} is not a folder")
    try:
        return AutoTokenizer.from_pretrained(str(tokenizer_dir), padding_side="left")
    except Exception as error:
        raise ValueError(f"{tokenizer_dir} holds no usable Hugging Face tokenizer: {error}") from error


def decode(tokenizer: Any, token_ids: Sequence[int], skip_special_tokens: bool) -> str:
    """The text of a whole sequence."""
    text: str = tokenizer.decode(list(token_ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False)
    return text


def decode_piece(tokenizer: Any, before: Sequence[int], new: Sequence[int], is_last: bool, skip_special_tokens: bool) -> str:
    """The text that ``new`` adds after ``before`` (the last few tokens already streamed, at most CONTEXT_TOKENS).

    The pieces of a sequence joined are ``decode`` of the whole.
    """
    earlier = _finished(decode(tokenizer, before, skip_special_tokens)) if before else ""
    text = decode(tokenizer, [*before, *new], skip_special_tokens)
    return (text if is_last else _finished(text))[len(earlier) :]


def special_token_ids(tokenizer_dir: Path) -> frozenset[int]:
    """Ids that leave no text where special tokens are skipped, read without loading the tokenizer; empty where unknown."""
    try:
        tokens = json.loads((tokenizer_dir / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
        return frozenset(int(token["id"]) for token in tokens if token["special"])
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def next_context(before: Sequence[int], new: Sequence[int], special_ids: Collection[int]) -> list[int]:
    """The tokens to send along with the piece after ``new``, where ``before`` went along with ``new``.

    They are the last CONTEXT_TOKENS, and before these as many as it takes to have CONTEXT_TOKENS that are not special: where
    special tokens are skipped, any number of them may stand between half a character and its other half.
    """
    tokens = [*before, *new]
    recent = tokens[-CONTEXT_TOKENS:]
    room = sum(token in special_ids for token in recent)
    earlier = [token for token in tokens[:-CONTEXT_TOKENS] if token not in special_ids]
    return [*(earlier[-room:] if room else ()), *recent]


class TextStream:
    """The text of one sequence, whole characters at a time, for whoever sees all of its tokens."""

    def __init__(self, tokenizer: Any, skip_special_tokens: bool, special_ids: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._special_ids = special_ids
        self._window: list[int] = []
        self._shown = ""  # the text of the window, without what is held back

    def add(self, token_ids: Sequence[int], is_last: bool = False) -> str:
        """The text that these tokens add; joined, it is ``decode`` of them all."""
        if len(self._window) > _WINDOW_TOKENS:
            self._window = next_context(self._window, (), self._special_ids)
            self._shown = _finished(decode(self._tokenizer, self._window, self._skip))
        self._window.extend(token_ids)
        text = decode(self._tokenizer, self._window, self._skip)
        text = text if is_last else _finished(text)
        added = text[len(self._shown) :]
        self._shown = text
        return added


def _finished(text: str) -> str:
    for _ in range(_UNFINISHED_CHARACTERS):
        text = text.removesuffix(_REPLACEMENT)
    return text
