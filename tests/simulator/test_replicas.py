"""Several simulated servers with a router, against theory, and the clients that send to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.answers import Answers, Deployment
from simulator.clients import Ceiling, Clients, OpenLoop, Turns, Users, clients_of
from simulator.routers import Router, chooser, chooser_of_changing
from simulator.server import FrontEnd, Server, StepLaw
from simulator.simulation import simulate, simulate_deployment
from simulator.traffic import Traffic
from tests.simulator.known import ONE_AT_A_TIME, SERVER, poisson
from tests.simulator.test_simulation import servers

MS = 1e3


def _sent(traffic: Traffic, replicas: int, router: Router, server: Server = SERVER, clients: Clients | None = None) -> Answers:
    return simulate_deployment(Deployment(server, replicas, router), traffic, clients or clients_of(traffic), 3)


@given(
    servers,
    st.builds(poisson, rate=st.floats(5, 900), requests=st.integers(1, 80), seed=st.integers(0, 9), output=st.just(6)),
    st.integers(1, 6),
    st.sampled_from(Router),
    st.none() | st.integers(1, 30),
)
@settings(max_examples=40)
def test_every_request_is_answered_once_by_one_replica(
    server: Server, traffic: Traffic, replicas: int, router: Router, ceiling: int | None
) -> None:
    clients = OpenLoop(traffic.arrivals_s) if ceiling is None else Ceiling(traffic.arrivals_s, ceiling)
    answers = _sent(traffic, replicas, router, server, clients)
    assert np.isfinite(answers.last_s).all()
    assert (answers.first_s <= answers.last_s).all()
    assert (answers.sent_s >= traffic.arrivals_s).all()
    assert set(answers.replicas.tolist()) <= set(range(replicas))
    in_flight = np.arange(1, len(traffic) + 1) - np.searchsorted(np.sort(answers.last_s), np.sort(answers.sent_s), side="right")
    assert ceiling is None or in_flight.max() <= ceiling
    if router is Router.ROUND_ROBIN:
        assert np.ptp(np.bincount(answers.replicas, minlength=replicas)) <= 1


@settings(max_examples=15)
@given(servers, st.integers(2, 5), st.integers(0, 9))
def test_replicas_that_share_nothing_are_as_if_each_was_alone(server: Server, replicas: int, seed: int) -> None:
    server = replace(server, noise=(0.0,), launch_noise=(0.0,))
    traffic = poisson(100, 60, seed, output=6)
    answers = _sent(traffic, replicas, Router.RANDOM, server)
    for replica in range(replicas):
        own = answers.replicas == replica
        if own.any():
            lengths = (traffic.prefill_tokens[own], traffic.input_tokens[own], traffic.output_tokens[own])
            alone = simulate(server, Traffic(traffic.arrivals_s[own], *lengths), 0)
            assert alone.last_s.tolist() == answers.last_s[own].tolist()


@pytest.mark.slow
def test_one_sequence_at_a_time_of_geometric_length_waits_as_in_m_m_1() -> None:
    """Many tokens of 1 ms, of geometric number: nearly exponential service, so the time in the system is exponential."""
    load, tokens = 0.6, 30.0
    random = np.random.default_rng(2)
    outputs = random.geometric(1 / tokens, 20_000)
    ones = np.ones(len(outputs), np.int64)
    rate = load / (tokens * 1e-3)
    arrivals = np.cumsum(random.exponential(1 / rate, len(outputs)))
    answers = simulate(ONE_AT_A_TIME, Traffic(arrivals, ones, ones, outputs), 0)
    time = answers.last_s - answers.sent_s
    mean = tokens * 1e-3 / (1 - load)
    assert time.mean() == pytest.approx(mean, rel=0.07)
    assert np.quantile(time, 0.99) == pytest.approx(mean * np.log(100), rel=0.1)
    in_system = np.arange(len(time)) - np.searchsorted(np.sort(answers.last_s), arrivals, side="right")
    assert in_system.mean() == pytest.approx(load / (1 - load), rel=0.1)  # Poisson arrivals see time averages
    assert in_system.mean() == pytest.approx(rate * time.mean(), rel=0.03)  # Little's law


def test_least_outstanding_waits_less_than_two_choices_and_those_less_than_random() -> None:
    ones = np.ones(8_000, np.int64)
    arrivals = np.cumsum(np.random.default_rng(4).exponential(1e-3 / (4 * 0.8), len(ones)))
    traffic = Traffic(arrivals, ones, ones, ones)
    waits = {router: (found.last_s - found.sent_s).mean() - 1e-3 for router in Router for found in [_at(traffic, router)]}
    assert waits[Router.LEAST_OUTSTANDING] < waits[Router.TWO_CHOICES] < 0.7 * waits[Router.RANDOM]
    assert waits[Router.RANDOM] == pytest.approx(0.8e-3 / (2 * 0.2), rel=0.1)  # M/D/1 each: a random split is Poisson


@pytest.mark.parametrize("taking", [(0, 1), (0, 1, 2, 3, 4)])
def test_two_choices_are_different_replicas_each_as_often_as_another(taking: tuple[int, ...]) -> None:
    """As vLLM's and SGLang's routers choose. With two replicas the one with fewer requests gets each."""
    sessions = range(20_000)
    for choose in (
        chooser(Router.TWO_CHOICES, len(taking), sessions, None, 3),
        chooser_of_changing(Router.TWO_CHOICES, sessions, None, 3),
    ):
        loads = list(taking)  # a larger number has more
        chosen = np.array([choose(number, number, loads, taking) for number in sessions])
        shares = np.bincount(chosen, minlength=len(taking)) / len(chosen)
        pairs = len(taking) * (len(taking) - 1) / 2
        expected = [(len(taking) - 1 - replica) / pairs for replica in taking]
        assert shares == pytest.approx(np.array(expected), abs=0.015)
        assert shares[-1] == 0
    alone = chooser_of_changing(Router.TWO_CHOICES, sessions, None, 3)
    assert {alone(number, number, [0], (0,)) for number in range(100)} == {0}


def _at(traffic: Traffic, router: Router) -> Answers:
    return _sent(traffic, 4, router, ONE_AT_A_TIME)


@pytest.mark.slow
@settings(max_examples=8)
@given(servers, st.integers(2, 4), st.floats(0.2, 0.7))
def test_more_replicas_at_as_much_more_rate_answer_alike_behind_a_random_router(
    server: Server, replicas: int, load: float
) -> None:
    """Over runs with seeds of their own, the mean TTFT and E2E latency differ by no more than their errors."""
    closed = simulate(replace(server, noise=(0.0,)), poisson(1e6, 150, 1, prompt=50, output=6, users=8), 0)
    rate = load * 150 / (closed.last_s.max() - closed.sent_s.min())
    means: dict[int, list[tuple[float, float]]] = {1: [], replicas: []}
    for many, found in means.items():
        for seed in range(24):
            traffic = poisson(many * rate, many * 120, 100 * many + seed, prompt=50, output=6)
            answers = simulate_deployment(Deployment(server, many), traffic, clients_of(traffic), seed)
            found.append(((answers.first_s - answers.sent_s).mean(), (answers.last_s - answers.sent_s).mean()))
    one, other = (np.array(found) for found in means.values())
    error = np.sqrt(one.var(axis=0) / len(one) + other.var(axis=0) / len(other))
    assert (np.abs(one.mean(axis=0) - other.mean(axis=0)) < 4.5 * error + 0.02 * one.mean(axis=0)).all()


def test_a_ceiling_keeps_the_order_of_arrival() -> None:
    ones = np.ones(5, np.int64)
    traffic = Traffic(np.array([0.0, 0.1e-3, 0.2e-3, 0.3e-3, 9e-3]), ones, ones, ones)
    answers = _sent(traffic, 1, Router.RANDOM, ONE_AT_A_TIME, Ceiling(traffic.arrivals_s.tolist(), 1))
    assert answers.sent_s * MS == pytest.approx([0.0, 1.0, 2.0, 3.0, 9.0])


def test_users_stop_at_the_end() -> None:
    ones = np.ones(100, np.int64)
    traffic = Traffic(np.zeros(100), ones, ones, ones)
    answers = _sent(traffic, 1, Router.RANDOM, ONE_AT_A_TIME, Users([0.0, 0.5e-3], 100, end_s=10.2e-3))
    sent = np.isfinite(answers.sent_s)
    assert sent.sum() == 12
    assert answers.replicas[~sent].tolist() == [-1] * 88
    assert answers.sent_s[sent].max() < 10.2e-3


def test_a_turn_waits_for_the_answer_before_it() -> None:
    ones = np.ones(4, np.int64)
    traffic = Traffic(np.zeros(4), ones, ones, ones)
    turns = Turns([0.0, None, 50e-3, 2e-3], [None, 0, 1, None], [0.0, 5e-3, 1e-3, 0.0])
    answers = _sent(traffic, 2, Router.ROUND_ROBIN, Server(StepLaw(step=1e-3), front_end=FrontEnd()), turns)
    assert answers.sent_s * MS == pytest.approx([0.0, 6.0, 50.0, 2.0])
