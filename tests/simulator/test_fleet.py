"""Replicas that fail, and that an autoscaler starts and stops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench_records.record import Outcome
from harness.recording.schedule_summary import user_free_ns
from simulator.answers import Answers, Deployment
from simulator.clients import RETRY_S, Ceiling, OpenLoop, Turns, Users, clients_of
from simulator.fleet import Autoscaler, Failure, Fleet
from simulator.routers import Router
from simulator.server import FrontEnd, Server, StepLaw
from simulator.simulation import simulate_in_python
from simulator.traffic import Traffic
from tests.simulator.known import ONE_AT_A_TIME, SERVER, poisson, sent
from tests.simulator.test_simulation import servers

_failures = st.lists(st.builds(Failure, st.integers(0, 4), st.floats(0, 2), st.none() | st.floats(1e-3, 1)), max_size=4).map(
    tuple
)
_scalers = st.builds(
    Autoscaler,
    target_in_flight=st.floats(0.5, 10),
    min_replicas=st.integers(1, 2),
    max_replicas=st.integers(2, 5),
    interval_s=st.floats(0.02, 0.5),
    startup_s=st.floats(0, 0.5),
    scale_down_after_s=st.floats(0, 0.5),
)


def _even(seconds: float, gap_s: float, tokens: int) -> Traffic:
    count = round(seconds / gap_s)
    ones = np.ones(count, np.int64)
    return Traffic(gap_s * np.arange(count), ones, ones, tokens * ones)


@given(
    servers,
    st.builds(poisson, rate=st.floats(5, 900), requests=st.integers(1, 80), seed=st.integers(0, 9), output=st.just(6)),
    st.integers(1, 2),
    st.sampled_from(Router),
    st.none() | st.integers(1, 30),
    _failures,
    st.none() | _scalers,
)
@settings(max_examples=60, deadline=None)
def test_every_request_is_answered_or_fails_at_a_time_when_a_replica_does(
    server: Server,
    traffic: Traffic,
    replicas: int,
    router: Router,
    ceiling: int | None,
    failures: tuple[Failure, ...],
    scaler: Autoscaler | None,
) -> None:
    deployment = Deployment(server, replicas, router, failures=failures, autoscaler=scaler)
    clients = OpenLoop(traffic.arrivals_s) if ceiling is None else Ceiling(traffic.arrivals_s, ceiling)
    found = sent(traffic, deployment, clients)
    if not deployment.changes:
        assert found.failed_s is None
        return
    assert found.failed_s is not None
    assert found.fleet is not None
    failed = ~np.isnan(found.failed_s)
    assert np.isfinite(found.last_s[~failed]).all()
    assert np.isinf(found.last_s[failed]).all()
    assert (found.replicas[~failed] >= 0).all()
    assert (found.failed_s[failed] >= found.sent_s[failed]).all()
    was_cut = failed & (found.replicas >= 0)
    assert set(found.failed_s[was_cut].tolist()) <= {failure.at_s for failure in failures}
    first = np.where(np.isfinite(found.first_s), found.first_s, 0.0)
    assert (first[failed] <= found.failed_s[failed]).all()
    most = max(replicas, scaler.max_replicas if scaler is not None else 0)
    assert 0 <= found.fleet.least <= found.fleet.mean <= found.fleet.most <= most + len(failures)


@given(servers, st.integers(1, 4), st.sampled_from((Router.ROUND_ROBIN, Router.LEAST_OUTSTANDING, Router.SESSION)))
@settings(max_examples=30, deadline=None)
def test_what_never_changes_is_as_if_it_could_not(server: Server, replicas: int, router: Router) -> None:
    traffic = poisson(200, 60, 1, output=6)
    static = Deployment(server, replicas, router)
    quiet = replace(static, failures=(Failure(0, 1e6),))
    one, other = (simulate_in_python(each, traffic, clients_of(traffic), 3) for each in (static, quiet))
    assert one.last_s.tolist() == other.last_s.tolist()
    assert other.fleet is not None
    assert (other.fleet.least, other.fleet.most) == (replicas, replicas)
    assert other.fleet.replica_s == pytest.approx(replicas * one.last_s.max())


def test_a_failure_takes_what_the_replica_had_and_its_place_is_filled_later() -> None:
    """One request each 10 ms of 15 ms, in turn to two replicas; the second fails at 0.1 s, and is back at 0.2 s."""
    traffic = _even(0.4, 10e-3, 15)
    deployment = Deployment(Server(StepLaw(1e-3)), 2, Router.ROUND_ROBIN, failures=(Failure(1, 0.1005, 0.1),))
    found = sent(traffic, deployment)
    assert found.failed_s is not None
    assert np.flatnonzero(~np.isnan(found.failed_s)).tolist() == [9]  # sent at 90 ms, answered at 105 ms
    assert found.failed_s[9] == 0.1005
    assert np.isfinite(found.first_s[9])
    alone = (traffic.arrivals_s > 0.1005) & (traffic.arrivals_s < 0.2005)
    assert set(found.replicas[alone].tolist()) == {0}
    assert set(found.replicas[traffic.arrivals_s > 0.2005].tolist()) == {0, 2}
    assert found.fleet is not None
    assert (found.fleet.least, found.fleet.most) == (1, 2)
    end = found.last_s[found.were_answered].max()
    assert found.fleet.replica_s == pytest.approx(2 * end - 0.1)


def test_where_no_replica_is_left_requests_fail_at_once() -> None:
    traffic = _even(0.1, 10e-3, 1)
    found = sent(traffic, Deployment(ONE_AT_A_TIME, failures=(Failure(0, 0.0555),)))
    assert found.failed_s is not None
    assert found.failed_s[6:].tolist() == traffic.arrivals_s[6:].tolist()
    assert found.replicas.tolist() == [0] * 6 + [-1] * 4
    assert np.isfinite(found.last_s[:6]).all()


def test_users_retry_as_those_of_a_measurement_do() -> None:
    assert user_free_ns(0, Outcome.CONNECT) == RETRY_S * 1e9
    traffic = replace(_even(0.2, 1e-3, 1), users=1)
    deployment = Deployment(ONE_AT_A_TIME, failures=(Failure(0, 0.0105, 0.25),))
    found = sent(traffic, deployment, Users([0.0], 20))
    assert found.failed_s is not None
    refused = found.sent_s[(found.replicas == -1) & ~np.isnan(found.sent_s)]
    assert np.diff(found.sent_s[10:14]) == pytest.approx([0.5e-3, RETRY_S, RETRY_S])
    assert refused == pytest.approx([0.0105, 0.1105, 0.2105])


def test_turns_after_a_failed_one_are_notsent() -> None:
    traffic = _even(0.03, 10e-3, 5)
    turns = Turns([0.0, None, 20e-3], [None, 0, None], [0.0, 0.0, 0.0])
    found = sent(traffic, Deployment(Server(StepLaw(1e-3)), failures=(Failure(0, 2.5e-3, 1e-3),)), turns)
    assert np.isnan(found.sent_s).tolist() == [False, True, False]
    assert found.were_answered.tolist() == [False, False, True]


def _loop(users: int, scaler: Autoscaler, replicas: int, requests: int = 4_000) -> Answers:
    """A closed loop whose users always have a request in flight, of about 100 ms. Few steps simulate that sooner."""
    traffic = replace(_even(requests * 1e-3, 1e-3, 10), users=users)
    deployment = Deployment(Server(StepLaw(10e-3)), replicas, Router.LEAST_OUTSTANDING, autoscaler=scaler)
    return sent(traffic, deployment, Users([1e-4 * user for user in range(users)], requests))


@pytest.mark.parametrize(("users", "target", "replicas"), [(20, 5.0, 4), (21, 5.0, 4), (23, 5.0, 5), (20, 30.0, 1)])
def test_it_settles_at_the_replicas_whose_mean_load_is_the_target(users: int, target: float, replicas: int) -> None:
    """21 users are within a tenth of four times the target, 23 are not."""
    scaler = Autoscaler(target, 10, interval_s=0.2, startup_s=0.1, scale_down_after_s=0.5)
    found = _loop(users, scaler, 4 if users == 21 else 1)
    late = found.sent_s > 0.7 * np.nanmax(found.sent_s)
    assert len(set(found.replicas[late].tolist())) == replicas


def test_a_new_replica_takes_requests_when_it_has_started_and_counts_from_its_decision() -> None:
    scaler = Autoscaler(5.0, 2, interval_s=0.25, startup_s=0.5, scale_down_after_s=10.0)
    found = _loop(10, scaler, 1)
    assert 0.75 <= found.sent_s[found.replicas == 1].min() < 0.86  # with the next end of an answer
    assert found.fleet is not None
    end = found.last_s.max()
    assert found.fleet.replica_s == pytest.approx(end + (end - 0.25))


def test_a_stopped_replica_answers_what_it_has_and_only_after_the_last_while() -> None:
    """Twenty requests at once, then one each 50 ms: four replicas are wanted, until no look of the last 1 s does."""
    at_s = np.concatenate([np.zeros(20), 0.05 + 0.05 * np.arange(100)])
    ones = np.ones(len(at_s), np.int64)
    scaler = Autoscaler(5.0, 4, interval_s=0.1, startup_s=0.0, scale_down_after_s=1.0)
    traffic = Traffic(at_s, ones, ones, np.where(at_s == 0, 250, 10))
    found = sent(traffic, Deployment(Server(StepLaw(1e-3)), 1, Router.ROUND_ROBIN, autoscaler=scaler))
    assert np.isfinite(found.last_s).all()
    assert set(found.replicas.tolist()) == {0, 1, 2, 3}
    last_sent = found.sent_s[found.replicas == 3].max()
    assert 1.1 < last_sent < 1.4
    assert set(found.replicas[found.sent_s > 1.5].tolist()) == {0}


def test_places_are_filled_from_the_lowest_and_failures_of_empty_ones_are_named() -> None:
    fleet = Fleet(2, (Failure(1, 1.0), Failure(1, 2.0), Failure(0, 3.0, 1.0)), None)
    assert fleet.next_change() == 1.0
    assert fleet.change([1, 1]) == 1
    assert fleet.taking == [0]
    assert fleet.change([1, 0]) is None
    assert fleet.change([1, 0]) == 0
    assert fleet.taking == []
    assert fleet.next_change() == 4.0
    fleet.change([0, 0])
    assert fleet.taking == [2]
    assert fleet.use(5.0).idle == (Failure(1, 2.0),)
    assert fleet.use(5.0).replica_s == pytest.approx(1.0 + 3.0 + 1.0)
    assert (fleet.use(5.0).least, fleet.use(5.0).most) == (0, 2)


def test_a_stopped_replica_that_fails_is_not_replaced() -> None:
    scaler = Autoscaler(10.0, 2, interval_s=1.0, scale_down_after_s=0.0)
    fleet = Fleet(2, (Failure(1, 1.5, 0.2),), scaler)
    fleet.change([0, 5])
    assert fleet.taking == [0]
    assert fleet.change([0, 5]) == 1
    assert fleet.next_change() == 2.0


def test_the_number_that_replicas_are_stopped_to_is_the_highest_of_the_last_while() -> None:
    scaler = Autoscaler(1.0, 9, interval_s=1.0, startup_s=0.0, scale_down_after_s=2.0)
    fleet, there = Fleet(1, (), scaler), []
    for load in (5, 3, 4, 1, 2, 1, 1, 1):
        looked = fleet.next_change()
        fleet.change([load] + [0] * 8)
        while fleet.next_change() == looked:
            fleet.change([])
        there.append(len(fleet.taking))
    assert there == [5, 5, 5, 4, 4, 2, 2, 1]


def test_failures_after_the_end_are_named() -> None:
    failures = (Failure(0, 9.0), Failure(0, 7.0), Failure(0, 0.055, 1e-3))
    found = sent(_even(0.1, 10e-3, 1), Deployment(ONE_AT_A_TIME, failures=failures))
    assert found.fleet is not None
    assert found.fleet.late == (failures[1], failures[0])


def test_the_noise_of_a_replica_is_its_own() -> None:
    deployment = Deployment(replace(SERVER, front_end=FrontEnd()), 1, failures=(Failure(0, 0.5, 0.1),))
    found = sent(_even(1.2, 0.1, 5), deployment)
    times = (found.last_s - found.sent_s)[[0, 6]]
    assert found.replicas[[0, 6]].tolist() == [0, 1]
    assert times[0] != times[1]
