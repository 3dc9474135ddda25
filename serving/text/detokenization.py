"""Detokenization: text of token ids, and streamed pieces that join to the unstreamed text.

Decoding a streamed token on its own loses the space before it (SentencePiece) and breaks characters whose bytes span several
tokens (byte-level BPE). A piece is therefore the difference of two decodings that start a few tokens earlier, and an
incomplete character at the end is withheld until it is complete or the sequence ends. This is the "prefix offset" of Text
Generation Inference, made stateless: the sender of a piece includes the few tokens before it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

CONTEXT_TOKENS = 16  # more tokens than the withheld characters (_INCOMPLETE_CHARACTERS) can span
# A detokenization context is one of these marks, followed by the tokens before a piece.
MORE_FOLLOWS = -2
END_OF_SEQUENCE = -1
_REPLACEMENT = "\ufffd"  # decoders write it for bytes that are not, or not yet, a character
_INCOMPLETE_CHARACTERS = 3  # a 4-byte character cut after 3 bytes: byte-fallback decoders write one replacement per byte


def decode(tokenizer: Any, token_ids: Sequence[int], skip_special_tokens: bool) -> str:
    """Text of a complete sequence."""
    repaired = getattr(tokenizer, "repaired", None)  # of a FileTokenizer
    ids = token_ids if repaired is None else repaired(token_ids, skip_special_tokens)
    text: str = tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False)
    return text


def decode_piece(tokenizer: Any, before: Sequence[int], new: Sequence[int], is_last: bool, skip_special_tokens: bool) -> str:
    """Text that ``new`` adds after ``before``, the last tokens already streamed (see ``next_context``).

    The concatenated pieces of a sequence equal ``decode`` of the whole.
    """
    earlier = complete_characters(decode(tokenizer, before, skip_special_tokens)) if before else ""
    text = decode(tokenizer, [*before, *new], skip_special_tokens)
    return (text if is_last else complete_characters(text))[len(earlier) :]


def special_token_ids(tokenizer_dir: Path) -> frozenset[int]:
    """Ids without text when special tokens are skipped, read without loading the tokenizer; empty if unknown."""
    try:
        tokens = json.loads((tokenizer_dir / "tokenizer.json").read_text(encoding="utf-8"))["added_tokens"]
        return frozenset(int(token["id"]) for token in tokens if token["special"])
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def next_context(before: Sequence[int], new: Sequence[int], special_ids: Collection[int]) -> list[int]:
    """Context of the piece after ``new``, where ``before`` was the context of ``new``.

    It consists of the last CONTEXT_TOKENS tokens, and as many earlier ones as are needed for CONTEXT_TOKENS tokens that are
    not special: when special tokens are skipped, any number of them may lie between the two halves of a character.
    """
    tokens = [*before, *new]
    recent = tokens[-CONTEXT_TOKENS:]
    room = sum(token in special_ids for token in recent)
    earlier = [token for token in tokens[:-CONTEXT_TOKENS] if token not in special_ids]
    return [*(earlier[-room:] if room else ()), *recent]


def complete_characters(text: str) -> str:
    """``text`` without an incomplete character at its end."""
    for _ in range(_INCOMPLETE_CHARACTERS):
        text = text.removesuffix(_REPLACEMENT)
    return text
