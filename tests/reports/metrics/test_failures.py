"""The share of failed requests, with limits that know whether failures come together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from bench_records.record import Outcome, Record
from reports.compare.measures import measure_run
from reports.metrics.failures import SLOWEST_MS, FailedShare, failed_share_of
from reports.metrics.requests import Requests
from reports.run_report import RunReport
from reports.statistics.estimate import Cause, Estimate
from reports.statistics.exceedances import interval_of_share_above
from reports.trend.history import estimates_of

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]
MakeRequests = Callable[[Sequence[Record]], Requests]


def _run(answered: Make, failed: Make, outcomes: Sequence[bool | None]) -> list[Record]:
    """Successes (True), timeouts (False), and requests that were never sent (None)."""
    return [
        failed(k, 10 * k, Outcome.NOT_SENT)
        if good is None
        else answered(k, 10 * k, 10 * k, [(10 * k + 50, 1)])
        if good
        else failed(k, 10 * k, Outcome.TIMEOUT, 10 * k, 10 * k + 90)
        for k, good in enumerate(outcomes)
    ]


def test_a_success_without_a_token_is_a_success(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    records = [answered(0, 0, 0, []), answered(1, 10, 10, [(50, 1)]), failed(2, 20, Outcome.TIMEOUT, 20, 90)]
    found = failed_share_of(make_requests(records))
    assert found is not None
    assert (found.failed, found.ended) == (1, 3)


def test_of_a_few_requests_the_limits_are_clopper_and_pearsons(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """2 of 10: 2.521 % to 55.610 % (tables of the binomial distribution)."""
    outcomes = [True, False, None, *[True] * 7, None, False]
    found = failed_share_of(make_requests(_run(answered, failed, outcomes)))
    assert found == FailedShare(2, 10, pytest.approx((0.02521, 0.55610), abs=1e-5))
    assert found is not None
    assert found.value == 0.2


@pytest.mark.parametrize("together", [False, True])
def test_from_a_hundred_requests_on_the_limits_know_which_came_together(
    make_requests: MakeRequests, answered: Make, failed: Make, together: bool
) -> None:
    for size in (99, 100):
        good = np.ones(size, dtype=bool)
        good[40 : 50 if together else size : 1 if together else 6] = False
        found = failed_share_of(make_requests(_run(answered, failed, good.tolist())))
        assert found is not None
        assert (found.failed, found.ended) == (10, size)
        by_clusters = interval_of_share_above(np.where(good, 50.0, np.inf), SLOWEST_MS)
        if size == 100:
            assert found.interval == by_clusters
        else:
            assert found.interval == pytest.approx((0.0495, 0.1779), abs=1e-3)  # 10 of 99, independent
            assert found.interval != by_clusters


def test_failures_of_whole_conversations_are_less_certain(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    """Three of 50 conversations, with 40 requests each, fail. A request that was not sent does not count."""
    numbers = np.random.default_rng(3).permutation(np.repeat(np.arange(50), 40))
    records = [
        failed(k, k, Outcome.REFUSED, k, k + 1, session=f"{number:02d}")
        if number < 3
        else answered(k, k, k, [(k + 5, 1)], session=f"{number:02d}")
        for k, number in enumerate(numbers.tolist())
    ]
    unsent = failed(2_000, 0, Outcome.NOT_SENT, session="49")
    found = failed_share_of(make_requests([unsent, *records]))
    values_ms = np.where(numbers < 3, np.inf, 5.0)
    assert found is not None
    assert (found.failed, found.ended) == (120, 2_000)
    assert found.interval == interval_of_share_above(values_ms, SLOWEST_MS, groups=numbers)
    alone = interval_of_share_above(values_ms, SLOWEST_MS)
    assert found.interval is not None
    assert alone is not None
    assert found.interval[1] - found.interval[0] > 2 * (alone[1] - alone[0])


def test_requests_that_are_slow_together_show_how_failures_may_come(make_requests: MakeRequests, answered: Make) -> None:
    """None of 2,000 failed, and slow ones lie apart, in fours, or in spells of 40, which may hold the failures of many runs."""
    spells, fours = (
        np.repeat(30.0 * np.random.default_rng(2).lognormal(0.0, 0.5, 2_000 // length), length) for length in (40, 4)
    )
    assert failed_share_of(_answered_in(make_requests, answered, spells)) == FailedShare(0, 2_000, None)
    limits = []
    for took_ms in (np.random.default_rng(2).permutation(fours), fours):
        found = failed_share_of(_answered_in(make_requests, answered, took_ms))
        assert found is not None
        assert found.interval is not None
        assert found.interval[0] == 0.0
        limits.append(found.interval[1])
    assert limits[1] > 1.2 * limits[0]


def _answered_in(make_requests: MakeRequests, answered: Make, took_ms: Sequence[float]) -> Requests:
    return make_requests([answered(k, 10 * k, 10 * k, [(10 * k + ms, 1)]) for k, ms in enumerate(took_ms)])


def test_failures_have_no_interval_where_arrivals_came_in_few_clusters(
    make_requests: MakeRequests, answered: Make, failed: Make
) -> None:
    """However many of the requests ended; and what the share says is why."""
    for size in (99, 200):
        requests = make_requests(_run(answered, failed, [True] * (size - 1) + [False]))
        found = failed_share_of(requests, Cause.CLUSTERED_ARRIVALS)
        assert found == FailedShare(1, size, None, Cause.CLUSTERED_ARRIVALS)
        assert found.estimate == Estimate(1 / size, None, Cause.CLUSTERED_ARRIVALS)
    assert FailedShare(1, 200, None).estimate == Estimate(0.005, None, Cause.CLUSTERED_FAILURES)
    assert FailedShare(1, 200, (0.0, 0.1)).estimate == Estimate(0.005, (0.0, 0.1))


def test_where_no_request_ended_there_is_no_share(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    assert failed_share_of(make_requests(_run(answered, failed, [None, None]))) is None
    assert failed_share_of(make_requests(_run(answered, failed, [None, True]))) == FailedShare(0, 1, (0.0, 0.975))


def test_gates_comparisons_and_trends_mean_the_same_share(make_report: MakeReport, answered: Make, failed: Make) -> None:
    """Among 200 requests 10 failed, and 90 of the successes had no token: 5 %, not 10 of the 110 that have a latency."""
    records = [
        failed(k, 10 * k, Outcome.REFUSED, 10 * k, 10 * k + 1)
        if k % 20 == 0
        else answered(k, 10 * k, 10 * k, [(10 * k + 5, 1)] if k % 2 else [])
        for k in range(200)
    ]
    report = make_report(records)
    assert report.metrics.failed_share is not None
    of_gates, of_trends = report.metrics.failed_share.value, estimates_of(report)["failed_share"].value
    of_comparisons = measure_run(report.requests, streaming=True)["failed_share"].value
    assert of_gates == of_trends == of_comparisons == 0.05


def test_a_timeout_is_a_failure_and_a_cancellation_none(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    kinds = [Outcome.TIMEOUT, Outcome.WITHDRAWN, Outcome.CANCELLED, Outcome.LOST]
    records = [answered(0, 0, 0, [(5, 1)]), *(failed(k, 0, kind, 0, 90) for k, kind in enumerate(kinds, start=1))]
    found = failed_share_of(make_requests(records))
    assert found is not None
    assert (found.failed, found.ended) == (1, 2)
