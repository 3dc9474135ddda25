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
from reports.statistics.autocorrelation import CLUSTERED_ARRIVALS, FEWEST_INDEPENDENT_ARRIVALS, FEWEST_VALUES, mean_of

_CLUSTERED = 3.0  # design effect of the gaps: of independent ones, 0.3 % of runs have more


def clustered_arrivals(requests: Requests, ramp_up_s: float = 0.0, chosen: NDArray[np.bool_] | None = None) -> str | None:
    """``CLUSTERED_ARRIVALS`` where the gaps between arrivals cluster, and are worth less than 200 independent ones; else None.

    Of the ``chosen`` requests, shape [requests], or all; None also of fewer than 100 gaps, and where answers decided when
    requests were due. The worth is by the design effect of the gaps (Kish), without a ramp of the rate over the first
    ``ramp_up_s``. The limits were chosen by benchmarks/interval_coverage.py.
    """
    if not requests.is_open_loop:
        return None
    due_ns = at_even_rate_ns(requests.scheduled_ns, ramp_up_s)
    gaps_ns = np.diff(np.sort(due_ns if chosen is None else due_ns[chosen]))
    if gaps_ns.size < FEWEST_VALUES:
        return None
    effect = mean_of(gaps_ns).long_run.effect
    too_few = effect > _CLUSTERED and gaps_ns.size / effect < FEWEST_INDEPENDENT_ARRIVALS
    return CLUSTERED_ARRIVALS if too_few else None
