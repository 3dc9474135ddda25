"""Stop words in text and in token ids, and the layout of word lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.text.stop_words import StopWordScan, first_stop_sequence, from_word_list, to_word_list
from serving.text.tokenizer import load_tokenizer

_TEXT = st.text("abc", max_size=12)
_WORDS = st.lists(st.text("abc", max_size=4), max_size=3)


def _scan(words: Sequence[str], pieces: Sequence[str]) -> tuple[list[str], bool]:
    scan = StopWordScan(words)
    return [scan.add(piece, number == len(pieces)) for number, piece in enumerate(pieces, start=1)], scan.stopped


def _reference_cut(text: str, words: Sequence[str]) -> str:
    """The definition, letter by letter: the shortest prefix that ends with a stop word, without the longest such word."""
    for end in range(len(text) + 1):
        ending = [word for word in words if word and text[:end].endswith(word)]
        if ending:
            return text[: end - max(map(len, ending))]
    return text


@given(pieces=st.lists(_TEXT, min_size=1, max_size=8), words=_WORDS)
@example(pieces=["a", "b", "cd"], words=["abcd", "bc"])
@example(pieces=["aab", "ab", "c"], words=["aababc", "bc"])
def test_text_ends_before_the_first_stop_word_for_any_split(pieces: list[str], words: list[str]) -> None:
    whole = "".join(pieces)
    shown, stopped = _scan(words, pieces)
    assert "".join(shown) == _reference_cut(whole, words)
    assert stopped == any(word in whole for word in words if word)


@given(pieces=st.lists(_TEXT, min_size=1, max_size=8), words=_WORDS)
def test_only_possible_starts_of_stop_words_are_withheld(pieces: list[str], words: list[str]) -> None:
    scan = StopWordScan(words)
    added = shown = ""
    for piece in pieces:
        added += piece
        shown += scan.add(piece)
        if scan.stopped:
            break
        withheld = added[len(shown) :]
        assert not withheld or any(word.startswith(withheld) for word in words)


def test_stop_word_across_three_pieces_is_never_shown() -> None:
    assert _scan(["END"], ["the E", "N", "D of it", " all"]) == (["the ", "", "", ""], True)


def test_withheld_text_is_released_when_it_is_no_stop_word() -> None:
    assert _scan(["END"], ["the E", "N", "GINE"]) == (["the ", "", "ENGINE"], False)


def test_a_piece_is_not_the_last_one_unless_it_is_said() -> None:
    scan = StopWordScan(["END"])
    assert (scan.add("the E"), scan.add("ND"), scan.stopped) == ("the ", "", True)


@given(pieces=st.lists(st.tuples(_TEXT, st.booleans()), min_size=1, max_size=8), words=_WORDS)
@example(pieces=[("ab", False), ("x", True)], words=["b", "abc"])
def test_a_word_that_is_complete_where_nothing_may_stop_never_stops(pieces: list[tuple[str, bool]], words: list[str]) -> None:
    scan = StopWordScan(words)
    shown, text = "", ""
    for number, (piece, may_stop) in enumerate(pieces, start=1):
        ends = range(len(text) + 1, len(text) + len(piece) + 1) if may_stop else ()
        text += piece
        shown += scan.add(piece, number == len(pieces), may_stop)
        complete = [(end, -len(word)) for end in ends for word in words if word and text[:end].endswith(word)]
        if complete:
            end, minus_length = min(complete)
            assert (shown, scan.stopped) == (text[: end + minus_length], True)
            return
    assert (shown, scan.stopped) == (text, False)


def test_withheld_text_is_released_at_the_end() -> None:
    assert _scan(["END"], ["the E", ""]) == (["the ", "E"], False)


@pytest.mark.parametrize(
    ("ids", "stops", "start", "end"),
    [
        ([1, 2, 3, 4], [(2, 3)], 0, 3),
        ([1, 2, 3, 4], [(3, 4), (2,)], 0, 2),
        ([1, 2, 3, 2], [(2,)], 2, 4),
        ([1, 2, 3], [(2, 3)], 2, 3),  # starts before `start`, ends after it
        ([1, 2, 3], [(4,), ()], 0, None),
        ([1], [(0, 1)], 0, None),
        ([], [(1,)], 0, None),
    ],
)
def test_first_stop_sequence(ids: list[int], stops: list[tuple[int, ...]], start: int, end: int | None) -> None:
    assert first_stop_sequence(ids, stops, start) == end


def test_a_stop_sequence_is_sought_from_the_first_token_on() -> None:
    assert first_stop_sequence([7, 8, 7], [(7,)]) == 1


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer(DEMO_ENGINE_DIR)


class _Characters:
    """Tokenizer with one token per character: its code point."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [ord(character) for character in text]


def test_word_list_is_flat_ids_over_cumulative_ends() -> None:
    table = to_word_list(_Characters(), [b"ab", b"", b"c"])
    assert table.dtype == np.int32
    assert table.tolist() == [[97, 98, 99], [2, 3, -1]]


@pytest.mark.parametrize("words", [[], [b""], [b"", b""]])
def test_word_list_without_words_has_no_columns(words: list[bytes]) -> None:
    table = to_word_list(_Characters(), words)
    assert table.shape == (2, 0)
    assert from_word_list(table) == ()


def test_padding_of_a_word_list_is_ignored() -> None:
    padded = np.array([[97, 98, 99, 0, 0], [2, 3, -1, -1, -1]], dtype=np.int32)
    assert from_word_list(padded) == ((97, 98), (99,))


def test_an_entry_of_a_word_list_without_tokens_is_no_word() -> None:
    assert from_word_list(np.array([[97, 98, 99], [2, 2, 3]], dtype=np.int32)) == ((97, 98), (99,))


@given(words=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), max_size=6))
def test_word_list_round_trip(words: list[str], tokenizer: Any) -> None:
    encoded = [tuple(tokenizer.encode(word, add_special_tokens=False)) for word in words if word]
    assert from_word_list(to_word_list(tokenizer, [word.encode() for word in words])) == tuple(encoded)


def test_word_list_rejects_invalid_utf8() -> None:
    with pytest.raises(UnicodeDecodeError):
        to_word_list(_Characters(), [b"\xff"])
