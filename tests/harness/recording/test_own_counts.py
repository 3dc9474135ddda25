"""Counts of each piece's own tokens, of a whole answer and while it comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.clients.protocol import Response
from harness.recording.own_counts import OwnCountsSoFar, own_counts

_COUNTS = st.none() | st.integers(0, 3)
_RESPONSES = st.builds(Response, text=st.sampled_from([None, "", "a"]), server_tokens_so_far=_COUNTS) | st.builds(
    Response, text=st.just(""), opening=st.just(True), server_tokens_so_far=_COUNTS
)


@given(st.lists(_RESPONSES, min_size=1, max_size=12))
def test_the_sum_while_an_answer_comes_is_that_of_the_answer_up_to_there(responses: list[Response]) -> None:
    so_far = OwnCountsSoFar()
    for number, response in enumerate(responses, start=1):
        counts = own_counts(responses[:number])
        assert so_far.add(response) == (None if counts is None else sum(counts))


def test_one_token_in_each_of_three_texts_is_counted_from_the_third_on() -> None:
    so_far = OwnCountsSoFar()
    assert [so_far.add(Response(text="a", server_tokens_so_far=1)) for _ in range(5)] == [None, None, 3, 4, 5]


def _piece(text: str, count: int | None, opening: bool = False) -> Response:
    return Response(text=text, server_tokens_so_far=count, opening=opening)


@pytest.mark.parametrize(
    ("responses", "counts"),
    [
        ([_piece("a", 2), _piece("b", 1)], (2, 1)),  # they fall
        ([_piece("a", 1), _piece("b", 2)], None),  # they may be those of all so far
        ([_piece("a", 1), _piece("b", 1)], None),  # two texts can be parts of one token
        ([_piece("a", 1), _piece("b", 1), _piece("c", 1)], (1, 1, 1)),
        ([_piece("a", 2), _piece("", None), _piece("b", 1)], (2, 0, 1)),
        ([_piece("a", 2), _piece("b", 2), _piece("c", 2)], None),  # the total of an answer that was complete at once
        ([_piece("a", 2), _piece("b", None), _piece("c", 1)], None),  # a text without a count
        ([_piece("a", 2), _piece("b", 0), _piece("c", 1)], None),  # 0 beside text counts nothing
        ([_piece("", 1, opening=True), _piece("a", 2), _piece("b", 1)], (0, 2, 1)),  # the role has no token
        ([_piece("a", 2), _piece("b", 1), _piece("c", 5)], (2, 1, 5)),  # a text at the end has its own
        ([_piece("a", 2), _piece("b", 1), _piece("", 2)], (2, 1, 2)),  # an empty piece with fewer than all before it, its own
        ([_piece("a", 2), _piece("b", 1), _piece("", 3)], (2, 1, 0)),  # with as many, the total
        ([_piece("a", 2), _piece("b", 1), _piece("", 4)], (2, 1, 1)),  # with one more, the total and one of its own
        ([_piece("a", 2), _piece("b", 1), Response(server_tokens_so_far=3)], None),  # a total comes after the last piece
    ],
)
def test_the_counts_are_those_of_each_piece_where_they_cannot_be_of_all_so_far(
    responses: list[Response], counts: tuple[int, ...] | None
) -> None:
    so_far = OwnCountsSoFar()
    assert own_counts(responses) == counts
    assert [so_far.add(response) for response in responses][-1] == (None if counts is None else sum(counts))
