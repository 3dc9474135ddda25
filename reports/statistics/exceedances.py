"""The share of requests above a limit over runs like this one: its limits, and how surely it is at most a given share.

A limit on a percentile is a limit on a share: p99 is at most 500 ms where at most 1 % of the requests take longer. The share
needs no latency of that rank: a run without a request above the limit is evidence, too.

Requests above a high limit come in clusters, and the clusters are independent, not the requests (Leadbetter 1983). Where sizes
are geometric, as in many queues, the number above is Pólya and Aeppli's (a Poisson number of clusters: Johnson, Kemp and Kotz,
*Univariate Discrete Distributions*, 9.7), with a mean size by Kish's design effect. A limit that few or no requests exceed
shows no clusters, so the effect is that of the run's own largest values: the allowed share of them, and 2.5 times as many. How
far the estimate of the effect may be off is that of a variance with _DEGREES of freedom.

Where the limit is far above the run's own values, how fast their tail falls says more than their number: the excesses over a
level are exponential, or shorter, in most queues (peaks over a threshold: Davison and Smith 1990, "Models for exceedances over
high thresholds"). All choices were made by benchmarks/gate_honesty.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from reports.statistics.arrays import FloatArray
from reports.statistics.autocorrelation import FEWEST_VALUES, mean_cluster_size, mean_of, mean_over_groups, share_of
from reports.statistics.estimate import Cause, Estimate, Interval, Reason
from reports.statistics.percentiles import CONFIDENCE

MARKOV = 20.0
"""What cannot be negative is 20 times its mean, or more, with a probability of at most 5 % (Markov)."""

_LEVELS = (1.0, 2.5)  # times the allowed share: the largest values whose clusters are measured
_LOWER_LEVELS = (5.0, 10.0)  # further ones, which count against a failure
_RARE = 0.1  # shares up to this are those of clusters; larger ones are binomial with the effective number
_LARGEST_LEVEL = 0.5
_SMALLEST_LEVEL = 0.01  # near which the clusters of a rarer share are measured
_MANY_ABOVE = 100  # values that may be above the limit; of fewer, the clusters that a run cannot show decide little
_SOME_ABOVE = 30  # from which on the level with the largest clusters counts
_SEVERAL_ABOVE = 20  # values above the limit, from which on they show clusters of their own
_FEWEST_CLUSTERS = 5.0  # from which a share is at least what it seems: fewer may be the one event of many runs
_TAIL_LEVEL = 20.0  # times the allowed share: the largest values, from which the tail is known
_TAIL_ERROR = 0.05
_FEWEST_TAIL_CLUSTERS = 5.0  # above that level: a queue that grows slowly has fewer, whose excesses are no sample of the next
_MANY_TAIL_CLUSTERS, _OF_FEW_CLUSTERS = 10.0, 100.0  # fewer may be a hundred times as far off, beside their number's error
_DEGREES = 10
_NODES = 9  # quantiles of the effect over which a probability is averaged
_NORMAL_TAIL = 9.0  # standard deviations, beyond which a Poisson number is not
_STEPS = 40  # of bisection
_WIDEST = 30.0  # range of a number of requests, end over start
_SIZES = 60  # of runs that are tried, in equal ratios


@dataclass(frozen=True, slots=True)
class Exceedances:
    """``above`` of ``n`` values exceed a limit. ``effect`` is the design effect of the requests above it, for the share's upper
    limit, and ``lower_effect`` for the lower one.
    """

    n: int
    above: int
    effect: float
    lower_effect: float

    @property
    def share(self) -> float:
        return self.above / self.n

    def at_most(self, share: float) -> float:
        """The probability of so few values above, or fewer, where the true share is ``share``, 0 < share < 1."""
        return _averaged(_few_above, self.above, self.n, share, self.effect)

    def at_least(self, share: float) -> float:
        """The probability of this many values above, or more, where the true share is ``share``, 0 < share < 1; 1 where a rare
        share is that of few clusters.
        """
        if self.above < _fewest_above(share, self.lower_effect):
            return 1.0
        return _averaged(_many_above, self.above, self.n, share, self.lower_effect)

    def limits(self, tail: float) -> tuple[float, float]:
        """The lower and the upper limit of the share, each wrong with probability ``tail``."""
        return self.lower_limit(tail), self.upper_limit(tail)

    def lower_limit(self, tail: float) -> float:
        return max(_first_where(lambda share: self.at_least(share) >= tail, 0.0, self.share), self.share / MARKOV)

    def upper_limit(self, tail: float) -> float:
        return _first_where(lambda share: self.at_most(share) <= tail, self.share, 1.0)

    def deciding(self, allowed: float, passes: float, fails: float, most: int) -> tuple[int, int | None] | None:
        """How many values would decide whether the share is at most ``allowed``, 0 < allowed < 1, were the process as it seems.

        The range is over what the effect and the share may be; its end is None above ``most`` and where it says nothing, and
        the range where its start is above. ``passes`` and ``fails`` are the probabilities below which the opposite is excluded.
        """
        likely = self.limits(0.25)
        farther = likely[0] if self.share <= allowed else likely[1]
        closer = likely[1] if self.share <= allowed else likely[0]
        largest, smallest = _effect_ratios()[1], _effect_ratios()[-2]
        typical = replace(self, effect=min(self.effect, self.lower_effect))
        least = typical._deciding(farther, smallest, (allowed, passes, fails), most)
        if least is None:
            return None
        same_side = (closer <= allowed) == (self.share <= allowed)
        end = self._deciding(closer, largest, (allowed, passes, fails), most) if same_side else None
        return least, None if end is None or end > _WIDEST * least else end

    def _deciding(self, share: float, ratio: float, claim: tuple[float, float, float], most: int) -> int | None:
        allowed, passes, fails = claim
        effect, lower_effect = (1.0 + (shown - 1.0) * ratio for shown in (self.effect, self.lower_effect))
        fewest = _fewest_above(allowed, lower_effect)
        for n in np.geomspace(self.n, most, _SIZES):
            above, size = share * n, int(n)
            if share <= allowed and _few_above(above, size, allowed, effect) <= passes:
                return size
            if share > allowed and above >= fewest and _many_above(above, size, allowed, lower_effect) <= fails:
                return size
        return None


def exceedances(values: FloatArray, limit: float, allowed: float, groups: NDArray[np.int64] | None = None) -> Exceedances:
    """How many ``values``, shape [n], n ≥ 1, in the order in which they came, are above ``limit``; the clusters are those near
    the ``allowed`` share, 0 < allowed < 1. Infinite values are above every limit. Values of one of the ``groups``, numbered in
    shape [n], may be alike as long as the run lasts; -1 belongs to none.
    """
    above = values > limit
    n, count = int(values.size), int(np.count_nonzero(above))
    if n < FEWEST_VALUES:
        return Exceedances(n, count, 1.0, 1.0)
    near, wider = (_effects(values, tuple(ratio * allowed for ratio in ratios)) for ratios in (_LEVELS, _LOWER_LEVELS))
    grouped = _between(values, limit, allowed, groups)
    effect = near.between
    if allowed * n >= _SOME_ABOVE:
        at_limit = _Effect.of(above) if count >= _SEVERAL_ABOVE else _Effect(1.0, 1.0)
        many = allowed * n >= _MANY_ABOVE
        effect = max(level.allowed if many else level.between for level in (*near.levels, at_limit))
    return Exceedances(n, count, max(grouped, effect), max(grouped, near.between, wider.between if allowed <= _RARE else 1.0))


@dataclass(frozen=True, slots=True)
class Tail:
    """A ``share`` of ``n`` values is above a level that is ``distance`` below a limit, by ``excess`` on average; ``shown`` is
    their design effect in this run, and ``allowed`` that which slow changes allow for.
    """

    n: int
    share: float
    excess: float
    distance: float
    shown: float
    allowed: float

    @property
    def above_limit(self) -> float:
        """The upper limit of the share above the limit, were the excesses exponential: both their mean and the share above the
        level are at their own upper limits, for as many independent values as there are clusters; a hundred times that of
        fewer than ten clusters, and 1 of fewer than five.
        """
        return self._above_limit(self.n, self.allowed)

    def deciding(self, share: float, most: int) -> tuple[int, int | None] | None:
        """How many values would leave at most ``share`` above the limit, were the process as it seems: with the clusters that
        the run shows, and with those that slow changes allow for. None above ``most``.
        """
        least, largest = (self._deciding(share, effect, most) for effect in (self.shown, self.allowed))
        return None if least is None else (least, largest)

    def _deciding(self, share: float, effect: float, most: int) -> int | None:
        sizes = np.geomspace(self.n, max(self.n, most), _SIZES)
        return next((int(n) for n in sizes if self._above_limit(n, effect) <= share), None)

    def _above_limit(self, n: float, effect: float) -> float:
        from scipy.special import chdtri

        clusters = n * self.share / mean_cluster_size(effect)
        if clusters < _FEWEST_TAIL_CLUSTERS:
            return 1.0
        share = self.share * float(chdtri(2.0 * clusters + 2.0, _TAIL_ERROR)) / (2.0 * clusters)
        excess = self.excess * 2.0 * clusters / float(chdtri(2.0 * clusters, 1.0 - _TAIL_ERROR))
        factor = 1.0 if clusters >= _MANY_TAIL_CLUSTERS else _OF_FEW_CLUSTERS
        return min(1.0, factor * share * math.exp(-self.distance / excess)) if excess > 0.0 else 0.0


def tail_below(values: FloatArray, limit: float, allowed: float, groups: NDArray[np.int64] | None = None) -> Tail | None:
    """The tail of ``values`` above the level that 20 times the ``allowed`` share of them exceed, half of them at most.

    Arguments are those of ``exceedances``. None of fewer than 100 values, where that level is not below the ``limit``, and
    where some values are infinite.
    """
    above = _largest(values, min(_TAIL_LEVEL * allowed, _LARGEST_LEVEL))
    level = float(values[~above].max()) if not above.all() else float(values.min())
    excess = float(values[above].mean()) - level
    if values.size < FEWEST_VALUES or level >= limit or not math.isfinite(excess):
        return None
    effect = _Effect.of(above)
    means = None if groups is None or not (groups >= 0).any() else mean_over_groups(above, groups)
    grouped = 1.0 if means is None else means.long_run.effect
    return Tail(
        int(values.size),
        float(above.mean()),
        excess,
        limit - level,
        max(effect.shown, grouped),
        max(effect.allowed, grouped),
    )


def interval_of_share_above(
    values: FloatArray, limit: float, confidence: float = CONFIDENCE, groups: NDArray[np.int64] | None = None
) -> Interval | None:
    """The interval of the share of ``values`` above ``limit``; these, and ``groups``, as ``exceedances`` has them. None
    where their mean has none either, since they are too few or change too slowly, and where those above come in few clusters,
    or would if they were 1 %.
    """
    finite = np.isfinite(values)
    if values.size < FEWEST_VALUES or not finite.any():
        return None
    if mean_of(values, None if finite.all() else finite).no_interval_reason is not None:
        return None
    level = min(max(float((values > limit).mean()), _SMALLEST_LEVEL), _LARGEST_LEVEL)
    found = exceedances(values, limit, level, groups)
    effect = max(found.effect, found.lower_effect)
    if values.size * level < _FEWEST_CLUSTERS * mean_cluster_size(effect):
        return None
    return Exceedances(found.n, found.above, effect, effect).limits((1.0 - confidence) / 2.0)


def share_estimate(share: float, interval: Interval | None, no_interval_reason: Reason | None) -> Estimate:
    """A share with the interval by ``interval_of_share_above``, or the reason for having none: where it was not computed,
    ``no_interval_reason``.
    """
    reason = None if interval is not None else no_interval_reason or Cause.CLUSTERED_FAILURES
    return Estimate(share, interval, reason)


@dataclass(frozen=True, slots=True)
class _Effect:
    """Design effects of the values above a level, at least 1: that which they show, and that which slow changes allow for."""

    shown: float
    allowed: float

    @classmethod
    def of(cls, above: NDArray[np.bool_]) -> _Effect:
        run = share_of(above)
        return cls(max(1.0, run.effect), max(1.0, run.allowed_effect))

    @property
    def between(self) -> float:
        return math.sqrt(self.shown * self.allowed)


@dataclass(frozen=True, slots=True)
class _Effects:
    levels: tuple[_Effect, ...]

    @property
    def between(self) -> float:
        """The geometric mean."""
        return math.exp(sum(math.log(level.between) for level in self.levels) / len(self.levels))


def _effects(values: FloatArray, shares: tuple[float, ...]) -> _Effects:
    """Over the levels that these shares of the values exceed."""
    known = [share for share in shares if share <= _LARGEST_LEVEL] or [min(shares)]
    return _Effects(tuple(_Effect.of(_largest(values, share)) for share in known))


def _between(values: FloatArray, limit: float, allowed: float, groups: NDArray[np.int64] | None) -> float:
    """The design effect of groups that are alike: the largest at the limit and near the allowed share."""
    if groups is None or not (groups >= 0).any():
        return 1.0
    levels = [_largest(values, min(ratio * allowed, _LARGEST_LEVEL)) for ratio in _LEVELS]
    means = [mean_over_groups(above, groups) for above in (values > limit, *levels)]
    return max([1.0, *(mean.long_run.effect for mean in means if mean is not None)])


def _largest(values: FloatArray, share: float) -> NDArray[np.bool_]:
    """Which values are above the level that ``share`` of them exceeds; those equal to it where it is the largest value."""
    rank = max(0, values.size - 1 - round(share * values.size))
    level = np.partition(values, rank)[rank]
    above: NDArray[np.bool_] = values > level
    return above if above.any() else values >= level


_Tail = Callable[[float, float, float, float], float]


def _averaged(tail: _Tail, above: int, n: int, share: float, effect: float) -> float:
    """A tail probability over what the effect may be."""
    return sum(tail(above, n, share, 1.0 + (effect - 1.0) * ratio) for ratio in _effect_ratios()) / _NODES


@lru_cache
def _effect_ratios() -> tuple[float, ...]:
    """The ratios of the true design effect to the estimated one, each less 1: quantiles of a scaled inverse chi-squared
    variable, the largest first.
    """
    from scipy.special import chdtri

    return tuple(_DEGREES / float(chdtri(_DEGREES, 1.0 - (k + 0.5) / _NODES)) for k in range(_NODES))


def _fewest_above(share: float, effect: float) -> float:
    """The values above a limit from which on more than a rare ``share`` can be known: those of five clusters, else one."""
    return _FEWEST_CLUSTERS * mean_cluster_size(effect) if share <= _RARE else 1.0


def _few_above(above: float, n: float, share: float, effect: float) -> float:
    """P(at most ``above``): compound Poisson where the share is rare, else binomial with the effective number.

    The chance of none is exact for independent values: (1 − share)^n.
    """
    from scipy.special import betainc

    if share <= _RARE:
        size = mean_cluster_size(effect)
        return _clusters_hold_at_most(int(above), n * share / size, size) if above >= 1.0 else (1.0 - share) ** (n / size)
    return float(betainc((n - above) / effect, above / effect + 1.0, 1.0 - share)) if above < n else 1.0


def _many_above(above: float, n: float, share: float, effect: float) -> float:
    """P(at least ``above``), above > 0."""
    from scipy.special import betainc

    if share <= _RARE:
        size = mean_cluster_size(effect)
        return 1.0 - _clusters_hold_at_most(int(above) - 1, n * share / size, size)
    return float(betainc(above / effect, (n - above) / effect + 1.0, share))


def _clusters_hold_at_most(most: int, clusters: float, size: float) -> float:
    """P(sum ≤ ``most``) of a Poisson number of clusters, ``clusters`` on average, with geometric sizes of mean ``size``.

    k geometric sizes sum to at most ``most`` where as many trials have at least k successes.
    """
    from scipy.special import betainc, gammaln

    first = max(1, math.floor(clusters - _NORMAL_TAIL * math.sqrt(clusters)))
    last = min(most, math.ceil(clusters + _NORMAL_TAIL * math.sqrt(clusters) + _NORMAL_TAIL))
    none = math.exp(-clusters)
    if last < first:
        return none
    k = np.arange(first, last + 1, dtype=np.float64)
    poisson = np.exp(k * math.log(clusters) - clusters - gammaln(k + 1.0))
    return min(1.0, none + float(poisson @ betainc(k, most - k + 1.0, 1.0 / size)))


def _first_where(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The least share in [low, high] from which on ``holds``; ``high`` where it does nowhere below."""
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
