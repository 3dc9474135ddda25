"""Test of the sends against the configured arrival law, and the burstiness of arrivals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.metrics.configuration import Law
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.probability import gamma_share, kolmogorov_smirnov

SIGNIFICANCE = 0.01
_FEWEST_GAPS = 20
_ARRIVALS_PER_WINDOW = 10  # on average, in the index of dispersion
_CONSTANT_GAP_TOLERANCE = 0.1  # share of a constant gap by which an actual gap may differ
_CONSTANT_GAP_FLOOR_S = 1e-3  # difference that is always tolerated


@dataclass(frozen=True, slots=True)
class ArrivalTest:
    """Sent gaps against the law. ``statistic`` is the Kolmogorov–Smirnov distance; for a constant law, which has no
    distribution to test, it is the share of gaps out of tolerance, and ``p_value`` is None.
    """

    law: Law
    gaps: int
    statistic: float
    p_value: float | None
    rejected: bool


def check_arrivals(requests: Requests, law: Law) -> ArrivalTest | None:
    """Test the gaps between sends against ``law``, at SIGNIFICANCE; None for too few.

    The wait at the ceiling and the ramp are taken off, since both were configured.
    """
    sent_ns = requests.sent_ns - requests.ceiling_wait_ns
    gaps_s = np.diff(at_even_rate_ns(np.sort(sent_ns[~np.isnan(sent_ns)]), law.ramp_up_s)) / 1e9
    if gaps_s.size < _FEWEST_GAPS:
        return None
    if law.name == "constant":
        expected_s = 1.0 / law.rate_per_s
        tolerated_s = max(_CONSTANT_GAP_TOLERANCE * expected_s, _CONSTANT_GAP_FLOOR_S)
        off = float((np.abs(gaps_s - expected_s) > tolerated_s).mean())
        return ArrivalTest(law, gaps_s.size, off, None, off > SIGNIFICANCE)
    statistic, p_value = kolmogorov_smirnov(gamma_share(gaps_s * law.rate_per_s, law.shape))
    return ArrivalTest(law, gaps_s.size, statistic, p_value, p_value < SIGNIFICANCE)


def at_even_rate_ns(times_ns: FloatArray, ramp_up_s: float) -> FloatArray:
    """Times mapped to those of a process at the full rate from the start: t² / (2 · ramp) for t within the ramp."""
    ramp_ns = ramp_up_s * 1e9
    if not ramp_ns:
        return times_ns
    return np.where(times_ns < ramp_ns, times_ns**2 / (2.0 * ramp_ns), times_ns - ramp_ns / 2.0)


def index_of_dispersion(times_ns: FloatArray) -> float | None:
    """Variance / mean of the counts in equal windows of 10 arrivals on average: 1 for a Poisson process, 0 for even arrivals.

    Cox and Lewis, The Statistical Analysis of Series of Events, 1966. None for fewer than 200 times, or all at once.
    """
    known = times_ns[~np.isnan(times_ns)]
    windows = known.size // _ARRIVALS_PER_WINDOW
    if windows < _FEWEST_GAPS or known.max() == known.min():
        return None
    counts = np.histogram(known, windows)[0]
    return float(counts.var(ddof=1) / counts.mean())
