"""Nearest-rank percentiles, limits of percentiles and shares, and how many samples a claim about a percentile needs."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reports.statistics.autocorrelation import Interval
from reports.statistics.probability import beta_quantile, binomial_at_most
from reports.statistics.quantile_curve import nearest_rank_of

CONFIDENCE = 0.95  # of the intervals that are printed
SAMPLE_SIZE_CONFIDENCE = 0.99  # of the sample-size guard, MLPerf LoadGen's

LEAST_EFFECT = 0.5  # n values never count for more than 2n
_LARGEST_GROWTH = 4.0  # of the effect, at a limit of twice the percentile or more


def nearest_rank(ordered: NDArray[np.float64], q: float) -> float:
    """The q-quantile of sorted values: ``ordered[ceil(q·n) − 1]``, upstream's rule."""
    return float(ordered[nearest_rank_of(q, ordered.size) - 1])


def percentile_limits(
    ordered: NDArray[np.float64], q: float, effect: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """The lower and upper limit of the q-quantile of sorted values, ``effect`` of which hold as much information as one
    independent value.

    Of n independent values the number at or below the quantile is binomial(n, q), which cuts off ranks at both ends
    (Conover, Practical Nonparametric Statistics, 3.2); of correlated values the ranks are where the limits of a share q of
    n / ``effect`` would be (Woodruff 1952, with the limits of Korn and Graubard 1998), between two ranks in proportion
    (Hettmansperger and Sheather 1986). Like that of a mean, the error grows with the square of the level (``Mean.interval``),
    so each limit is computed with the effect that belongs to its level. A limit beyond the largest value is the largest value.
    """
    estimate = nearest_rank(ordered, q)
    low, high = (_limit(ordered, q, effect, tail) for tail in _tails(confidence))
    if not 0.0 < low <= estimate or not math.isfinite(high):
        return low, high
    for _ in range(2):  # further rounds change little
        lower, higher = (low / estimate) ** 2, min((high / estimate) ** 2, _LARGEST_GROWTH)
        low = min(_limit(ordered, q, max(LEAST_EFFECT, effect * lower), _tails(confidence)[0]), estimate)
        high = max(_limit(ordered, q, effect * higher, _tails(confidence)[1]), estimate)
    return low, high


@lru_cache
def fewest_for_limits(q: float, confidence: float = CONFIDENCE) -> int:
    """The fewest independent values that have a lower and an upper limit of the q-quantile, q ≥ 1/2: 368 for p99 at 95 %.

    With fewer, the largest value is below the quantile too often to be a limit.
    """
    return math.ceil(math.log(_tails(confidence)[0]) / math.log(q))


def share_limits(share: float, independent: float, confidence: float = CONFIDENCE) -> Interval:
    """The limits of a share of values that are worth ``independent`` independent ones: Clopper and Pearson's, as Korn and
    Graubard use them.
    """
    low, high = (_share_limit(share, independent, tail) for tail in _tails(confidence))
    return low, high


def _share_limit(share: float, independent: float, tail: float) -> float:
    above, below = independent * share, independent * (1.0 - share)
    if tail < 0.5:
        return beta_quantile(tail, above, below + 1.0) if above > 0 else 0.0
    return beta_quantile(tail, above + 1.0, below) if below > 0 else 1.0


def _limit(ordered: NDArray[np.float64], q: float, effect: float, tail: float) -> float:
    share = _share_limit(q, ordered.size / effect, tail)
    rank = min(max(ordered.size * share + 0.5, 1.0), float(ordered.size))
    lower, part = float(ordered[math.floor(rank) - 1]), rank % 1.0
    if part == 0.0 or math.isinf(lower):
        return lower
    return lower + part * (float(ordered[math.floor(rank)]) - lower)


def _tails(confidence: float) -> tuple[float, float]:
    return (1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0


@lru_cache
def required_samples(q: float, confidence: float = SAMPLE_SIZE_CONFIDENCE) -> int:
    """The fewest samples that support a claim about the q-quantile: 662 for p99, 6,636 for p99.9 at 99 %.

    It is the smallest n with P(Binomial(n, 1 − q) ≤ 1) ≤ 1 − confidence: MLPerf LoadGen's early stopping with its
    first allowed overlatency sample.
    """
    low, high = 1, 2
    while binomial_at_most(1, high, 1.0 - q) > 1.0 - confidence:
        low, high = high, high * 2
    while low < high:
        middle = (low + high) // 2
        if binomial_at_most(1, middle, 1.0 - q) > 1.0 - confidence:
            low = middle + 1
        else:
            high = middle
    return low
