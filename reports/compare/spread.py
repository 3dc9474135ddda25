"""The error of an estimated difference: of means, and of quantiles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from reports.statistics.arrays import FloatArray
from reports.statistics.probability import student_quantile, student_tail
from reports.statistics.quantile_curve import nearest_rank_of, value_at_rank

CONFIDENCE = 0.95
POWER = 0.80  # probability of detecting the smallest detectable difference

Interval = tuple[float, float]


class Evidence(StrEnum):
    """The source of a difference's error."""

    REQUEST_PAIRS = "requests paired by schedule"
    REQUESTS = "requests within one run each"
    RUN_PAIRS = "runs paired by turn"
    RUNS = "repeated runs"
    SCHEDULES = "repeated runs, each side of schedules of its own"

    @property
    def single_starts(self) -> bool:
        """Whether it comes from one run each, without the variation from one start of a server to the next."""
        return self in (Evidence.REQUESTS, Evidence.REQUEST_PAIRS)


@dataclass(frozen=True, slots=True)
class Spread:
    """An estimated difference B − A (of logarithms, if the measure is relative), its standard error and degrees of freedom."""

    estimate: float
    error: float
    freedom: float
    evidence: Evidence

    @property
    def p_value(self) -> float:
        """Two-sided; 1 where there is no difference at all, 0 where a difference has no error."""
        return _p_value(self.estimate, self.error, self.freedom)

    def interval(self, confidence: float) -> Interval:
        half = student_quantile((1.0 + confidence) / 2.0, self.freedom) * self.error
        return self.estimate - half, self.estimate + half

    def smallest_shown(self, significance: float) -> float:
        """The difference that a test at ``significance`` detects with probability POWER."""
        return detectable_errors(significance, self.freedom) * self.error


@dataclass(frozen=True, eq=False)
class QuantileSpread:
    """An estimated difference of two runs' ``q``-quantiles, on the scale of logarithms.

    Equal quantiles are tested by how many requests of each run exceed one common threshold, the quantile of both runs together
    (Mood's test, 1954, with the error of correlated shares), and the interval holds the changes that this test does not reject.
    So there is no density to estimate, and a quantile that lies on a jump of the distribution has the wide interval that it
    needs. ``a`` and ``b`` are the sorted logarithms of the latencies, infinite for failures. ``excess`` is the share of B above
    the threshold less that of A, ``expected`` what the lengths of the requests explain of it, and ``share_error`` its error.
    """

    q: float
    a: FloatArray
    b: FloatArray
    excess: float
    expected: float
    share_error: float
    freedom: float
    evidence: Evidence

    @property
    def estimate(self) -> float:
        """log(B / A), without the part that lengths explain."""
        return self._change_at(self.expected)

    @property
    def error(self) -> float:
        """The standard error of the estimate: half the interval over Student's t; infinite where a limit is unknown."""
        low, high = self.interval(CONFIDENCE)
        half = student_quantile((1.0 + CONFIDENCE) / 2.0, self.freedom)
        return (high - low) / 2.0 / half

    @property
    def p_value(self) -> float:
        """Two-sided; 1 where there is no difference at all, 0 where a difference has no error."""
        return _p_value(self.excess - self.expected, self.share_error, self.freedom)

    def interval(self, confidence: float) -> Interval:
        half = student_quantile((1.0 + confidence) / 2.0, self.freedom) * self.share_error
        return self._change_at(self.expected + half), self._change_at(self.expected - half)

    def smallest_shown(self, significance: float) -> float:
        """The difference that a test at ``significance`` detects with probability POWER; infinite where none is."""
        shift = detectable_errors(significance, self.freedom) * self.share_error
        low, high = self._change_at(self.expected + shift), self._change_at(self.expected - shift)
        return max(high - self.estimate, self.estimate - low)

    def _change_at(self, excess: float) -> float:
        """The change of B by which the excess, at the common threshold, would be 0 from what it is now: ``excess`` is what
        is taken off. The thresholds keep the share (1 − q) of both runs together.
        """
        total = self.a.size + self.b.size
        in_a = _order_statistic(self.a, self.q, excess * self.b.size / total)
        in_b = _order_statistic(self.b, self.q, -excess * self.a.size / total)
        if math.isinf(in_a) and math.isinf(in_b):
            return math.inf if excess < 0 else -math.inf
        return in_b - in_a


def _order_statistic(ordered: FloatArray, q: float, beyond: float) -> float:
    """The value that ``beyond``, a share of the values, lies after the nearest-rank ``q``-quantile, between two order
    statistics in proportion; infinite outside of the values.
    """
    rank = nearest_rank_of(q, ordered.size) + ordered.size * beyond
    if rank < 1.0:
        return -math.inf
    return math.inf if rank > ordered.size else value_at_rank(ordered, rank)


def detectable_errors(significance: float, freedom: float) -> float:
    """The standard errors of a difference that a two-sided test at ``significance`` detects with probability POWER."""
    return sum(student_quantile(p, freedom) for p in (1.0 - significance / 2.0, POWER))


def _p_value(difference: float, error: float, freedom: float) -> float:
    if error == 0:
        return 1.0 if difference == 0 else 0.0
    return 2.0 * student_tail(abs(difference) / error, freedom)


def common_threshold(a: FloatArray, b: FloatArray, q: float) -> float:
    """The ``q``-quantile of two sorted samples together."""
    together = np.concatenate([a, b])
    rank = nearest_rank_of(q, together.size) - 1
    return float(np.partition(together, rank)[rank])
