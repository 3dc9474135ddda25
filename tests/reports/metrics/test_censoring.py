"""Requests that the client cut off: what is known of their latencies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_records.record import Outcome, Record
from reports.metrics.catalogue import E2E, ICL, ITL, TPOT, TTFT
from reports.metrics.censoring import CensoredLatencies, latencies_by_request
from reports.metrics.requests import Requests
from reports.statistics.estimate import Cause, Estimate

Make = Callable[..., Record]
MakeRequests = Callable[[Sequence[Record]], Requests]

_CUT_OFF = (Outcome.WITHDRAWN, Outcome.TIMEOUT, Outcome.CANCELLED)


@pytest.mark.parametrize("outcome", _CUT_OFF)
def test_what_a_request_had_not_reached_when_it_was_cut_off_took_longer(
    make_requests: MakeRequests, answered: Make, failed: Make, outcome: Outcome
) -> None:
    """Scheduled at 10, sent at 15, cut off at 1,010: once with tokens at 40 and 60, once without."""
    requests = make_requests(
        [answered(0, 10, 15, [(40, 1), (60, 1)], done=1_010, outcome=outcome), failed(1, 10, outcome, 15, 1_010)]
    )
    found = TTFT.by_request(requests).counted
    assert (found.values_ms.tolist(), found.is_bound.tolist()) == ([30.0, 1_000.0], [False, True])
    found = E2E.from_anchor(requests, requests.sent_ns).counted
    assert (found.values_ms.tolist(), found.is_bound.tolist()) == ([995.0, 995.0], [True, True])


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.SERVER_ERROR, Outcome.STREAM_CUT, Outcome.MALFORMED])
def test_a_failure_is_slower_than_every_value(
    make_requests: MakeRequests, answered: Make, failed: Make, outcome: Outcome
) -> None:
    requests = make_requests([answered(0, 0, 0, [(40, 1)], outcome=outcome), failed(1, 10, outcome, 15, 30)])
    for found in (metric.by_request(requests).counted for metric in (TTFT, E2E)):
        assert (found.values_ms.tolist(), found.is_bound.tolist()) == ([np.inf] * 2, [False, False])


def test_what_was_not_sent_or_lost_or_has_no_token_does_not_count(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    requests = make_requests(
        [
            failed(0, 0, Outcome.NOT_SENT),
            failed(1, 10, Outcome.CANCELLED),
            failed(2, 20, Outcome.LOST, 20, 50),
            answered(3, 30, 30, []),
            answered(4, 40, 40, [(60, 1)]),
        ]
    )
    for found in (metric.by_request(requests).counted for metric in (TTFT, E2E)):
        assert (found.values_ms.tolist(), found.is_bound.tolist()) == ([20.0], [False])
    of_all = latencies_by_request(requests, requests.first_token_ns, requests.scheduled_ns)
    np.testing.assert_array_equal(of_all.values_ms, [np.nan] * 4 + [20.0])
    assert not of_all.is_bound.any()


def test_a_cut_of_unknown_time_was_after_the_send(make_requests: MakeRequests, failed: Make) -> None:
    requests = make_requests([failed(0, 0, Outcome.CANCELLED, 25)])
    found = TTFT.by_request(requests).counted
    assert (found.values_ms.tolist(), found.is_bound.tolist()) == ([25.0], [True])


def test_a_limit_is_exceeded_surely_or_perhaps() -> None:
    latencies = CensoredLatencies(
        np.array([400.0, 500.0, 500.1, np.inf, 400.0, 500.0, 600.0]), np.array([False] * 4 + [True] * 3)
    )
    above, unknown = latencies.exceeds(500.0)
    assert above.tolist() == [False, False, True, True, False, True, True]
    assert unknown.tolist() == [False] * 4 + [True, False, False]


def test_a_time_per_token_is_exact(make_requests: MakeRequests, answered: Make) -> None:
    found = TPOT.by_request(make_requests([answered(0, 0, 0, [(10, 1), (30, 1)])]))
    for limit_ms, is_above in ((20.0, False), (19.9, True)):
        above, unknown = found.exceeds(limit_ms)
        assert (above.tolist(), unknown.tolist()) == ([is_above], [False])


def test_the_values_of_a_latency_are_those_of_its_distribution(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """Requests count from the schedule, where they have a latency, and gaps between responses one by one."""
    records = [
        answered(0, 0, 5, [(10, 1), (30, 1), (60, 2)]),
        failed(1, 10, Outcome.NOT_SENT),
        failed(2, 20, Outcome.WITHDRAWN, 25, 90),
    ]
    requests = make_requests(records)
    found = {metric: metric.values(requests) for metric in (TTFT, TPOT, ICL, ITL)}
    assert [values.values_ms.tolist() for values in found.values()] == [
        [10.0, 70.0], [pytest.approx(50 / 3)], [20.0, 30.0], [20.0, 15.0, 15.0],
    ]  # fmt: skip
    assert [values.is_bound.tolist() for values in found.values()] == [[False, True], [False], [False] * 2, [False] * 3]


def test_a_summary_counts_the_bounds_and_has_the_reason_for_no_interval_from_outside() -> None:
    """60 values of 1 to 60 ms and 60 bounds of 61 ms and more, beside one request that does not count."""
    order = np.append(np.random.default_rng(1).permutation(120), 120)
    values_ms, is_bound = np.append(np.arange(1.0, 121.0), np.nan), np.append(np.arange(120) >= 60, False)
    found = CensoredLatencies(values_ms[order], is_bound[order]).summary(Cause.FEW_CONVERSATIONS)
    assert found is not None
    assert (found.n, found.censored, found.failed) == (60, 60, 0)
    assert found.percentile(0.5) == Estimate(60.0, reason=Cause.FEW_CONVERSATIONS)
    assert found.percentile(0.99) == Estimate(None, reason=Cause.FEW_CONVERSATIONS, lower_bound=119.0)


@given(st.lists(st.tuples(st.floats(0.1, 1e6), st.floats(0.1, 1e6)), min_size=1), st.floats(0.1, 1e6))
def test_no_true_value_contradicts_what_is_said_of_a_limit(pairs: list[tuple[float, float]], limit_ms: float) -> None:
    """Each latency is cut off where its time to the cut is the shorter one."""
    true, cut = np.array(pairs).T
    is_bound = cut < true
    above, unknown = CensoredLatencies(np.minimum(true, cut), is_bound).exceeds(limit_ms)
    np.testing.assert_array_equal(above[~unknown], (true > limit_ms)[~unknown])
    assert not (unknown & ~is_bound).any()
