"""Number of requests in the system over time: the load on the target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.records.record import Outcome
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray

_PARTS = 10
_RISING_PARTS = 0.8  # Spearman's rank correlation of the parts' queue with time
_GROWTH_SHARE = 0.05  # of the arrivals meanwhile
_GROWTH_DEVIATIONS = 3.0  # standard deviations of a count of arrivals


@dataclass(frozen=True, slots=True)
class QueueGrowth:
    """The number of requests in the system in the middle of the sending and at its end, and the arrivals between."""

    in_system_before: float
    in_system_after: float
    arrivals: int

    @property
    def share_left_behind(self) -> float:
        """The share of the arrivals by which the target fell behind."""
        return (self.in_system_after - self.in_system_before) / self.arrivals


def queue_growth(requests: Requests) -> QueueGrowth | None:
    """The growth of the queue in the second half of the sending, where it is significant; else None.

    The first half is left out because every queue fills at first. Requests sent in one burst show no growth.
    """
    known = ~np.isnan(requests.sent_ns) & ~np.isnan(requests.done_ns)
    arrivals_ns = requests.scheduled_ns[known]
    if arrivals_ns.size < 2 * _PARTS or arrivals_ns.max() == arrivals_ns.min():
        return None
    start, end = float(arrivals_ns.min()), float(arrivals_ns.max())
    edges = np.linspace((start + end) / 2, end, _PARTS + 1)
    queue = mean_in_system(arrivals_ns, requests.done_ns[known], edges)
    arrivals = int(np.count_nonzero(arrivals_ns > edges[0]))
    growth = (queue[-1] - queue[0]) * _PARTS / (_PARTS - 1)  # from the middles of the parts to their ends
    if growth < max(_GROWTH_SHARE * arrivals, _GROWTH_DEVIATIONS * np.sqrt(arrivals)):
        return None
    ranks = np.argsort(np.argsort(queue, kind="stable"), kind="stable")
    if np.corrcoef(ranks, np.arange(_PARTS))[0, 1] < _RISING_PARTS:
        return None
    return QueueGrowth(float(queue[0]), float(queue[-1]), arrivals)


def first_user_end_ns(requests: Requests) -> float:
    """The time at which the first user of a closed loop stopped: the end of the first request at whose end none was due.

    A user whose connection was refused is free a little later than its request ended, so such ends do not count.
    """
    ends_ns = requests.done_ns[~np.isnan(requests.done_ns) & (requests.outcome != Outcome.CONNECT.value)]
    return float(ends_ns[~np.isin(ends_ns, requests.scheduled_ns)].min(initial=np.inf))


def mean_in_system(entered_ns: FloatArray, left_ns: FloatArray, edges_ns: FloatArray) -> FloatArray:
    """The time average of the number that had entered and not yet left, between neighbouring edges; shape [edges − 1].

    ``entered_ns`` and ``left_ns`` have shape [n]; a request with an unknown time is left out.
    """
    known = ~np.isnan(entered_ns) & ~np.isnan(left_ns)
    waited = _time_since(entered_ns[known], edges_ns) - _time_since(left_ns[known], edges_ns)
    in_system: FloatArray = np.diff(waited) / np.diff(edges_ns)
    return in_system


def _time_since(events_ns: FloatArray, at_ns: FloatArray) -> FloatArray:
    """Σ max(0, at − event) over all events, for each ``at``."""
    ordered = np.sort(events_ns)
    origin = ordered[0] if ordered.size else 0.0  # sums of offsets, which float64 holds better than sums of clock times
    sums = np.concatenate([[0.0], np.cumsum(ordered - origin)])
    before = np.searchsorted(ordered, at_ns)
    since: FloatArray = before * (at_ns - origin) - sums[before]
    return since
