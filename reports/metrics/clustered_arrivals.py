"""Whether arrivals came in clusters, and in too few of them for an interval of any number that depends on the load.

The client knows when requests were due, whatever the target made of them. Where arrivals cluster, as in traces of real traffic,
the load changes with them, and a run of few clusters may have missed those that decide its tail. A target that was never
crowded shows nothing of it in its latencies.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reports.metrics.arrival_law import at_even_rate_ns
from reports.metrics.requests import Requests
from reports.statistics.autocorrelation import FEWEST_VALUES, mean_of
from reports.statistics.estimate import FEWEST_INDEPENDENT_ARRIVALS, Cause, Reason

_CLUSTERED = 3.0  # independent gaps have a design effect above it in 0.3 % of runs
_HEAVY_TAILED = 9.0  # squared coefficient of variation of the gaps: 1 of exponential ones, 4 of gamma ones with a shape of 1/4


def clustered_arrivals(requests: Requests, ramp_up_s: float = 0.0, chosen: NDArray[np.bool_] | None = None) -> Reason | None:
    """``CLUSTERED_ARRIVALS`` where arrivals cluster, and are worth less than 200 independent ones; else None.

    Only the ``chosen`` requests count, shape [requests], or all; None also for fewer than 100 gaps, and where answers decided
    when requests were due. They cluster where short gaps follow short ones, by the design effect of the gaps (Kish), and where
    few gaps make up most of the time, by their squared coefficient of variation. The variance of the number of arrivals in a
    long time is the product of both (Cox and Lewis 1966, 4.6), small where bursts come at even intervals. A ramp of the rate
    over the first ``ramp_up_s`` does not count. The limits were chosen by benchmarks/interval_coverage.py.
    """
    if not requests.is_open_loop:
        return None
    due_ns = at_even_rate_ns(requests.scheduled_ns, ramp_up_s)
    gaps_ns = np.diff(np.sort(due_ns if chosen is None else due_ns[chosen]))
    if gaps_ns.size < FEWEST_VALUES:
        return None
    gaps = mean_of(gaps_ns)
    effect, variation = gaps.long_run.effect, float(gaps_ns.var()) / gaps.value**2 if gaps.value > 0 else 0.0
    size = effect * (variation if variation > _HEAVY_TAILED else 1.0)
    too_few = size > _CLUSTERED and gaps_ns.size / size < FEWEST_INDEPENDENT_ARRIVALS
    return Cause.CLUSTERED_ARRIVALS if too_few else None
