"""Test of the sends against the configured arrival law, and the burstiness of arrivals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.metrics.configuration import Law
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.probability import (
    chi_squared_tail,
    gamma_share,
    kolmogorov_smirnov,
    weibull_share,
    weibull_squared_variation,
)

SIGNIFICANCE = 0.01
_FEWEST_GAPS = 20
_WANDERING_WINDOWS_S = (1.0, 2.5, 5.0, 10.0, 20.0)
_WANDERING_SIGNIFICANCE = 0.001 / len(_WANDERING_WINDOWS_S)  # as in Bonferroni's correction
_FEWEST_WINDOWS = 6
_FEWEST_ARRIVALS_A_WINDOW = 20  # fewer have not the dispersion of many
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
    """Test the gaps between sends against ``law``, at SIGNIFICANCE; None for too few, and where requests are lost, whose sends
    are unknown.

    The wait at the ceiling and the ramp are taken off, since both were configured.
    """
    gaps_s = np.diff(_sends_at_even_rate_ns(requests, law)) / 1e9
    if gaps_s.size < _FEWEST_GAPS or requests.lost.any():
        return None
    if law.name == "constant":
        expected_s = 1.0 / law.rate_per_s
        tolerated_s = max(_CONSTANT_GAP_TOLERANCE * expected_s, _CONSTANT_GAP_FLOOR_S)
        off = float((np.abs(gaps_s - expected_s) > tolerated_s).mean())
        return ArrivalTest(law, gaps_s.size, off, None, off > SIGNIFICANCE)
    share = weibull_share if law.name == "weibull" else gamma_share
    statistic, p_value = kolmogorov_smirnov(share(gaps_s * law.rate_per_s, law.shape))
    return ArrivalTest(law, gaps_s.size, statistic, p_value, p_value < SIGNIFICANCE)


@dataclass(frozen=True, slots=True)
class Wandering:
    """A rate that wanders: counts in windows of ``window_s`` have ``dispersion`` times the variance that the law gives them,
    which chance exceeds with probability ``p_value``.
    """

    window_s: float
    dispersion: float
    p_value: float


def wandering_rate(requests: Requests, law: Law) -> Wandering | None:
    """Whether the rate of the sends wanders over seconds, which a test of single gaps does not see; None where it does not.

    The counts of a renewal process in windows of many arrivals have the variance / mean of a gap's squared coefficient of
    variation (Cox 1962, Renewal Theory, 3.3), so the sum of their squared deviations over it is chi-squared (Cox and Lewis
    1966, dispersion test). The most significant of several windows counts. The wait at the ceiling and the ramp are taken off.
    None for a constant law, too, and where requests are lost.
    """
    if law.name == "constant" or requests.lost.any():
        return None
    times_s = _sends_at_even_rate_ns(requests, law) / 1e9
    found = [test for window_s in _WANDERING_WINDOWS_S if (test := _wandering(times_s, window_s, law)) is not None]
    worst = min(found, key=lambda test: test.p_value, default=None)
    return None if worst is None or worst.p_value >= _WANDERING_SIGNIFICANCE else worst


def squared_variation(law: Law) -> float:
    """The squared coefficient of variation of the law's gaps."""
    return weibull_squared_variation(law.shape) if law.name == "weibull" else 1.0 / law.shape


def _wandering(times_s: FloatArray, window_s: float, law: Law) -> Wandering | None:
    windows = int((times_s[-1] - times_s[0]) / window_s) if times_s.size else 0
    if windows < _FEWEST_WINDOWS or law.rate_per_s * window_s < _FEWEST_ARRIVALS_A_WINDOW:
        return None
    counts = np.histogram(times_s, windows, (times_s[0], times_s[0] + windows * window_s))[0]
    dispersion = float(counts.var(ddof=1)) / (float(counts.mean()) * squared_variation(law))
    return Wandering(window_s, dispersion, chi_squared_tail(dispersion * (windows - 1), windows - 1))


def _sends_at_even_rate_ns(requests: Requests, law: Law) -> FloatArray:
    """The sends in order, shape [sent], without the wait at the ceiling and the ramp."""
    sent_ns = requests.sent_ns - requests.ceiling_wait_ns
    return at_even_rate_ns(np.sort(sent_ns[~np.isnan(sent_ns)]), law.ramp_up_s)


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
