"""Whether a tokenizer encodes each word by itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer, models

_NORMAL_FORMS = ("NFC", "NFD", "NFKC", "NFKD")  # each side of a space between two words has its own
_END = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORTENED = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_PATTERNS = frozenset(
    [
        # GPT-4, Llama 3; Qwen 2 and 3
        *(
            rf"{_SHORTENED}|{_BEFORE}\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_END}"
            for digits in (r"\p{N}{1,3}", r"\p{N}")
        ),
        # GPT-4o, gpt-oss, Llama 4
        rf"{_BEFORE}[{_UPPER}]*[{_LOWER}]+{_SHORTENED}?|{_BEFORE}[{_UPPER}]+[{_LOWER}]*{_SHORTENED}?"
        rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_END}",
        # DeepSeek V3 and R1
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
        + _END,
    ]
)
"""Patterns of which a match neither crosses the place before a space between two ASCII letters or digits, nor depends on
what is on its other side: they look back at nothing, and ahead at no more than the character after white space."""


def divides_words(tokenizer: Tokenizer) -> bool:
    """Whether a text is known to have the ids of its two parts, without special tokens, where it is cut before a space between
    two ASCII letters or digits: for byte-level BPE that divides a text as GPT-2 does or by another pattern that is known.
    """
    model = tokenizer.model
    if not isinstance(model, models.BPE) or model.dropout:
        return False
    return (
        _normalizes_words(_state(tokenizer.normalizer))
        and _splits_words(_state(tokenizer.pre_tokenizer))
        and not any(
            any(map(str.isspace, token.content)) or token.lstrip or token.rstrip or token.single_word
            for token in tokenizer.get_added_tokens_decoder().values()
        )
    )


def _state(part: Any) -> Mapping[str, Any]:
    """What a part of a tokenizer is, as ``tokenizer.json`` has it; empty for none."""
    state: Mapping[str, Any] = {} if part is None else json.loads(part.__getstate__())
    return state


def _normalizes_words(normalizer: Mapping[str, Any]) -> bool:
    if normalizer.get("type") == "Sequence":
        return all(map(_normalizes_words, normalizer["normalizers"]))
    return not normalizer or normalizer.get("type") in _NORMAL_FORMS


def _splits_words(pre_tokenizer: Mapping[str, Any]) -> bool:
    """Whether one part at least divides before each space between words, and all leave its two sides alone."""
    parts = pre_tokenizer["pretokenizers"] if pre_tokenizer.get("type") == "Sequence" else [pre_tokenizer]
    return all(map(_leaves_words, parts)) and any(map(_is_by_words, parts))


def _leaves_words(part: Mapping[str, Any]) -> bool:
    if part.get("type") == "ByteLevel":
        return not part["add_prefix_space"]
    return part.get("type") == "Split" and part["behavior"] == "Isolated" and not part["invert"] and _pattern(part) in _PATTERNS


def _is_by_words(part: Mapping[str, Any]) -> bool:
    return bool(part["use_regex"]) if part["type"] == "ByteLevel" else (_pattern(part) or "").endswith(_END)


def _pattern(split: Mapping[str, Any]) -> str | None:
    pattern: str | None = split["pattern"].get("Regex")
    return None if pattern is None else pattern.replace("\r", r"\r").replace("\n", r"\n")  # as DeepSeek's has them
