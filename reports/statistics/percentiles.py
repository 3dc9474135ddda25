"""Percentiles and means, their intervals, and how many samples a claim needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reports.statistics.autocorrelation import (
    TOO_FEW,
    TOO_UNEVEN,
    Interval,
    Mean,
    as_good_as,
    mean_of,
    share_of,
    student_to_normal,
)
from reports.statistics.probability import beta_quantile, binomial_at_most
from reports.statistics.quantile_curve import Curve, curve_of, nearest_rank_of

CONFIDENCE = 0.95  # of the intervals that are printed
SAMPLE_SIZE_CONFIDENCE = 0.99  # of the sample-size guard, MLPerf LoadGen's

REACHES_FAILURES = "failed"

_PERCENTILES = {"p50": 0.50, "p99": 0.99, "p99_9": 0.999}
_TAIL = 0.9
_TAIL_EFFECT = 1.25
_LEAST_EFFECT = 0.5  # n values never count for more than 2n
_LARGEST_GROWTH = 4.0  # of the effect, at a limit of twice the percentile or more


@dataclass(frozen=True, slots=True)
class Distribution:
    """Summary of one metric's values, in the values' own unit. Percentiles are nearest-rank.

    ``n`` counts the values. Beside them ``failed`` requests have no value, and count in the percentiles as slower than
    every value: a percentile that falls among them is None, as is ``max``, so that a failure can never improve a tail.
    ``p99_9`` is None also where ``n`` is too small for any claim about it (``supports``).
    ``mean`` is of the values. Intervals are two-sided at CONFIDENCE and allow for correlation between neighbours; one that
    does not exist is None, and ``reasons`` says why under its name ("mean", "p50", "p99", "p99_9"). Where only its upper limit
    cannot be told, the lower one stands in ``at_least`` under the same name.
    ``curve`` is the whole distribution, for pictures.
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
    p99_9: float | None = None
    p99_9_interval: Interval | None = None
    at_least: Mapping[str, float] = field(default_factory=dict)
    curve: Curve | None = field(default=None, compare=False, repr=False)

    def interval_text(self, name: str) -> str:
        """The interval of that name with two decimals, or why there is none, after the lower limit where there is one."""
        interval: Interval | None = getattr(self, f"{name}_interval")
        if interval is not None:
            return f"{interval[0]:,.2f} – {interval[1]:,.2f}"
        return f"≥ {self.at_least[name]:,.2f}; {self.reasons[name]}" if name in self.at_least else self.reasons[name]

    def supports(self, q: float) -> bool:
        """Whether there are values enough for a claim about the q-quantile."""
        return self.n >= required_samples(q)


@dataclass(frozen=True, slots=True)
class _Limits:
    """Intervals, lower limits where there is no upper one, and for what has no interval the reason; by name."""

    intervals: dict[str, Interval] = field(default_factory=dict)
    at_least: dict[str, float] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)


def summarise(series: NDArray[np.float64], confidence: float = CONFIDENCE) -> Distribution | None:
    """Summarise ``series``, shape [n], in the order in which the requests came; None when it has no values.

    A request that failed is infinite. Raises nothing; NaN must be left out before.
    """
    ordered = np.sort(series)
    n = int(np.searchsorted(ordered, np.inf))
    if n == 0:
        return None
    p50, p90, p95, p99 = (_finite(nearest_rank(ordered, q)) for q in (0.50, 0.90, 0.95, 0.99))
    wanted = {name: q for name, q in _PERCENTILES.items() if name != "p99_9" or n >= required_samples(q)}
    limits = _limits(series, ordered, n, wanted, confidence)
    return Distribution(
        mean=float(ordered[:n].mean()),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        p99_9=_finite(nearest_rank(ordered, 0.999)) if "p99_9" in wanted else None,
        max=_finite(float(ordered[-1])),
        n=n,
        failed=int(series.size) - n,
        mean_interval=limits.intervals.get("mean"),
        p50_interval=limits.intervals.get("p50"),
        p99_interval=limits.intervals.get("p99"),
        p99_9_interval=limits.intervals.get("p99_9"),
        reasons=limits.reasons,
        at_least=limits.at_least,
        curve=curve_of(ordered[:n], int(series.size)),
    )


def nearest_rank(ordered: NDArray[np.float64], q: float) -> float:
    """The q-quantile of sorted values: ``ordered[ceil(q·n) − 1]``, upstream's rule."""
    return float(ordered[nearest_rank_of(q, ordered.size) - 1])


def percentile_limits(
    ordered: NDArray[np.float64], q: float, effect: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """The lower and upper limit of the q-quantile of sorted values, of which ``effect`` tell as much as an independent one.

    Of n independent values the number at or below the quantile is binomial(n, q), which cuts off ranks at both ends
    (Conover, Practical Nonparametric Statistics, 3.2); of correlated values the ranks are where the limits of a share q of
    n / ``effect`` would be (Woodruff 1952, with the limits of Korn and Graubard 1998), between two ranks in proportion
    (Hettmansperger and Sheather 1986). Like that of a mean, the error grows with the square of the level (``Mean.interval``):
    what is a limit must be one with the effect that would go with it. A limit beyond the largest value is the largest value.
    """
    estimate = nearest_rank(ordered, q)
    low, high = (_limit(ordered, q, effect, tail) for tail in _tails(confidence))
    if not 0.0 < low <= estimate or not math.isfinite(high):
        return low, high
    for _ in range(2):  # further rounds change little
        lower, higher = (low / estimate) ** 2, min((high / estimate) ** 2, _LARGEST_GROWTH)
        low = min(_limit(ordered, q, max(_LEAST_EFFECT, effect * lower), _tails(confidence)[0]), estimate)
        high = max(_limit(ordered, q, effect * higher, _tails(confidence)[1]), estimate)
    return low, high


@lru_cache
def fewest_for_limits(q: float, confidence: float = CONFIDENCE) -> int:
    """The fewest independent values that have a lower and an upper limit of the q-quantile, q ≥ 1/2: 368 for p99 at 95 %.

    With fewer, the largest value is below the quantile too often to be a limit.
    """
    return math.ceil(math.log(_tails(confidence)[0]) / math.log(q))


def _limits(
    series: NDArray[np.float64], ordered: NDArray[np.float64], n: int, percentiles: Mapping[str, float], confidence: float
) -> _Limits:
    mean = mean_of(series, None if n == series.size else np.isfinite(series))
    found = _Limits()
    if mean.why_not is not None:
        found.reasons.update(dict.fromkeys(("mean", *percentiles), mean.why_not))
        return found
    interval = mean.interval(confidence)
    if interval is None:
        found.reasons["mean"] = TOO_UNEVEN
    else:
        found.intervals["mean"] = interval
    for name, q in percentiles.items():
        _add_percentile(found, name, q, series, ordered, mean, confidence)
    return found


def _add_percentile(
    found: _Limits,
    name: str,
    q: float,
    series: NDArray[np.float64],
    ordered: NDArray[np.float64],
    mean: Mean,
    confidence: float,
) -> None:
    share = share_of(series <= nearest_rank(ordered, q))
    effect = max(_LEAST_EFFECT, share.effect if q < _TAIL else _tail_effect(share.effect, mean.long_run.effect))
    low, high = percentile_limits(ordered, q, effect * student_to_normal(confidence, share.degrees) ** 2, confidence)
    reason = _why_no_upper(series.size, mean.independent, effect, fewest_for_limits(q, confidence))
    if reason is None and math.isfinite(high):
        found.intervals[name] = (low, high)
        return
    found.reasons[name] = reason or REACHES_FAILURES
    if math.isfinite(low):
        found.at_least[name] = low


def _tail_effect(own: float, mean_effect: float) -> float:
    """The design effect of a tail. It comes in few clusters, too few to show all of how alike they are, so that of the
    mean raises it, to a quarter more at most: a choice made by benchmarks/interval_coverage.py.
    """
    return max(own, min(mean_effect, _TAIL_EFFECT * own))


def _why_no_upper(n: int, independent: float, effect: float, fewest: int) -> str | None:
    """Why the largest value may be below the percentile; None where it is above it, as surely as a limit must be.

    Values above a high percentile come in clusters; independent are the clusters, not the values (Leadbetter 1983). Where
    sizes are geometric, as in many queues, the mean size of a cluster is half of the design effect and one more.
    """
    if n < fewest:
        return TOO_FEW
    as_many = min(independent, 2.0 * n / (1.0 + max(1.0, effect)))
    return None if as_many >= fewest else as_good_as(as_many)


def share_limits(share: float, independent: float, confidence: float = CONFIDENCE) -> Interval:
    """The limits of a share of so many independent values, or as good: Clopper and Pearson's, as Korn and Graubard use them."""
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


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


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
