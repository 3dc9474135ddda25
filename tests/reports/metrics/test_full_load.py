"""The part of a run under full load, and what the error of a rate takes from it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from bench_records.record import Outcome, Record
from reports.compare.measures import throughput
from reports.compare.single_runs import within_runs
from reports.compare.spread import Spread
from reports.metrics.catalogue import REQUEST_THROUGHPUT
from reports.metrics.clustered_arrivals import clustered_arrivals
from reports.metrics.full_batch import full_batch
from reports.metrics.full_load import FullLoad, full_load
from reports.metrics.output_events import Events, completions, output_tokens
from reports.metrics.requests import Requests

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]

USERS = 40


@pytest.fixture
def closed_loop(make_requests: MakeRequests, answered: Make) -> Callable[..., Requests]:
    """A closed loop of 40 users, whose requests take a lognormal time with a mean of 100 ms."""

    def make(seed: int, requests: int = 800, users: int = USERS) -> Requests:
        times_ms = np.round(np.random.default_rng(seed).lognormal(math.log(100.0) - 0.125, 0.5, requests))
        free_ms, records = [0.0] * users, []
        for k in range(requests):
            due = heapq.heappop(free_ms)
            done = due + max(2.0, float(times_ms[k]))
            records.append(answered(k, due, due, [(done - 1, 1)], done=done))
            heapq.heappush(free_ms, done)
        return make_requests(records)

    return make


def test_the_drain_of_a_closed_loop_begins_with_its_last_request(closed_loop: Callable[..., Requests]) -> None:
    requests = closed_loop(1)
    full = full_load(requests, completions(requests))
    assert full is not None
    assert full.end_ns == requests.sent_ns.max() <= np.sort(requests.done_ns)[-USERS]
    assert full.run_end_ns == requests.done_ns.max()
    assert full.begin_ns == 0.0
    assert full.start_ns >= 0.1 * full.end_ns


def test_too_few_requests_have_no_part_under_full_load(make_requests: MakeRequests, answered: Make) -> None:
    def evenly(count: int) -> Requests:
        return make_requests([answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)]) for k in range(count)])

    assert full_load(evenly(99), completions(evenly(99))) is None
    enough = evenly(150)
    assert full_load(enough, completions(enough)) is not None


def test_a_run_that_mostly_drains_has_no_part_under_full_load(make_requests: MakeRequests, answered: Make) -> None:
    # 200 requests within 2 s, answered one each 20 ms: the drain is half of the run
    requests = make_requests([answered(k, 10 * k, 10 * k, [(20 * k + 19, 1)]) for k in range(200)])
    assert full_load(requests, completions(requests)) is None


def test_the_error_of_a_rate_is_of_the_time_until_the_drain_and_of_the_drain() -> None:
    # ramp until 20, drain from 80 of 100 s on: 60 s of data about 80 s, which are 80 % of the run
    full = FullLoad(begin_ns=0.0, start_ns=20e9, end_ns=80e9, run_end_ns=100e9, drain_deviation_ns=3e9)
    assert full.share_of_run == pytest.approx(0.6)
    assert full.part_in_error == pytest.approx(math.sqrt(60 / 80) * 0.8)
    assert full.drain_error == pytest.approx(0.03)


def test_where_few_answers_are_late_the_error_of_a_difference_is_that_of_a_late_drain(
    make_requests: MakeRequests, answered: Make
) -> None:
    """One answer in fifty takes 60 ms instead of 5 ms: a drain is that long after one send in fifty, of 200 within the load."""
    late = [60 if k % 50 == 25 else 5 for k in range(223)]
    requests = make_requests(
        [answered(k, 100 * k, 100 * k, [(100 * k + ms, 1)], done=100 * k + ms) for k, ms in enumerate(late)]
    )
    full = full_load(requests, completions(requests))
    assert full is not None
    deviation_ms = 55 * math.sqrt(0.02 * 0.98)
    assert full.late_drain_error / full.drain_error == pytest.approx(55 / 2.326348 / deviation_ms, rel=0.02)
    assert throughput(requests, REQUEST_THROUGHPUT).paired_error == full.late_drain_error
    assert throughput(requests, REQUEST_THROUGHPUT).other_error == full.drain_error


def test_a_late_drain_is_no_shorter_than_the_usual_one() -> None:
    full = FullLoad(0.0, 20e9, 80e9, 100e9, drain_deviation_ns=3e9, late_drain_ns=2e9)
    assert full.late_drain_error == full.drain_error == pytest.approx(0.03)


def _open_loop(answered: Make, **fields: Any) -> list[Record]:
    """One request each 10 ms, of which every fifth waits for 30 ms, with 2 tokens."""
    return [
        answered(k, at, at, [(at + wait, 2)], done=at + wait + 1, **fields)
        for k in range(300)
        for at, wait in [(10 * k, 5 if k % 5 else 35)]
    ]


def test_the_error_of_an_open_loops_rate_is_of_what_was_sent(make_requests: MakeRequests, answered: Make) -> None:
    requests = make_requests(_open_loop(answered))
    events, tokens = completions(requests), output_tokens(requests)
    full = full_load(requests, events)
    assert full is not None
    assert tokens is not None
    assert full.open_loop
    sent = Events(requests.sent_ns)
    assert full.chance_per_bin(events, 50).tolist() == sent.per_bin(full.start_ns, full.end_ns, 50).tolist()
    assert full.chance_per_bin(tokens, 50).tolist() == (2 * sent.per_bin(full.start_ns, full.end_ns, 50)).tolist()
    assert full.chance_per_bin(events, 50).tolist() != full.per_bin(events, 50).tolist()
    without = Events(events.times_ns)  # as of goodput, where the times of answers decide what counts
    assert full.chance_per_bin(without, 50).tolist() == full.per_bin(events, 50).tolist()


def test_where_answers_decide_when_requests_are_sent_the_error_of_a_rate_is_of_what_ended(
    make_requests: MakeRequests, answered: Make, closed_loop: Callable[..., Requests]
) -> None:
    burst = make_requests([answered(k, 0, 0, [(9 * k + 1, 1)], done=9 * k + 2) for k in range(300)])
    for requests in (closed_loop(1), make_requests(_open_loop(answered, parent=0)), burst):
        events = completions(requests)
        full = full_load(requests, events)
        assert full is not None
        assert not full.open_loop
        assert full.chance_per_bin(events, 50).tolist() == full.per_bin(events, 50).tolist()


@pytest.mark.parametrize(
    ("due_ms", "open_loop"),
    [
        ([0, 10, 20, 30], False),
        ([0, 1, 10, 11], False),
        ([0, 1, 2, 10], False),  # three users
        ([0, 1, 2, 9], True),
        ([0, 1, 10, 12], True),  # half of them by chance
        ([0, 1, 10, 12, 22], False),
    ],
)
def test_in_a_closed_loop_most_requests_since_the_first_end_are_due_when_another_one_ends(
    make_requests: MakeRequests, answered: Make, due_ms: list[int], open_loop: bool
) -> None:
    """Requests of 10 ms each."""
    requests = make_requests([answered(k, at, at, [(at + 9, 1)], done=at + 10) for k, at in enumerate(due_ms)])
    assert requests.is_open_loop == open_loop


def test_a_request_that_was_not_sent_has_no_end_at_which_another_is_due(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    records = [answered(k, at, at, [(at + 9, 1)], done=at + 10) for k, at in enumerate([0, 1, 10, 12])]
    unsent = failed(4, 40, Outcome.NOT_SENT)
    assert make_requests([*records, unsent]).is_open_loop
    assert make_requests([unsent]).is_open_loop


def test_a_closed_loop_with_fewer_than_two_requests_a_user_is_no_open_loop_whose_arrivals_cluster(
    closed_loop: Callable[..., Requests],
) -> None:
    """All 120 users start at once, and send 30 requests more."""
    requests = closed_loop(1, 150, users=120)
    assert not requests.is_open_loop
    assert clustered_arrivals(requests) is None
    assert full_batch(requests) is None


def test_the_error_of_a_change_in_a_closed_loops_throughput_is_the_spread_of_equal_runs(
    closed_loop: Callable[..., Requests],
) -> None:
    """Ramp and drain, as parts of a series, made the error five times as large."""
    estimates, errors = [], []
    for seed in range(40):
        a, b = (throughput(closed_loop(2 * seed + side), REQUEST_THROUGHPUT) for side in (0, 1))
        estimate = math.log((b.value or 0.0) / (a.value or 1.0))
        spread = within_runs(a, b, estimate)
        if isinstance(spread, Spread):
            estimates.append(estimate)
            errors.append(spread.error)
    assert len(errors) >= 36
    assert 0.8 < float(np.median(errors)) / float(np.std(estimates)) < 1.7
