"""KV caches that a server which decodes fetches: what the posts of their transfers cost, and when they are seen to be there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.answers import Answers, Decode, Deployment, Post
from simulator.server import Admission, Server, StepLaw
from tests.simulator.known import poisson, requests, sent
from tests.simulator.test_simulation import servers

BARE = Server(StepLaw(step=1e-3))  # each step takes 1 ms, whatever it holds
LOOKING_AHEAD = replace(BARE, admission=Admission(lookahead=1))
MS = 1e3


def _fetched(server: Server, arrivals_s: list[float], output: list[int], decode: Decode) -> Answers:
    """Prompts of 100 tokens, which take 1 ms to prefill."""
    deployment = Deployment(server, replicas=len(arrivals_s), decode=decode)
    return sent(requests(arrivals_s, [100] * len(arrivals_s), output), deployment)


@pytest.mark.parametrize("server", [BARE, LOOKING_AHEAD])
def test_a_request_alone_waits_for_the_post_and_the_transfer(server: Server) -> None:
    found = _fetched(server, [1.0], [4], Decode(1, 5e-3, 1e5, Post(3e-3, 5e4)))
    prefilled, posted, transferred, token = 1.0, 3.0 + 2.0, 5.0 + 1.0, 1.0
    assert (found.first_s - 1.0) * MS == pytest.approx([prefilled + posted + transferred + token])
    assert (found.last_s - found.first_s) * MS == pytest.approx([3 * token])
    assert found.steps == 1 + 4


def test_the_posts_of_others_lengthen_the_time_of_a_token() -> None:
    """Without a lookahead nothing else happens while the host posts."""
    arrivals_s = [0.0, 0.0205, 0.0405, 0.0605]
    found = _fetched(BARE, arrivals_s, [100, 2, 2, 2], Decode(1, post=Post(5e-3)))
    assert (found.last_s[0] - found.first_s[0]) * MS == pytest.approx(99 + 3 * 5)


def test_a_post_that_ends_before_the_step_that_runs_costs_nothing_with_a_lookahead() -> None:
    arrivals_s = [0.0, 0.0205, 0.0405, 0.0605]
    short, long = (
        _fetched(LOOKING_AHEAD, arrivals_s, [100, 2, 2, 2], Decode(1, post=Post(each_s))) for each_s in (0.9e-3, 5e-3)
    )
    assert (short.last_s[0] - short.first_s[0]) * MS == pytest.approx(99)
    assert (long.last_s[0] - long.first_s[0]) * MS == pytest.approx(99 + 3 * (5 - 1))


@pytest.mark.parametrize(
    ("lookahead", "transfer_ms", "first_ms"),
    [(0, 0.0, 30 + 2), (0, 0.9, 29.9 + 3), (0, 1.9, 29.9 + 4), (1, 0.0, 30 + 4), (1, 0.9, 29.9 + 5)],
)
def test_a_transfer_is_seen_once_a_step(lookahead: int, transfer_ms: float, first_ms: float) -> None:
    """Steps are decided each millisecond from when the first request is there on, and the second one is sent at 29.5 ms. Its
    transfer is posted before the next step, and it joins the one after the step at whose launch the transfer has ended, which
    with a lookahead has been decided by then.
    """
    server = replace(BARE, admission=Admission(lookahead=lookahead))
    found = _fetched(server, [0.0, 0.0285], [100, 2], Decode(1, transfer_ms / MS, post=Post()))
    assert found.stages[1].sent_s * MS == pytest.approx([1.0, 29.5])
    assert found.first_s * MS == pytest.approx([1.0 + transfer_ms + 1.0, first_ms])


def test_posts_come_one_after_the_other() -> None:
    found = _fetched(BARE, [0.0, 0.0, 0.0], [2, 2, 2], Decode(1, post=Post(4e-3)))
    # all arrive at 1 ms: the engine has nothing else to do, so that the three join one step when the last one is posted
    assert found.first_s * MS == pytest.approx([1 + 3 * 4 + 1] * 3)


def test_a_transfer_is_posted_when_the_cache_has_room_for_the_request() -> None:
    server = replace(BARE, admission=Admission(kv_blocks=5))  # a request of 110 tokens needs four
    found = _fetched(server, [0.0, 0.0], [10, 10], Decode(1, transfer_s=2e-3, post=Post(1e-3)))
    first, second = np.sort(found.first_s) * MS
    assert first == pytest.approx(1 + 1 + 2 + 1)
    assert second == pytest.approx(first + 9 + 1 + 2 + 1)


@pytest.mark.parametrize("limit", [{"max_sequences": 1}, {"token_budget": 1}])
def test_a_transfer_is_posted_when_the_step_has_room_for_another_request(limit: dict[str, int]) -> None:
    """Until then vLLM's scheduler does not look at a request, so that its post and transfer come after the wait."""
    deployment = Deployment(
        replace(BARE, admission=Admission(**limit)), replicas=2, decode=Decode(1, transfer_s=2e-3, post=Post(1e-3))
    )
    found = sent(requests([0.0, 0.0035], [1, 1], [10, 2]), deployment)
    first, second = found.first_s * MS
    assert first == pytest.approx(1 + 1 + 2 + 1)
    assert (found.last_s[0] - found.first_s[0]) * MS == pytest.approx(9)
    assert second == pytest.approx(first + 9 + 1 + 2 + 1)


def test_a_step_that_is_full_with_what_was_fetched_posts_nothing() -> None:
    server = replace(BARE, admission=Admission(max_sequences=2))
    found = _fetched(server, [0.0, 0.0, 0.0025], [3, 3, 2], Decode(1, post=Post(2e-3)))
    # the posts of two end at 5 ms, when both are taken with the only places, and the third has arrived
    assert found.first_s * MS == pytest.approx([6, 6, 8 + 2 + 1])
    assert found.last_s * MS == pytest.approx([8, 8, 8 + 2 + 2])


@given(servers, st.integers(1, 40), st.integers(0, 99), st.floats(0, 0.02), st.floats(0, 0.02))
@settings(max_examples=60, deadline=None)
def test_no_request_is_decoded_before_it_is_there_and_none_is_lost(
    server: Server, count: int, seed: int, post_s: float, transfer_s: float
) -> None:
    traffic = poisson(rate=80, requests=count, seed=seed, prompt=50, output=5)
    found = sent(traffic, Deployment(server, 2, decode=Decode(1, transfer_s, post=Post(post_s))))
    assert np.isfinite(found.last_s).all()
    prefilled_s = found.stages[0].last_s
    assert (found.first_s >= prefilled_s + post_s + transfer_s).all()
    assert found.last_s.max() >= prefilled_s.min() + count * post_s  # one host posts them all
