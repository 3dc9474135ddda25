from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.text.detokenization import load_tokenizer
from serving.text.word_lists import from_word_list, to_word_list


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(DEMO_ENGINE_DIR)


class _Characters:
    """A tokenizer for which every character is a token: its code point."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(character) for character in text]


def test_layout_is_flat_ids_over_cumulative_ends() -> None:
    table = to_word_list(_Characters(), [b"ab", b"", b"c"])
    assert table.dtype == np.int32
    assert table.tolist() == [[97, 98, 99], [2, 3, -1]]


@pytest.mark.parametrize("words", [[], [b""], [b"", b""]])
def test_no_words_is_a_table_of_no_columns(words: list[bytes]) -> None:
    table = to_word_list(_Characters(), words)
    assert table.shape == (2, 0)
    assert from_word_list(table) == ()


def test_padding_as_a_batch_needs_it_changes_nothing() -> None:
    padded = np.array([[97, 98, 99, 0, 0], [2, 3, -1, -1, -1]], dtype=np.int32)
    assert from_word_list(padded) == ((97, 98), (99,))


@given(words=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=6))
def test_round_trip(words: list[str], tokenizer: Any) -> None:
    encoded = [tuple(tokenizer.encode(word, add_special_tokens=False)) for word in words if word]
    assert from_word_list(to_word_list(tokenizer, [word.encode() for word in words])) == tuple(encoded)


def test_bytes_that_are_no_text_raise() -> None:
    with pytest.raises(UnicodeDecodeError):
        to_word_list(_Characters(), [b"\xff"])
