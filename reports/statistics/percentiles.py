"""Summary of one metric's values: mean, nearest-rank percentiles and largest value, with intervals or the reasons for none.

Below it the limits of percentiles and shares, and how many samples a claim about a percentile needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reports.statistics.arrays import finite, shifted_mean
from reports.statistics.autocorrelation import (
    Mean,
    mean_cluster_size,
    mean_of,
    share_of,
    student_to_normal,
)
from reports.statistics.estimate import Cause, Correlated, Estimate, Interval, Reason, TooFew
from reports.statistics.probability import beta_quantile, binomial_at_most
from reports.statistics.quantile_curve import NAMED_PERCENTILES, Curve, curve_of, nearest_rank_of, value_at_rank

CONFIDENCE = 0.95  # of the intervals that are printed
SAMPLE_SIZE_CONFIDENCE = 0.99  # of the sample-size guard, MLPerf LoadGen's
LEAST_EFFECT = 0.5  # n values never count for more than 2n
_LARGEST_GROWTH = 4.0  # of the effect, at a limit of twice the percentile or more
WITH_INTERVAL = (0.50, 0.99, 0.999)  # the percentiles whose interval is computed, since none is shown of the others
_NEEDS_SUPPORT = 0.999
_TAIL = 0.9
_TAIL_EFFECT = 1.25


@dataclass(frozen=True, slots=True)
class Distribution:
    """Summary of one metric's values, in the values' own unit.

    ``n`` counts the values, and ``mean`` is their mean. ``failed`` requests have no value, and count in the
    percentiles as slower than every value: a percentile that falls among them is None, as is ``max``, so that a failure can
    never improve a tail. Only a lower bound is known for ``censored`` requests, which were cut off: percentiles below the
    lowest one are exact, and the mean, ``max`` and percentiles that they decide are None, with a lower bound in their place.
    ``percentiles`` are the nearest-rank p50, p90, p95, p99 and p99.9, by their quantile; p99.9 of too few values for a claim
    has no value. No interval is computed for p90, p95 and such a p99.9; the others allow for correlation between neighbours.
    ``curve`` is the whole distribution, as far as it is exact, for pictures.
    """

    mean: Estimate
    percentiles: Mapping[float, Estimate]
    max: float | None
    n: int
    failed: int
    censored: int = 0
    max_lower_bound: float | None = None
    curve: Curve | None = field(default=None, compare=False, repr=False)

    def percentile(self, q: float) -> Estimate:
        """One of ``percentiles``. Raises KeyError for another quantile."""
        return self.percentiles[q]

    @property
    def p50(self) -> float | None:
        return self.percentile(0.50).value

    @property
    def p90(self) -> float | None:
        return self.percentile(0.90).value

    @property
    def p95(self) -> float | None:
        return self.percentile(0.95).value

    @property
    def p99(self) -> float | None:
        return self.percentile(0.99).value

    def supports(self, q: float) -> bool:
        """Whether there are values enough for a claim about the q-quantile."""
        return self.n + self.censored >= required_samples(q)

    @property
    def bounds(self) -> dict[str, float]:
        """The lower bounds of the numbers of which no more is known, by their names in JSON: "mean", "p99", "max"."""
        percentiles = ((percentile_key(q), percentile.lower_bound) for q, percentile in self.percentiles.items())
        named = [("mean", self.mean.lower_bound), *percentiles]
        return {name: bound for name, bound in (*named, ("max", self.max_lower_bound)) if bound is not None}


def percentile_key(q: float) -> str:
    """ "p50" for 0.5, "p99_9" for 0.999."""
    return f"p{100.0 * q:g}".replace(".", "_")


def summarise(
    series: NDArray[np.float64],
    confidence: float = CONFIDENCE,
    no_interval_reason: Reason | None = None,
    is_bound: NDArray[np.bool_] | None = None,
) -> Distribution | None:
    """Summarise ``series``, shape [n], in the order in which the requests came; None when it has no values.

    A request that failed is infinite; where ``is_bound``, shape [n], the value is larger than the one given. No number has an
    interval where there is a ``no_interval_reason`` outside of the series. Raises nothing; NaN must be left out before.
    """
    ranked = _ranked(series, is_bound)
    ordered = ranked.at_least
    known = int(np.searchsorted(ordered, np.inf))
    if known == 0:
        return None
    long_run = mean_of(series, None if known == series.size else np.isfinite(series))
    value, reason = shifted_mean(ordered[:known]), long_run.no_interval_reason or no_interval_reason
    mean, largest = _sample_mean(value, long_run, confidence, reason), finite(float(ordered[-1]))
    return Distribution(
        mean=mean if ranked.censored == 0 else _as_bound(mean),
        percentiles={q: _percentile(q, ranked, long_run, confidence, reason) for q in NAMED_PERCENTILES},
        max=largest if ranked.censored == 0 else None,
        n=known - ranked.censored,
        failed=int(series.size) - known,
        censored=ranked.censored,
        max_lower_bound=None if ranked.censored == 0 else largest,
        curve=curve_of(ordered[: ranked.exact], int(series.size)) if ranked.exact else None,
    )


def percentile_of(
    series: NDArray[np.float64], q: float, no_interval_reason: Reason | None = None, confidence: float = CONFIDENCE
) -> Estimate:
    """The ``q``-quantile of ``series``, shape [n], n ≥ 1, with its interval, for any quantile; else as ``summarise``.

    Its value is None where it falls among infinite values.
    """
    ranked, finite = _ranked(series, None), np.isfinite(series)
    if not finite.any():
        return ranked.percentile(q)
    mean = mean_of(series, None if finite.all() else finite)
    reason = no_interval_reason or mean.no_interval_reason
    return _with_limits(q, ranked, mean, confidence) if reason is None else replace(ranked.percentile(q), reason=reason)


@dataclass(frozen=True, eq=False)
class _Ranked:
    """A series with its values sorted: once with ``censored`` ones at their bounds, once with those infinite. The first
    ``exact`` values are the same in both.
    """

    series: NDArray[np.float64]
    at_least: NDArray[np.float64]
    at_most: NDArray[np.float64]
    censored: int
    exact: int

    def percentile(self, q: float) -> Estimate:
        low, high = nearest_rank(self.at_least, q), nearest_rank(self.at_most, q)
        return Estimate(finite(low)) if low == high else Estimate(None, lower_bound=low)


def _ranked(series: NDArray[np.float64], is_bound: NDArray[np.bool_] | None) -> _Ranked:
    ordered = np.sort(series)
    if is_bound is None or not is_bound.any():
        return _Ranked(series, ordered, ordered, 0, int(np.searchsorted(ordered, np.inf)))
    at_most = np.sort(np.where(is_bound, np.inf, series))
    exact = int(np.searchsorted(ordered, series[is_bound].min()))
    return _Ranked(series, ordered, at_most, int(np.count_nonzero(is_bound)), exact)


def without_upper_limits(found: Distribution | None, reason_of: Callable[[float], Reason | None]) -> Distribution | None:
    """The distribution without the upper limits of those tails (from p90 on) for which ``reason_of`` the quantile has a reason
    outside of the series; their lower limits stay.
    """
    if found is None:
        return None
    percentiles = {
        q: replace(percentile, interval=None, at_least=percentile.interval[0], reason=reason)
        if percentile.interval is not None and q >= _TAIL and (reason := reason_of(q)) is not None
        else percentile
        for q, percentile in found.percentiles.items()
    }
    return replace(found, percentiles=percentiles)


def _sample_mean(value: float, mean: Mean, confidence: float, reason: Reason | None) -> Estimate:
    if reason is not None:
        return Estimate(value, reason=reason)
    interval = mean.interval(confidence)
    return Estimate(value, interval, Cause.UNEVEN if interval is None else None)


def _as_bound(mean: Estimate) -> Estimate:
    """The mean where some of its values are bounds: of its interval the lower limit holds."""
    at_least = None if mean.interval is None else mean.interval[0]
    return Estimate(None, reason=mean.reason or Cause.CUT_OFF, at_least=at_least, lower_bound=mean.value)


def _percentile(q: float, ranked: _Ranked, mean: Mean, confidence: float, reason: Reason | None) -> Estimate:
    if q == _NEEDS_SUPPORT and mean.n < required_samples(q):
        return Estimate(None)
    if q not in WITH_INTERVAL:
        return ranked.percentile(q)
    if reason is not None:
        return replace(ranked.percentile(q), reason=reason)
    return _with_limits(q, ranked, mean, confidence)


def _with_limits(q: float, ranked: _Ranked, mean: Mean, confidence: float) -> Estimate:
    percentile, series, ordered = ranked.percentile(q), ranked.series, ranked.at_least
    share = share_of(series <= nearest_rank(ordered, q))
    allowed = share.allowed_effect if q < _TAIL else _tail_effect(share.allowed_effect, mean.long_run.allowed_effect)
    effect = max(LEAST_EFFECT, allowed) * student_to_normal(confidence, share.degrees) ** 2
    low, high = percentile_limits(ordered, q, effect, confidence)
    reaches = Cause.AMONG_FAILURES
    if ranked.censored and math.isfinite(high):
        reaches, high = Cause.CUT_OFF, percentile_limits(ranked.at_most, q, effect, confidence)[1]
    shown = share.effect if q < _TAIL else _tail_effect(share.effect, mean.long_run.effect)
    reason = _no_upper_limit_reason(series.size, mean.independent, shown, fewest_for_limits(q, confidence))
    if reason is None and math.isfinite(high) and percentile.value is not None:
        return replace(percentile, interval=(low, high))
    return replace(percentile, at_least=finite(low), reason=reason or reaches)


def _tail_effect(own: float, mean_effect: float) -> float:
    """The design effect of a tail. The largest values come in few clusters, too few to show their whole correlation, so the
    design effect of the mean raises it, by at most a quarter: a choice made by benchmarks/interval_coverage.py.
    """
    return max(own, min(mean_effect, _TAIL_EFFECT * own))


def _no_upper_limit_reason(n: int, independent: float, effect: float, fewest: int) -> Reason | None:
    """Why the largest value may lie below the percentile; None where it lies above, with the certainty that a limit needs.

    Values above a high percentile come in clusters, and the clusters are independent, not the values (Leadbetter 1983).
    """
    if n < fewest:
        return TooFew(n, fewest)
    clusters = min(independent, n / mean_cluster_size(effect))
    return None if clusters >= fewest else Correlated(math.floor(clusters), fewest)


def nearest_rank(ordered: NDArray[np.float64], q: float) -> float:
    """The q-quantile of sorted values: ``ordered[ceil(q·n) − 1]``, upstream's rule."""
    return float(ordered[nearest_rank_of(q, ordered.size) - 1])


def percentile_limits(
    ordered: NDArray[np.float64], q: float, effect: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """The lower and upper limit of the q-quantile of sorted values, ``effect`` of which hold as much information as one
    independent value.

    For n independent values the number at or below the quantile is binomial(n, q), which cuts off ranks at both ends
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
    return value_at_rank(ordered, rank)


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
