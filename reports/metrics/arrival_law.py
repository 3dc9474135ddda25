"""Whether requests were sent by the law that was asked for, and how bursty they came."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from reports.metrics.asked_load import load_of
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.probability import gamma_share, kolmogorov_smirnov

SIGNIFICANCE = 0.01
_FEWEST_GAPS = 20
_COUNTED_ARRIVALS = 10  # mean of the counts that the index of dispersion is of
_EVEN_GAP_SHARE = 0.1  # a constant gap may be off by this much of itself,
_EVEN_GAP_FLOOR_S = 1e-3  # or this much


@dataclass(frozen=True, slots=True)
class Law:
    """The distribution of gaps that was asked for: "exponential", "gamma" (with ``shape``) or "constant"; the rate rises
    from 0 to what it is over ``ramp_up_s``.
    """

    name: str
    rate_per_s: float
    shape: float = 1.0
    ramp_up_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ArrivalTest:
    """Sent gaps against the law. ``statistic`` is Kolmogorov's and Smirnov's distance; of a constant law, which has no
    distribution to test, the share of gaps that are off, with no ``p_value``.
    """

    law: Law
    gaps: int
    statistic: float
    p_value: float | None
    rejected: bool


def law_of(manifest: dict[str, Any]) -> Law | None:
    """The law that a manifest's options ask for; None where they ask for none, as at -1 or in a closed loop."""
    options = manifest.get("options")
    if not isinstance(options, dict):
        return None
    rate, name = options.get("request_rate"), options.get("time_delay_dist")
    load = load_of(manifest)
    if not isinstance(rate, int | float) or not rate > 0 or load.closed:
        return None
    if name == "gamma_dist":
        return Law("gamma", float(rate), float(options.get("burstiness") or 1.0), load.ramp_up_s)
    names = {"exponential_dist": "exponential", "constant": "constant"}
    return Law(names[name], float(rate), ramp_up_s=load.ramp_up_s) if name in names else None


def check_arrivals(requests: Requests, law: Law) -> ArrivalTest | None:
    """Hold the gaps between sends against ``law``, at SIGNIFICANCE; None for too few.

    A wait at the ceiling is taken off, since it was asked for, and so is the ramp.
    """
    sent_ns = requests.sent_ns - requests.ceiling_wait_ns
    gaps_s = np.diff(at_even_rate_ns(np.sort(sent_ns[~np.isnan(sent_ns)]), law.ramp_up_s)) / 1e9
    if gaps_s.size < _FEWEST_GAPS:
        return None
    if law.name == "constant":
        expected_s = 1.0 / law.rate_per_s
        tolerated_s = max(_EVEN_GAP_SHARE * expected_s, _EVEN_GAP_FLOOR_S)
        off = float((np.abs(gaps_s - expected_s) > tolerated_s).mean())
        return ArrivalTest(law, gaps_s.size, off, None, off > SIGNIFICANCE)
    statistic, p_value = kolmogorov_smirnov(gamma_share(gaps_s * law.rate_per_s, law.shape))
    return ArrivalTest(law, gaps_s.size, statistic, p_value, p_value < SIGNIFICANCE)


def at_even_rate_ns(times_ns: FloatArray, ramp_up_s: float) -> FloatArray:
    """The times at which as many would have come at the full rate from the start: t² / (2 · ramp) for t within the ramp."""
    ramp_ns = ramp_up_s * 1e9
    if not ramp_ns:
        return times_ns
    return np.where(times_ns < ramp_ns, times_ns**2 / (2.0 * ramp_ns), times_ns - ramp_ns / 2.0)


def index_of_dispersion(times_ns: FloatArray) -> float | None:
    """Variance / mean of the counts in equal windows of 10 arrivals on average: 1 for a Poisson process, 0 for even arrivals.

    Cox and Lewis, The Statistical Analysis of Series of Events, 1966. None for fewer than 200 times, or all at once.
    """
    known = times_ns[~np.isnan(times_ns)]
    windows = known.size // _COUNTED_ARRIVALS
    if windows < _FEWEST_GAPS or known.max() == known.min():
        return None
    counts = np.histogram(known, windows)[0]
    return float(counts.var(ddof=1) / counts.mean())
