"""Percentiles, their intervals, and how many samples a claim needs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95  # of the intervals that are printed
SAMPLE_SIZE_CONFIDENCE = 0.99  # of the sample-size guard, MLPerf LoadGen's

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Summary of one metric's values, in the values' own unit. Percentiles are nearest-rank.

    ``p99_interval`` is a two-sided order-statistic interval at CONFIDENCE; None where n cannot support one.
    """

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    n: int
    p99_interval: Interval | None
    p99_supported: bool


def summarise(values: NDArray[np.float64]) -> Distribution | None:
    """Summarise ``values``, shape [n]; None when there are none."""
    if values.size == 0:
        return None
    ordered = np.sort(values)
    return Distribution(
        mean=float(ordered.mean()),
        p50=nearest_rank(ordered, 0.50),
        p90=nearest_rank(ordered, 0.90),
        p95=nearest_rank(ordered, 0.95),
        p99=nearest_rank(ordered, 0.99),
        max=float(ordered[-1]),
        n=int(ordered.size),
        p99_interval=percentile_interval(ordered, 0.99),
        p99_supported=ordered.size >= required_samples(0.99),
    )


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
    from scipy.stats import binom

    tail = (1.0 - confidence) / 2.0
    low = int(binom.ppf(tail, ordered.size, q))
    high = int(binom.ppf(1.0 - tail, ordered.size, q)) + 1
    if low < 1 or high > ordered.size:
        return None
    return float(ordered[low - 1]), float(ordered[high - 1])


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
