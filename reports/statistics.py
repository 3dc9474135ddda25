"""Percentiles, their intervals, and how many samples a claim needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95  # of the intervals that are printed
SAMPLE_SIZE_CONFIDENCE = 0.99  # of the sample-size guard, MLPerf LoadGen's

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Summary of one metric's values, in the values' own unit. Percentiles are nearest-rank.

    ``n`` counts the values. Beside them ``failed`` requests have no value, and count in the percentiles as slower than
    every value: a percentile that falls among them is None, as is ``max``, so that a failure can never improve a tail.
    ``mean`` is of the values. ``p99_interval`` is a two-sided order-statistic interval at CONFIDENCE; None where n cannot
    support one, or where it reaches into the failures.
    """

    mean: float
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    max: float | None
    n: int
    failed: int
    p99_interval: Interval | None

    @property
    def p99_interval_text(self) -> str:
        """The interval with two decimals, or why there is none."""
        if self.p99_interval is not None:
            return f"{self.p99_interval[0]:,.2f} – {self.p99_interval[1]:,.2f}"
        if _interval_ranks(self.n + self.failed, 0.99, CONFIDENCE) is None:
            return "n too small"
        return "failed" if self.failed else "–"


def summarise(values: NDArray[np.float64], failed: int = 0) -> Distribution | None:
    """Summarise ``values``, shape [n], beside ``failed`` requests that have none; None when there are no values."""
    if values.size == 0:
        return None
    ordered = np.concatenate([np.sort(values), np.full(failed, np.inf)])
    p50, p90, p95, p99 = (_finite(nearest_rank(ordered, q)) for q in (0.50, 0.90, 0.95, 0.99))
    interval = percentile_interval(ordered, 0.99)
    return Distribution(
        mean=float(values.mean()),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=_finite(float(ordered[-1])),
        n=int(values.size),
        failed=failed,
        p99_interval=None if interval is None or not math.isfinite(interval[1]) else interval,
    )


def summarise_pooled(values: NDArray[np.float64]) -> Distribution | None:
    """Summarise values of which many come from one request: neighbours are alike, so there is no order-statistic interval."""
    distribution = summarise(values)
    return None if distribution is None else replace(distribution, p99_interval=None)


def nearest_rank(ordered: NDArray[np.float64], q: float) -> float:
    """The q-quantile of sorted values: ``ordered[ceil(q·n) − 1]``, upstream's rule."""
    # q·n first loses its binary dust: 0.07·100 is 7.000000000000001, whose ceiling would be 8
    rank = math.ceil(round(q * ordered.size, 9))
    return float(ordered[max(1, rank) - 1])


def percentile_interval(ordered: NDArray[np.float64], q: float, confidence: float = CONFIDENCE) -> Interval | None:
    """Order statistics that hold the true q-quantile with at least ``confidence``, or None when n is too small.

    The number of values below the quantile is binomial(n, q): the two ranks cut off at most (1 − confidence)/2 each
    (Conover, Practical Nonparametric Statistics, 3.2). Assumes independent values.
    """
    ranks = _interval_ranks(ordered.size, q, confidence)
    return None if ranks is None else (float(ordered[ranks[0] - 1]), float(ordered[ranks[1] - 1]))


def _interval_ranks(n: int, q: float, confidence: float) -> tuple[int, int] | None:
    from scipy.stats import binom

    tail = (1.0 - confidence) / 2.0
    low, high = int(binom.ppf(tail, n, q)), int(binom.ppf(1.0 - tail, n, q)) + 1
    return (low, high) if low >= 1 and high <= n else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


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
