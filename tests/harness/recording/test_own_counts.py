"""Counts of each piece's own tokens, of a whole answer and while it comes."""

from __future__ import annotations

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
