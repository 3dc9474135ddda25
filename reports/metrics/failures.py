"""The share of requests that the target failed, with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray, known
from reports.statistics.autocorrelation import FEWEST_VALUES, Interval
from reports.statistics.exceedances import interval_of_share_above
from reports.statistics.percentiles import share_limits


@dataclass(frozen=True, slots=True)
class FailedShare:
    """``failed`` of the ``ended`` requests, which are successes and those that the target failed.

    ``interval`` holds the 95 % limits of the share in other runs like this one; None where failures drift or cluster so much
    that there is none.
    """

    failed: int
    ended: int
    interval: Interval | None

    @property
    def value(self) -> float:
        return self.failed / self.ended


def failed_by_request(requests: Requests) -> FloatArray:
    """Shape [requests]: 1 where the target failed a request, 0 of a success, with or without a token, and NaN of any other."""
    return np.where(requests.failed_by_target, 1.0, np.where(requests.done, 0.0, np.nan))


def failed_share_of(requests: Requests) -> FailedShare | None:
    """The share of a run; None where no request ended.

    The interval knows that failures come together; in runs of fewer than 100 requests, where that cannot be seen, it is
    Clopper and Pearson's for independent requests.
    """
    failed = known(failed_by_request(requests))
    if not failed.size:
        return None
    share = float(failed.mean())
    limits = share_limits(share, failed.size) if failed.size < FEWEST_VALUES else interval_of_share_above(failed, 0.0)
    return FailedShare(int(np.count_nonzero(failed)), int(failed.size), limits)
