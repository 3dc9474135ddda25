"""The share of requests that the target failed, with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.metrics.censoring import latencies_by_request
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import FEWEST_VALUES
from reports.statistics.estimate import Estimate, Interval, Reason
from reports.statistics.exceedances import interval_of_share_above, share_estimate
from reports.statistics.percentiles import share_limits

SLOWEST_MS = float(np.finfo(np.float64).max)
"""No latency is longer, so that what exceeds it failed."""


@dataclass(frozen=True, slots=True)
class FailedShare:
    """``failed`` of the ``ended`` requests, which are successes and those that the target failed.

    ``interval`` holds the 95 % limits of the share in other runs like this one; None where there is a ``no_interval_reason``,
    or failures drift or cluster so much that there is none.
    """

    failed: int
    ended: int
    interval: Interval | None
    no_interval_reason: Reason | None = None

    @property
    def value(self) -> float:
        return self.failed / self.ended

    @property
    def estimate(self) -> Estimate:
        return share_estimate(self.value, self.interval, self.no_interval_reason)


def failed_by_request(requests: Requests) -> FloatArray:
    """Shape [requests]: 1 where the target failed a request, 0 of a success, with or without a token, and NaN of any other."""
    return np.where(requests.failed_by_target, 1.0, np.where(requests.done, 0.0, np.nan))


def failures_as_slowest_ms(requests: Requests) -> FloatArray:
    """TTFT of each success, in the order in which they were due, 0 without a token, and infinite for each request that the
    target failed: failures cluster as slow requests do, so a run with few failures, or none, shows by its slow requests how
    they may cluster. Only requests that ended count; more than SLOWEST_MS is a failure.
    """
    ttft_ms = latencies_by_request(requests, requests.first_token_ns, requests.scheduled_ns).values_ms
    failed = failed_by_request(requests)
    return np.where(failed > 0, np.inf, np.nan_to_num(ttft_ms))[~np.isnan(failed)]


def conversations_of_ended(requests: Requests) -> NDArray[np.int64]:
    """The conversations of the requests in ``failures_as_slowest_ms``, in the same order."""
    return requests.session_of[~np.isnan(failed_by_request(requests))]


def failed_share_of(requests: Requests, no_interval_reason: Reason | None = None) -> FailedShare | None:
    """The share of a run; None where no request ended. It has no interval where there is a ``no_interval_reason``.

    The interval knows that failures come together; in runs of fewer than 100 requests, where that cannot be seen, it is
    Clopper and Pearson's for independent requests.
    """
    values_ms = failures_as_slowest_ms(requests)
    if not values_ms.size:
        return None
    failed, ended = int(np.count_nonzero(np.isinf(values_ms))), int(values_ms.size)
    if no_interval_reason is not None:
        return FailedShare(failed, ended, None, no_interval_reason)
    if ended < FEWEST_VALUES:
        return FailedShare(failed, ended, share_limits(failed / ended, ended))
    return FailedShare(failed, ended, interval_of_share_above(values_ms, SLOWEST_MS, groups=conversations_of_ended(requests)))
