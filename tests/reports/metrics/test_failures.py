"""The share of failed requests, with limits that know whether failures come together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from harness.records.record import Outcome, Record
from reports.metrics.failures import FailedShare, failed_share_of
from reports.metrics.goodput import share_interval
from reports.metrics.requests import Requests

Make = Callable[..., Record]
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
        by_clusters = share_interval(~good)
        if size == 100:
            assert found.interval == by_clusters
        else:
            assert found.interval == pytest.approx((0.0495, 0.1779), abs=1e-3)  # 10 of 99, independent
            assert found.interval != by_clusters


def test_where_no_request_ended_there_is_no_share(make_requests: MakeRequests, answered: Make, failed: Make) -> None:
    assert failed_share_of(make_requests(_run(answered, failed, [None, None]))) is None
    assert failed_share_of(make_requests(_run(answered, failed, [None, True]))) == FailedShare(0, 1, (0.0, 0.975))
