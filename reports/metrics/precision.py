"""Whether a number of a run is as precise as asked, for a run that ends when it is: ``--until 'p99_ttft±5%'``.

The interval is the one that the report shows. A run looks at it after numbers of requests on a geometric grid, at each look by
all requests that were due first, once their answers have ended: those that have ended so far would lack the slowest. The
intervals that end a run are those that are too narrow by chance, so two looks in turn have to be precise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from reports.metrics.metric import Anchored, Latency, Metric
from reports.statistics.estimate import Estimate

FIRST_LOOK = 700  # requests
LOOKS_IN_TURN = 2
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
