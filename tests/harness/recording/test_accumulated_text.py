"""Streamed texts that repeat what came before them."""

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from harness.clients.protocol import Response
from harness.recording.accumulated_text import in_pieces


def _responses(texts: Sequence[str | None], may_repeat: bool = True) -> list[Response]:
    return [Response(text=text, may_repeat=may_repeat) for text in texts]


def _pieces(texts: Sequence[str | None], may_repeat: bool = True) -> list[str | None]:
    return [response.text for response in in_pieces(_responses(texts, may_repeat))]


@given(st.lists(st.text(max_size=4), min_size=1, max_size=12))
def test_repeated_texts_become_the_pieces_that_they_grew_by(pieces: list[str]) -> None:
    whole = list(accumulate(pieces))
    assume(len({text for text in whole if text}) > 1)  # else it is one text, sent again or repeated in the answer
    assert "".join(text or "" for text in _pieces(whole)) == whole[-1]


@pytest.mark.parametrize(
    "texts",
    [
        [" 0", " 1", " 2"],
        [" a", " a", " a"],  # one word again and again: its texts do not grow
        [" a", " ab", " c"],
        ["", " the", " end"],
        [None, " the", " end"],
        [" alone"],
        [],
    ],
)
def test_pieces_stay_as_they_are(texts: list[str | None]) -> None:
    assert _pieces(texts) == texts


def test_texts_of_a_server_that_never_repeats_are_not_looked_at() -> None:
    assert _pieces([" a", " ab", " abc"], may_repeat=False) == [" a", " ab", " abc"]


def test_a_response_without_new_text_and_a_mark_of_the_end_stay() -> None:
    assert _pieces([" a", " a", " ab", None]) == [" a", "", "b", None]
