"""Percentiles and means, their intervals, and how many samples a claim needs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reports.resampling import BLOCKS, FEWEST_VALUES, Interval, Ratio, Resampled, resample_ratios, student_to_normal

CONFIDENCE = 0.95  # of the intervals that are printed
SAMPLE_SIZE_CONFIDENCE = 0.99  # of the sample-size guard, MLPerf LoadGen's

TOO_FEW = "n too small"
BLOCKS_ALIKE = "drifts, or run too short"
REACHES_FAILURES = "failed"

_FEWEST_EFFECTIVE = 3 * BLOCKS  # with fewer, a block is too short to hold what is correlated
_LEAST_EFFECT = 0.5  # n values never count for more than n, so a smaller one changes nothing
_PERCENTILES = {"p50": 0.50, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Distribution:
    """Summary of one metric's values, in the values' own unit. Percentiles are nearest-rank.

    ``n`` counts the values. Beside them ``failed`` requests have no value, and count in the percentiles as slower than
    every value: a percentile that falls among them is None, as is ``max``, so that a failure can never improve a tail.
    ``mean`` is of the values. Intervals are two-sided at CONFIDENCE and allow for correlation between neighbours; one that
    does not exist is None, and ``reasons`` says why under its name ("mean", "p50", "p99").
    """

    mean: float
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    max: float | None
    n: int
    failed: int
    mean_interval: Interval | None = None
    p50_interval: Interval | None = None
    p99_interval: Interval | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)

    def interval_text(self, name: str) -> str:
        """The interval named "mean", "p50" or "p99" with two decimals, or why there is none."""
        interval = {"mean": self.mean_interval, "p50": self.p50_interval, "p99": self.p99_interval}[name]
        return self.reasons[name] if interval is None else f"{interval[0]:,.2f} – {interval[1]:,.2f}"


def summarise(series: NDArray[np.float64], confidence: float = CONFIDENCE) -> Distribution | None:
    """Summarise ``series``, shape [n], in the order in which the requests came; None when it has no values.

    A request that failed is infinite. Raises nothing; NaN must be left out before.
    """
    ordered = np.sort(series)
    n = int(np.searchsorted(ordered, np.inf))
    if n == 0:
        return None
    p50, p90, p95, p99 = (_finite(nearest_rank(ordered, q)) for q in (0.50, 0.90, 0.95, 0.99))
    intervals, reasons = _intervals(series, ordered, n, confidence)
    return Distribution(
        mean=float(ordered[:n].mean()),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=_finite(float(ordered[-1])),
        n=n,
        failed=int(series.size) - n,
        mean_interval=intervals.get("mean"),
        p50_interval=intervals.get("p50"),
        p99_interval=intervals.get("p99"),
        reasons=reasons,
    )


def nearest_rank(ordered: NDArray[np.float64], q: float) -> float:
    """The q-quantile of sorted values: ``ordered[ceil(q·n) − 1]``, upstream's rule."""
    # q·n first loses its binary dust: 0.07·100 is 7.000000000000001, whose ceiling would be 8
    rank = math.ceil(round(q * ordered.size, 9))
    return float(ordered[max(1, rank) - 1])


def percentile_interval(
    ordered: NDArray[np.float64], q: float, confidence: float = CONFIDENCE, effective_n: float | None = None
) -> Interval | None:
    """Order statistics that hold the true q-quantile with at least ``confidence``, or None when n is too small.

    Of n independent values the number below the quantile is binomial(n, q): the two ranks cut off at most
    (1 − confidence)/2 each (Conover, Practical Nonparametric Statistics, 3.2). For correlated values that tell as much as
    ``effective_n`` independent ones, the ranks are where the limits of a share q of so many would be (Woodruff 1952, with
    the limits of Korn and Graubard 1998), and ``effective_n`` must be enough for independent values.
    """
    ranks = (
        _interval_ranks(ordered.size, q, confidence)
        if effective_n is None
        else _effective_ranks(ordered.size, q, confidence, min(effective_n, ordered.size))
    )
    return None if ranks is None else (float(ordered[ranks[0] - 1]), float(ordered[ranks[1] - 1]))


def _intervals(
    series: NDArray[np.float64], ordered: NDArray[np.float64], n: int, confidence: float
) -> tuple[dict[str, Interval], dict[str, str]]:
    """The intervals that exist, and for the others why they do not."""
    if n < FEWEST_VALUES:
        return {}, dict.fromkeys(("mean", *_PERCENTILES), TOO_FEW)
    below = [series <= nearest_rank(ordered, q) for q in _PERCENTILES.values()]
    resampled = resample_ratios([_mean_ratio(series, n), *((column, None) for column in below)])
    if resampled.blocks_alike:
        return {}, dict.fromkeys(("mean", *_PERCENTILES), BLOCKS_ALIKE)
    mean_effect = _design_effect(resampled, 0, n, float(ordered[:n].var()))
    if n / mean_effect < _FEWEST_EFFECTIVE:
        return {}, dict.fromkeys(("mean", *_PERCENTILES), _as_good_as(n / mean_effect))
    found, reasons = {"mean": _holding(resampled.interval(0, confidence), float(ordered[:n].mean()))}, dict[str, str]()
    for ratio, (name, q) in enumerate(_PERCENTILES.items(), start=1):
        share = float(below[ratio - 1].mean())
        effect = _design_effect(resampled, ratio, series.size, share * (1.0 - share))
        effect = _tail_effect(effect, mean_effect) if name == "p99" else effect
        effective_n = series.size / effect / student_to_normal(confidence) ** 2
        interval = percentile_interval(ordered, q, confidence, effective_n)
        if interval is not None and math.isfinite(interval[1]):
            found[name] = _holding(interval, nearest_rank(ordered, q))
        else:
            reasons[name] = _reason(interval, series.size, q, effective_n, confidence)
    return found, reasons


def _mean_ratio(series: NDArray[np.float64], n: int) -> Ratio:
    if n == series.size:
        return series, None
    succeeded = np.isfinite(series)
    return np.where(succeeded, series, 0.0), succeeded


def _design_effect(resampled: Resampled, ratio: int, n: int, variance: float) -> float:
    """How many correlated values tell as much as one independent value (Kish): Var(mean) · n / Var(value)."""
    if variance == 0:
        return 1.0
    return max(_LEAST_EFFECT, resampled.variance(ratio) * n / variance)


def _tail_effect(own: float, mean_effect: float) -> float:
    """The design effect of a tail. It comes in few clusters, too few to show all of how alike they are, so that of the
    mean raises it, to half as much again at most. How much is a choice made by benchmarks/interval_coverage.py: with less,
    queues' intervals held the truth too seldom; with more, other processes' nearly always.
    """
    return max(own, min(mean_effect, 1.5 * own))


def _reason(interval: Interval | None, n: int, q: float, effective_n: float, confidence: float) -> str:
    if interval is not None:
        return REACHES_FAILURES
    if _interval_ranks(n, q, confidence) is None:
        return TOO_FEW
    return _as_good_as(effective_n)


def _as_good_as(effective_n: float) -> str:
    return f"n as good as {math.floor(effective_n):,}"


def _holding(interval: Interval, estimate: float) -> Interval:
    return min(interval[0], estimate), max(interval[1], estimate)


def _interval_ranks(n: int, q: float, confidence: float) -> tuple[int, int] | None:
    from scipy.stats import binom

    if n < 1:
        return None
    tail = (1.0 - confidence) / 2.0
    low, high = int(binom.ppf(tail, n, q)), int(binom.ppf(1.0 - tail, n, q)) + 1
    return (low, high) if low >= 1 and high <= n else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _effective_ranks(n: int, q: float, confidence: float, effective_n: float) -> tuple[int, int] | None:
    from scipy.stats import beta

    if _interval_ranks(math.floor(effective_n), q, confidence) is None:
        return None
    tail, below, above = (1.0 - confidence) / 2.0, effective_n * q, effective_n * (1.0 - q)
    low = math.floor(n * float(beta.ppf(tail, below, above + 1.0)))
    high = math.ceil(n * float(beta.ppf(1.0 - tail, below + 1.0, above))) + 1
    return (low, high) if low >= 1 and high <= n else None


@lru_cache
def fewest_for_interval(q: float, confidence: float = CONFIDENCE) -> int:
    """The fewest independent values that give the q-quantile an interval: 368 for p99 at 95 %."""
    return next(n for n in itertools.count(1) if _interval_ranks(n, q, confidence) is not None)


@lru_cache
def required_samples(q: float, confidence: float = SAMPLE_SIZE_CONFIDENCE) -> int:
    """The fewest samples that support a claim about the q-quantile: 662 for p99, 6,636 for p99.9 at 99 %.

    It is the smallest n with P(Binomial(n, 1 − q) ≤ 1) ≤ 1 − confidence: MLPerf LoadGen's early stopping with its
    first allowed overlatency sample.
    """
    from scipy.stats import binom

    low, high = 1, 2
    while binom.cdf(1, high, 1.0 - q) > 1.0 - confidence:
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        if binom.cdf(1, middle, 1.0 - q) > 1.0 - confidence:
            low = middle + 1
        else:
            high = middle
    return low
