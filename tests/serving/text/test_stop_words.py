from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.text.stop_words import StopWordScan, first_stop_sequence

_TEXT = st.text("abc", max_size=12)
_WORDS = st.lists(st.text("abc", max_size=4), max_size=3)


def _scan(words: Sequence[str], pieces: Sequence[str]) -> tuple[list[str], bool]:
    scan = StopWordScan(words)
    return [scan.add(piece, number == len(pieces)) for number, piece in enumerate(pieces, start=1)], scan.stopped


def _cut_by_reading_on(text: str, words: Sequence[str]) -> str:
    """The definition, letter by letter: the shortest beginning that ends with a stop word, without the longest such word."""
    for end in range(len(text) + 1):
        ending = [word for word in words if word and text[:end].endswith(word)]
        if ending:
            return text[: end - max(map(len, ending))]
    return text


@given(pieces=st.lists(_TEXT, min_size=1, max_size=8), words=_WORDS)
@example(pieces=["a", "b", "cd"], words=["abcd", "bc"])
@example(pieces=["aab", "ab", "c"], words=["aababc", "bc"])
def test_text_ends_before_the_first_stop_word_however_it_is_cut(pieces: list[str], words: list[str]) -> None:
    whole = "".join(pieces)
    shown, stopped = _scan(words, pieces)
    assert "".join(shown) == _cut_by_reading_on(whole, words)
    assert stopped == any(word in whole for word in words if word)


@given(pieces=st.lists(_TEXT, min_size=1, max_size=8), words=_WORDS)
def test_nothing_is_held_back_that_cannot_become_a_stop_word(pieces: list[str], words: list[str]) -> None:
    scan = StopWordScan(words)
    came = shown = ""
    for piece in pieces:
        came += piece
        shown += scan.add(piece)
        if scan.stopped:
            break
        held = came[len(shown) :]
        assert not held or any(word.startswith(held) for word in words)


def test_stop_word_over_three_pieces_never_shows() -> None:
    assert _scan(["END"], ["the E", "N", "D of it", " all"]) == (["the ", "", "", ""], True)


def test_a_false_alarm_is_let_go() -> None:
    assert _scan(["END"], ["the E", "N", "GINE"]) == (["the ", "", "ENGINE"], False)


def test_what_was_held_back_comes_at_the_end() -> None:
    assert _scan(["END"], ["the E", ""]) == (["the ", "E"], False)


@pytest.mark.parametrize(
    ("ids", "stops", "start", "end"),
    [
        ([1, 2, 3, 4], [(2, 3)], 0, 3),
        ([1, 2, 3, 4], [(3, 4), (2,)], 0, 2),
        ([1, 2, 3, 2], [(2,)], 2, 4),
        ([1, 2, 3], [(2, 3)], 2, 3),  # began before `start`, ends after it
        ([1, 2, 3], [(4,), ()], 0, None),
        ([1], [(0, 1)], 0, None),
        ([], [(1,)], 0, None),
    ],
)
def test_first_stop_sequence(ids: list[int], stops: list[tuple[int, ...]], start: int, end: int | None) -> None:
    assert first_stop_sequence(ids, stops, start) == end
