"""Prefill and decode on replicas of their own: what each request waits for, and what the stages conserve."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.answers import Decode, Deployment, Post
from simulator.clients import OpenLoop, Users, clients_of
from simulator.hull import extents_of_deployment
from simulator.prefixes import Prefixes
from simulator.routers import Router
from simulator.server import Admission, FrontEnd, Server, StepLaw
from simulator.simulation import simulate_deployment, simulate_in_python
from simulator.traffic import Traffic
from tests.simulator.known import ONE_AT_A_TIME, SERVER, poisson, requests, sent
from tests.simulator.test_simulation import servers

BARE = Server(StepLaw(step=1e-3, prefill=10e-6))
MS = 1e3
_traffic = st.builds(
    poisson,
    rate=st.floats(5, 900),
    requests=st.integers(1, 60),
    seed=st.integers(0, 9),
    prompt=st.just(50),
    output=st.integers(1, 12),
    users=st.none() | st.integers(1, 30),
)
_tokens_per_s = st.none() | st.floats(1e3, 1e6)
_decode = st.builds(
    Decode,
    replicas=st.integers(1, 3),
    transfer_s=st.floats(0, 0.05),
    tokens_per_s=_tokens_per_s,
    post=st.none() | st.builds(Post, st.floats(0, 0.01), _tokens_per_s),
)


def test_a_request_alone_waits_for_its_prefill_its_transfer_and_its_decoding() -> None:
    deployment = Deployment(BARE, decode=Decode(1, transfer_s=5e-3, tokens_per_s=1e5))
    found = sent(requests([1.0], [100], [4]), deployment)
    prefilled, transferred, token = 1.0 + 1.0, 5.0 + 1.0, 1.0
    last_of_prompt = 10e-3  # is computed again
    assert (found.first_s - 1.0) * MS == pytest.approx(prefilled + transferred + last_of_prompt + token)
    assert (found.last_s - found.first_s) * MS == pytest.approx(3 * token)
    assert found.steps == 1 + 4


@given(servers, _traffic, st.integers(1, 3), _decode, st.sampled_from(Router))
@settings(max_examples=60, deadline=None)
def test_every_request_is_prefilled_and_then_decoded_once(
    server: Server, traffic: Traffic, replicas: int, decode: Decode, router: Router
) -> None:
    found = sent(traffic, Deployment(server, replicas, router, decode=decode))
    prefill, decoded = found.stages
    assert np.isfinite(found.last_s).all()
    assert (found.first_s <= found.last_s).all()
    each = 0.0 if decode.tokens_per_s is None else traffic.input_tokens / decode.tokens_per_s
    transferred = decode.transfer_s + each
    assert decoded.sent_s == pytest.approx(prefill.last_s + (transferred if decode.post is None else 0.0))
    assert (decoded.first_s >= prefill.last_s + transferred).all()
    assert (prefill.first_s == prefill.last_s).all()
    assert set(prefill.replicas.tolist()) <= set(range(replicas))
    assert set(decoded.replicas.tolist()) <= set(range(decode.replicas))
    if traffic.users is not None:
        ends = np.sort(found.last_s)
        in_flight = np.arange(1, len(traffic) + 1) - np.searchsorted(ends, np.sort(found.sent_s), side="right")
        assert in_flight.max() <= traffic.users


@given(servers, _traffic, st.integers(1, 3), _decode, st.sampled_from(Router), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_one_stage_after_the_other_is_the_same_as_both_in_the_order_of_time(
    server: Server, traffic: Traffic, replicas: int, decode: Decode, router: Router, seed: int
) -> None:
    deployment = Deployment(server, replicas, router, decode=decode)
    clients = OpenLoop(traffic.arrivals_s.tolist())
    apart, together = (each(deployment, traffic, clients, seed) for each in (simulate_deployment, simulate_in_python))
    for name in ("sent_s", "first_s", "last_s", "replicas"):
        assert getattr(apart, name).tobytes() == getattr(together, name).tobytes(), name
    assert (apart.steps, apart.responses) == (together.steps, together.responses)


def test_a_second_queue_with_the_same_constant_service_is_never_waited_for() -> None:
    """The departures of a constant server are at least its service apart, so the next one is free again for each of them."""
    ones = np.ones(4_000, np.int64)
    arrivals = np.cumsum(np.random.default_rng(4).exponential(1e-3 / 0.8, len(ones)))
    found = sent(Traffic(arrivals, ones, ones, ones), Deployment(ONE_AT_A_TIME, decode=Decode(1)))
    prefill, decoded = found.stages
    assert (decoded.last_s - decoded.sent_s) * MS == pytest.approx(np.ones(4_000))
    wait = (prefill.last_s - prefill.sent_s - 1e-3).mean()
    assert wait == pytest.approx(0.8e-3 / (2 * 0.2), rel=0.12)  # M/D/1


def test_prompts_of_others_do_not_lengthen_the_time_of_a_token() -> None:
    long_prompts = requests([0.0, 0.02, 0.04, 0.06], [10, 5_000, 5_000, 5_000], [100, 2, 2, 2])
    together = sent(long_prompts, Deployment(BARE))
    apart = sent(long_prompts, Deployment(BARE, decode=Decode(1)))
    tokens_ms = [(found.last_s[0] - found.first_s[0]) * MS / 99 for found in (together, apart)]
    assert tokens_ms[1] == pytest.approx(1.0 + 10e-3 / 99)  # the last token of the one that arrives in time
    assert tokens_ms[0] > 2.0


def test_a_step_that_decodes_holds_no_more_tokens_than_its_budget() -> None:
    """Each request that joins computes the last token of its prompt, which counts."""
    traffic = requests([0.0] * 60, [8] * 60, [20] * 60)
    server = replace(BARE, admission=Admission(token_budget=16))
    written: list[int] = []
    found = simulate_deployment(
        Deployment(server, 4, Router.ROUND_ROBIN, decode=Decode(1)),
        traffic,
        clients_of(traffic),
        3,
        lambda round_: written.extend(len(tokens.requests) for tokens in round_.tokens),
    )
    assert max(written) == 16
    assert np.isfinite(found.last_s).all()


def test_the_cache_of_prefixes_is_that_of_the_replicas_that_prefill() -> None:
    traffic = requests([0.0, 1.0], [64, 64], [3, 3])
    traffic = replace(traffic, prefixes=Prefixes([(1, 2), (1, 2)], [32, 32]))
    found = sent(traffic, Deployment(BARE, cache_blocks=10, decode=Decode(1)))
    assert found.cached_tokens.tolist() == [0, 63]
    assert found.first_s[1] - 1.0 < found.first_s[0]


def test_closed_loops_wait_for_what_decodes() -> None:
    traffic = replace(requests([0.0] * 6, [100] * 6, [10] * 6), users=2)
    found = sent(traffic, Deployment(BARE, decode=Decode(2, transfer_s=0.1)), Users([0.0, 0.0], 6))
    assert np.sort(found.sent_s)[2:] == pytest.approx(np.sort(found.last_s)[:4])


def test_the_most_of_any_replica_is_that_of_either_kind() -> None:
    """Two requests a second come to the one that prefills, and one to each of those that decode, which hold them for long."""
    traffic = requests([0.5 * number for number in range(40)], [100] * 40, [400] * 40)
    deployment = Deployment(replace(SERVER, front_end=FrontEnd()), 1, Router.ROUND_ROBIN, decode=Decode(2))
    found = sent(traffic, deployment)
    extents = extents_of_deployment(deployment, traffic, found)
    assert extents["requests a second"] == pytest.approx(2.0, rel=0.05)
    decoded = found.stages[1]
    seconds = decoded.last_s.max() - decoded.sent_s.min()
    assert extents["output tokens a second"] == pytest.approx(20 * 400 / seconds)
    assert extents["prompt tokens of a request"] == 100
    assert extents["tokens of a request"] == 500
