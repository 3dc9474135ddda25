"""Streamed texts that repeat what came before them."""

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.clients.protocol import Repetition, Response
from harness.recording.accumulated_text import in_pieces


def _responses(texts: Sequence[str | None], repetition: Repetition) -> list[Response]:
    return [Response(text=text, repetition=repetition) for text in texts]


def _pieces(texts: Sequence[str | None], repetition: Repetition = Repetition.POSSIBLE) -> list[str | None]:
    return [response.text for response in in_pieces(_responses(texts, repetition))]


def _joined(texts: Sequence[str | None], repetition: Repetition = Repetition.POSSIBLE) -> str:
    return "".join(text or "" for text in _pieces(texts, repetition))


_PIECES = st.lists(st.text(max_size=4), min_size=1, max_size=12)


@given(_PIECES)
def test_repeated_texts_become_the_pieces_that_they_grew_by(pieces: list[str]) -> None:
    whole = list(accumulate(pieces))
    # Else it is one text, sent again or repeated in the answer.
    assume(len({settled for text in whole if (settled := text.rstrip("\ufffd"))}) > 1)
    assert _joined(whole) == whole[-1]


@given(_PIECES)
def test_texts_that_certainly_repeat_join_to_the_last(pieces: list[str]) -> None:
    whole = list(accumulate(pieces))
    assert _joined(whole, Repetition.CERTAIN) == whole[-1]


@pytest.mark.parametrize("repetition", [Repetition.POSSIBLE, Repetition.CERTAIN])
def test_an_unfinished_character_is_no_text_until_it_is_finished(repetition: Repetition) -> None:
    words = [f" w{number}" for number in range(9)]
    whole = list(accumulate(["Hi", *words, " \ufffd"])) + list(accumulate(["Hi", *words, " 你", *words]))[10:]
    assert len(whole) == 21
    assert _joined(whole, repetition) == whole[-1]
    assert _pieces(["Hi \ufffd", "Hi 你"], repetition) == ["Hi ", "你"]
    assert _pieces(["\ufffd", "\ufffd\ufffd", "你", "你好"], repetition) == ["", "", "你", "好"]


def test_an_answer_that_ends_within_a_character_keeps_its_mark() -> None:
    assert _pieces(["a", "ab", "ab\ufffd", None]) == ["a", "b", "\ufffd", None]


def test_an_answer_without_text_or_of_one_text_has_no_other_pieces() -> None:
    assert _pieces([None, ""], Repetition.CERTAIN) == [None, ""]
    assert _pieces([None, "a\ufffd"]) == [None, "a\ufffd"]


@pytest.mark.parametrize(
    "texts",
    [
        [" 0", " 1", " 2"],
        [" a", " a", " a"],  # one word again and again: its texts do not grow
        [" a", " ab", " c"],
        [" a", " ab", " cde"],
        ["", " the", " end"],
        [None, " the", " end"],
        ["\ufffd", "\ufffd", "\ufffd", " the"],  # a character in pieces
        [" alone"],
        [],
    ],
)
def test_pieces_stay_as_they_are(texts: list[str | None]) -> None:
    assert _pieces(texts) == texts


def test_texts_of_a_server_that_never_repeats_are_not_looked_at() -> None:
    assert _pieces([" a", " ab", " abc"], Repetition.NONE) == [" a", " ab", " abc"]


def test_a_response_without_new_text_and_a_mark_of_the_end_stay() -> None:
    assert _pieces([" a", " a", " ab", None]) == [" a", "", "b", None]


@pytest.mark.parametrize(
    ("texts", "pieces"),
    [
        (["the", "the"], ["the", ""]),  # the second token has no text
        (["Hello ,", "Hello, w", "Hello, world"], ["Hello ,", ", w", "orld"]),  # spaces cleaned up
        (["Hello", "Hello wor", "Hello"], ["Hello", " wor", ""]),
        (["Hi", "", "Hi you"], ["Hi", "", " you"]),
        ([" alone"], [" alone"]),
    ],
)
def test_where_repetition_is_certain_a_piece_is_what_follows_the_common_prefix(texts: list[str], pieces: list[str]) -> None:
    assert _pieces(texts, Repetition.CERTAIN) == pieces
