"""The compiled server against the one in Python: the same bits, over random servers, traffic and clients."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import compiled
from simulator.answers import Answers, Decode, Deployment
from simulator.clients import Ceiling, Clients, OpenLoop, Users
from simulator.compiled import compiled_answers
from simulator.routers import Router
from simulator.server import Server
from simulator.simulation import simulate_deployment, simulate_in_python
from simulator.traffic import Traffic
from tests.simulator.known import SERVER, poisson
from tests.simulator.test_simulation import servers

pytest.importorskip("numba", reason="the extra [simulate] is not installed")
pytestmark = pytest.mark.slow  # the first one waits for the compiler
ROUTERS = (Router.RANDOM, Router.ROUND_ROBIN)


@pytest.fixture(autouse=True, scope="module")
def _few_tokens_are_enough() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "FEWEST_TOKENS", 0)
        yield


def _assert_equal(one: Answers, other: Answers) -> None:
    for name in ("sent_s", "first_s", "last_s", "replicas"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
    for name in ("responses", "steps", "engine_busy_s", "front_end_busy_s"):
        assert getattr(one, name) == getattr(other, name), name


_wide = st.builds(
    lambda server, per_context, per_step, launch_noise, free, kv_blocks: replace(
        server,
        admission=replace(server.admission, kv_blocks=kv_blocks),
        law=replace(server.law, prefill_context=per_context, prefill_step=per_step),
        launch_noise=launch_noise,
        front_end=replace(server.front_end, **dict.fromkeys(free, 0.0)),
    ),
    servers,
    st.floats(0, 1e-6),
    st.floats(0, 1e-3),
    st.lists(st.floats(-0.2, 0.2), min_size=1, max_size=70).map(tuple),
    st.sets(st.sampled_from(("delay", "intake", "token", "response"))),
    st.none() | st.integers(40, 80),
)


@st.composite
def _traffics(draw: st.DrawFn) -> Traffic:
    """Requests of which some come at equal times, in any order, with prompts that a cache holds in part or whole."""
    requests = draw(st.integers(1, 120))
    traffic = poisson(draw(st.floats(5, 3_000)), requests, draw(st.integers(0, 99)), prompt=60, output=draw(st.integers(1, 12)))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    arrivals = traffic.arrivals_s
    if draw(st.booleans()):
        arrivals = np.round(arrivals, 2)
    if draw(st.booleans()):
        arrivals = random.permutation(arrivals)
    prefill = (traffic.input_tokens * random.choice((0.0, 0.5, 1.0), requests)).astype(np.int64)
    return replace(traffic, arrivals_s=arrivals, prefill_tokens=prefill)


@settings(max_examples=400)
@given(_wide, _traffics(), st.integers(1, 5), st.sampled_from(ROUTERS), st.integers(0, 99))
def test_open_loops_have_the_same_bits(server: Server, traffic: Traffic, replicas: int, router: Router, seed: int) -> None:
    deployment = Deployment(server, replicas, router)
    found = compiled_answers(deployment, traffic, OpenLoop(traffic.arrivals_s.tolist()), seed)
    assert found is not None
    _assert_equal(found, simulate_in_python(deployment, traffic, OpenLoop(traffic.arrivals_s.tolist()), seed))


@settings(max_examples=100)
@given(_wide, _traffics(), st.integers(1, 3), st.integers(1, 3), st.sampled_from(ROUTERS), st.integers(0, 99))
def test_prefill_and_decode_apart_have_the_same_bits(
    server: Server, traffic: Traffic, prefill: int, decode: int, router: Router, seed: int
) -> None:
    deployment = Deployment(server, prefill, router, decode=Decode(decode, 5e-3, 1e4))
    clients = OpenLoop(traffic.arrivals_s.tolist())
    found = simulate_deployment(deployment, traffic, clients, seed)
    for stage, expected in zip(found.stages, simulate_in_python(deployment, traffic, clients, seed).stages, strict=True):
        _assert_equal(stage, expected)


@settings(max_examples=400)
@given(_wide, _traffics(), st.integers(1, 40), st.none() | st.floats(0.02, 0.5), st.integers(0, 99))
def test_closed_loops_have_the_same_bits(server: Server, traffic: Traffic, users: int, length: float | None, seed: int) -> None:
    starts = sorted(traffic.arrivals_s.tolist())[:users]
    end = np.inf if length is None else starts[-1] + length

    def clients() -> Users:
        return Users(starts, len(traffic), end)

    found = compiled_answers(Deployment(server), traffic, clients(), seed)
    assert found is not None
    _assert_equal(found, simulate_in_python(Deployment(server), traffic, clients(), seed))


def test_long_backlogs_have_the_same_bits() -> None:
    """A front end that is too slow for the engine: what it has not taken outgrows the first rings."""
    slow = replace(SERVER, front_end=replace(SERVER.front_end, response=0.5e-3, token=50e-6))
    traffic = poisson(2_000, 3_000, 1, output=20)
    clients = OpenLoop(traffic.arrivals_s.tolist())
    found = compiled_answers(Deployment(slow), traffic, clients, 1)
    assert found is not None
    _assert_equal(found, simulate_in_python(Deployment(slow), traffic, clients, 1))


@pytest.mark.parametrize(
    ("replicas", "router", "ceiling"),
    [(2, Router.LEAST_OUTSTANDING, None), (2, Router.TWO_CHOICES, None), (1, Router.RANDOM, 9)],
)
def test_what_depends_on_answers_of_others_is_left_to_python(replicas: int, router: Router, ceiling: int | None) -> None:
    traffic = poisson(50, 30, 1)
    arrivals = traffic.arrivals_s.tolist()
    clients: Clients = OpenLoop(arrivals) if ceiling is None else Ceiling(arrivals, ceiling)
    deployment = Deployment(SERVER, replicas, router)
    assert compiled_answers(deployment, traffic, clients, 1) is None
    assert np.isfinite(simulate_deployment(deployment, traffic, clients, 1).last_s).all()


def test_a_numba_that_cannot_be_loaded_is_as_if_it_was_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not know the installed numpy raises ImportError, too."""
    monkeypatch.setitem(sys.modules, "simulator.compiled_server", None)
    compiled.can_compile.cache_clear()
    traffic = poisson(50, 30, 1)
    assert compiled_answers(Deployment(SERVER), traffic, OpenLoop(traffic.arrivals_s.tolist()), 1) is None
    compiled.can_compile.cache_clear()


def test_few_tokens_are_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "FEWEST_TOKENS", 10_000)
    traffic = poisson(50, 30, 1)
    assert compiled_answers(Deployment(SERVER), traffic, OpenLoop(traffic.arrivals_s.tolist()), 1) is None
