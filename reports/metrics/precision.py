"""Whether a number of a run is as precise as requested, for a run that ends when it is: ``--until 'p99_ttft±5%'``.

The interval is the one that the report shows. A run looks at it after numbers of requests on a geometric grid, at each look by
all requests that were due first, once their answers have ended: those that have ended so far would lack the slowest. What ends
a run is then an interval that may be narrow by chance, or may exist by chance. So two looks in turn have to be precise, and
all looks since half of the requests must have had an interval (benchmarks/until_coverage.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from reports.metrics.metric import Anchored, Latency, Metric
from reports.statistics.estimate import Estimate

FIRST_LOOK = 300  # requests
FEWEST = 700  # requests of a run that ends
_IN_TURN = 2
_GROWTH = 1.25
_MARGIN = 0.97  # of the width at a look, so that the whole run, which is a little longer, keeps it


@dataclass(frozen=True, slots=True)
class PrecisionGoal:
    """The mean of a latency, or its ``q``-quantile, is to be known to ± ``share`` of itself."""

    metric: Metric
    q: float | None
    share: float
    name: str

    def __str__(self) -> str:
        return f"{self.name}±{100.0 * self.share:.10g}%"

    def estimate(self, latency: Latency) -> Estimate:
        """The number, of a run's latency from the schedule."""
        found = latency.scheduled if isinstance(latency, Anchored) else latency
        if found is None:
            return Estimate(None)
        return found.mean if self.q is None else found.percentile(self.q)

    def is_met(self, estimate: Estimate, margin: float = _MARGIN) -> bool:
        """Whether the interval is at most twice the share wide."""
        width = half_width(estimate)
        return width is not None and width <= margin * self.share


class LooksInTurn:
    """The looks of a run so far."""

    def __init__(self, goal: PrecisionGoal) -> None:
        self._goal = goal
        self._met_in_turn = 0
        self._known_since: int | None = None  # requests

    def may_end(self, requests: int, estimate: Estimate) -> bool:
        """Take the look at this many ``requests``; returns whether the run may end."""
        if half_width(estimate) is None:
            self._known_since = None
        elif self._known_since is None:
            self._known_since = requests
        self._met_in_turn = self._met_in_turn + 1 if self._goal.is_met(estimate) else 0
        has_lasted = self._known_since is not None and requests >= 2 * self._known_since
        return self._met_in_turn >= _IN_TURN and has_lasted and requests >= FEWEST


def half_width(estimate: Estimate) -> float | None:
    """Half of the interval as a share of the number; None where it has no interval."""
    if estimate.interval is None or not estimate.value:
        return None
    low, high = estimate.interval
    width = (high - low) / 2.0 / estimate.value
    return width if math.isfinite(width) else None


def looks() -> Iterator[int]:
    """The numbers of requests after which a run looks."""
    requests = float(FIRST_LOOK)
    while True:
        yield math.ceil(requests)
        requests *= _GROWTH
