"""Latencies, some of them with a lower bound in place of a value: those of requests that the client cut off.

A request that was cancelled as planned (--cancel), timed out, or was in flight when the run was stopped has a first token where
one had come, and no end: what it had not reached at the cut took longer than cut − anchor ("right-censored": Klein and
Moeschberger, Survival Analysis, 3.2). To leave such requests out would hide the slowest ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.estimate import Reason
from reports.statistics.percentiles import Distribution, summarise

_NS_PER_MS = 1e6


@dataclass(frozen=True, eq=False)
class CensoredLatencies:
    """Latencies in ms, shape [n], in the order in which their requests were due.

    ``values_ms`` are exact, infinite for requests that the target failed, and lower bounds where ``is_bound``: the latency is
    longer than that. Where there is one for each request, NaN is a request that does not count.
    """

    values_ms: FloatArray
    is_bound: NDArray[np.bool_]

    def of(self, chosen: NDArray[np.bool_]) -> CensoredLatencies:
        """Those ``chosen``, shape [n]."""
        return CensoredLatencies(self.values_ms[chosen], self.is_bound[chosen])

    @property
    def counted(self) -> CensoredLatencies:
        """The latencies of the requests that count."""
        return self.of(~np.isnan(self.values_ms))

    @property
    def slowest_ms(self) -> FloatArray:
        """The slowest that each can have been: infinite where only a bound is known."""
        return np.where(self.is_bound, np.inf, self.values_ms)

    def summary(self, no_interval_reason: Reason | None = None) -> Distribution | None:
        """Their distribution; None where no request has a value or a bound."""
        counted = self.counted
        return summarise(counted.values_ms, no_interval_reason=no_interval_reason, is_bound=counted.is_bound)

    def exceeds(self, limit_ms: float) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which latencies are surely above the limit, and for which that is unknown; shape [n] each."""
        above = np.where(self.is_bound, self.values_ms >= limit_ms, self.values_ms > limit_ms)
        return above, self.is_bound & (self.values_ms < limit_ms)


def latencies_by_request(requests: Requests, ends_ns: FloatArray, anchor_ns: FloatArray) -> CensoredLatencies:
    """End − anchor of every request, shape [requests]; ``ends_ns`` is NaN where a request did not reach that end."""
    values_ms = np.where(requests.done | requests.cut_off, (ends_ns - anchor_ns) / _NS_PER_MS, np.nan)
    values_ms[requests.failed_by_target & ~requests.cut_off] = np.inf
    is_bound: NDArray[np.bool_] = requests.cut_off & np.isnan(values_ms)
    cut_ns = np.where(np.isnan(requests.done_ns), requests.sent_ns, requests.done_ns)
    return CensoredLatencies(np.where(is_bound, (cut_ns - anchor_ns) / _NS_PER_MS, values_ms), is_bound)
