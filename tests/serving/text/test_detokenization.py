"""Streamed pieces join to the text of the whole, for any split."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.text.detokenization import (
    CONTEXT_TOKENS,
    decode,
    next_context,
    special_token_ids,
)
from serving.text.tokenizer import load_tokenizer
from tests.serving.text.streams import from_context, from_stream, split

_TOKENIZER = load_tokenizer(DEMO_ENGINE_DIR)
_SPECIAL = special_token_ids(DEMO_ENGINE_DIR)
_BYTES = [token for token in range(len(_TOKENIZER)) if "\ufffd" in _TOKENIZER.decode([token])]  # parts of characters
_ANY = st.integers(0, len(_TOKENIZER) - 1)
_SEQUENCES = st.lists(_ANY, max_size=100) | st.lists(st.sampled_from(_BYTES), max_size=40) | st.lists(
    st.sampled_from([*_BYTES, *_SPECIAL]) | _ANY, max_size=40
)  # fmt: skip
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=25)
_CUTS = st.lists(st.integers(0, 100), max_size=60).map(sorted)
_SKIP = pytest.mark.parametrize("skip", [True, False], ids=["skip_special", "keep_special"])


def _encode(text: str) -> list[int]:
    ids: list[int] = _TOKENIZER.encode(text, add_special_tokens=False)
    return ids


_from_context = partial(from_context, _TOKENIZER, _SPECIAL)
_from_stream = partial(from_stream, _TOKENIZER, _SPECIAL)


@_SKIP
@settings(max_examples=150)
@given(ids=_SEQUENCES, cuts=_CUTS)
@example(ids=[], cuts=[])
@example(ids=[], cuts=[0, 0])
@example(ids=_encode("€") * 14, cuts=list(range(42)))
@example(ids=_encode("😀") * 10, cuts=list(range(40)))
def test_pieces_of_any_tokens_join_to_the_whole(skip: bool, ids: list[int], cuts: list[int]) -> None:
    whole = decode(_TOKENIZER, ids, skip)
    assert "".join(_from_context(split(ids, cuts), skip)) == whole
    assert "".join(_from_stream(split(ids, cuts), skip)) == whole


@_SKIP
@settings(max_examples=100)
@given(text=_TEXTS)
def test_text_streamed_token_by_token_is_unchanged(skip: bool, text: str) -> None:
    ids = _encode(text)
    pieces = _from_context([[token] for token in ids] or [[]], skip)
    assert "".join(pieces) == text


@settings(max_examples=50)
@given(text=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=25))
def test_pieces_hold_complete_characters(text: str) -> None:
    assert not any("\ufffd" in piece for piece in _from_context([[token] for token in _encode(text)] or [[]], True))


def test_spaces_are_preserved() -> None:
    ids = _encode("The king and the queen went to the sea")
    pieces = _from_context([[token] for token in ids], True)
    assert len(pieces) > 4
    assert any(piece.startswith(" ") for piece in pieces[1:])
    assert "".join(pieces) == "The king and the queen went to the sea"


def test_end_of_the_sequence_releases_withheld_bytes() -> None:
    (first, *_rest) = _encode("€")
    assert first in _BYTES
    assert _from_context([[first], []], True) == ["", "\ufffd"]


@pytest.mark.parametrize("stream", [_from_context, _from_stream])
def test_half_a_character_before_many_special_tokens_is_not_lost(stream: Any) -> None:
    first, *rest = _encode("€")
    ids = [first, *[_TOKENIZER.eos_token_id] * 5 * CONTEXT_TOKENS, *rest, *_encode("a")]
    assert "".join(stream([[token] for token in ids], True)) == decode(_TOKENIZER, ids, True) == "€a"


@given(ids=st.lists(st.sampled_from([*_SPECIAL, 700, 701]), max_size=200))
def test_context_size_is_bounded(ids: list[int]) -> None:
    context: list[int] = []
    for token in ids:
        context = next_context(context, [token], _SPECIAL)
        assert len(context) <= 2 * CONTEXT_TOKENS
    text_tokens = [token for token in ids if token not in _SPECIAL]
    assert [token for token in context if token not in _SPECIAL][-CONTEXT_TOKENS:] == text_tokens[-CONTEXT_TOKENS:]
    assert context[-CONTEXT_TOKENS:] == ids[-CONTEXT_TOKENS:]


def test_text_without_special_tokens_needs_no_more_context_than_the_last_tokens() -> None:
    context: list[int] = []
    for token in range(700, 750):
        context = next_context(context, [token], _SPECIAL)
    assert context == list(range(734, 750))


class _CleaningTokenizer:
    """As those of transformers: removes the space before a full stop unless that is switched off."""

    def decode(self, ids: list[int], skip_special_tokens: bool, clean_up_tokenization_spaces: bool | None = None) -> str:
        text = "".join(map(chr, ids))
        return text if clean_up_tokenization_spaces is False else text.replace(" .", ".")


def test_spaces_before_punctuation_are_not_cleaned_up() -> None:
    ids = list(map(ord, "the sea ."))
    assert decode(_CleaningTokenizer(), ids, True) == "the sea ."


def test_special_tokens_are_those_that_the_tokenizer_skips(tmp_path: Path) -> None:
    assert special_token_ids(DEMO_ENGINE_DIR) == frozenset(_TOKENIZER.all_special_ids)
    assert special_token_ids(tmp_path) == frozenset()


def test_special_tokens_are_shown_only_on_request() -> None:
    ids = [*_encode("sea"), _TOKENIZER.eos_token_id]
    assert decode(_TOKENIZER, ids, True) == "sea"
    assert decode(_TOKENIZER, ids, False) == "sea</s>"


def test_folder_without_a_tokenizer_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{tmp_path} holds no usable Hugging Face tokenizer"):
        load_tokenizer(tmp_path)
    with pytest.raises(ValueError, match=r"nosuch is not a folder$"):
        load_tokenizer(tmp_path / "nosuch")
