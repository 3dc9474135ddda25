"""The share of requests beyond a limit as a curve of the load: share = exp(intercept + slope · ln load), fitted to probes.

The fit is that of a Poisson regression whose variance is ``dispersion`` times as large (McCullagh and Nelder, *Generalized
Linear Models*, 9.2), since requests beyond a limit come in clusters. The dispersion is the larger one of what the probes
differ by about the curve and of the design effects within them. The crossing, where the share is the allowed one, has the
interval of the profile likelihood: all crossings of which the best curve through them is not much worse than the best of all.
Slopes near that of queues are likelier beforehand, so that few probes show no cliff where there is none.

All choices were made by benchmarks/capacity_honesty.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.statistics.arrays import FloatArray
from reports.statistics.probability import f_quantile

LARGEST_RATIO = 15.0  # of the allowed share: a probe beyond it says no more than that the load is too high
_LARGEST_SHARE = 0.7
_FEWEST_POINTS, _FEWEST_ABOVE = 3, 5
_FEWEST_NEAR = 4
_SHORT = 0.4  # of the longest probe near the crossing: shorter ones show too little of their clusters
_NEAR = 0.35  # of the logarithm of the load: the curve is a straight line there, but not farther
_NEAR_BELOW, _NEAR_ABOVE = 12.0, 6.0  # times less and more than the allowed share, by the curve: farther out clusters differ
_LEAST_NEAR = 0.03
USUAL_EFFECT, _USUAL_WEIGHT = 30.0, 100.0  # a design effect at capacity, and the requests beyond the limit it counts as
_FARTHEST = 0.5  # from the probes, of the logarithm: an end of the interval beyond is unknown
_LEAST_SLOPE, _LARGEST_SLOPE = 0.5, 300.0
_LIKELY_SLOPE, _SLOPE_DEVIATION = 12.0, 1.0  # beforehand; the deviation is the logarithm's
_GRID = 161  # crossings that are tried
_BISECTIONS = 20
_LARGEST_EXPONENT = 3.0
_DEGREES_WITHIN = 12  # of freedom of the design effects within the probes


@dataclass(frozen=True, eq=False)
class Points:
    """Probes that are not overloaded: the load of each, its requests, n > 0, how many were beyond the limit, and their
    design effect (NaN where unknown), shape [points] each. ``usual_effect`` is what the effect is at capacity beforehand.
    """

    load: FloatArray
    n: FloatArray
    above: FloatArray
    effect: FloatArray
    usual_effect: float = USUAL_EFFECT

    @property
    def log_load(self) -> FloatArray:
        logarithms: FloatArray = np.log(self.load)
        return logarithms

    @property
    def size(self) -> int:
        return int(self.n.size)

    def chosen(self, which: NDArray[np.bool_]) -> Points:
        return Points(self.load[which], self.n[which], self.above[which], self.effect[which], self.usual_effect)

    def dispersion(self, allowed: float) -> float:
        """The mean design effect of requests beyond the limit near the allowed share, at least 1.

        A load at which none came shows nothing of the clusters in which they would come, and one far above capacity shows
        more than there are, so that a probe counts by its requests beyond the limit, up to the allowed share; and what is
        usual at capacity counts as this many more.
        """
        known = np.isfinite(self.effect)
        weights = np.minimum(self.above, allowed * self.n)[known]
        return float((self.effect[known] @ weights + self.usual_effect * _USUAL_WEIGHT) / (weights.sum() + _USUAL_WEIGHT))


@dataclass(frozen=True, slots=True)
class Fit:
    """The curve through ``points`` near the crossing; an end of the crossing's interval is None where the points give none.
    ``expected`` is how many of their requests would be beyond the limit at the allowed share.
    """

    intercept: float
    slope: float
    crossing: float
    low: float | None
    high: float | None
    dispersion: float
    expected: float
    points: int


def is_usable(points: Points, allowed: float) -> NDArray[np.bool_]:
    """Which are near enough to the allowed share to be points of the curve; shape [points]."""
    near: NDArray[np.bool_] = points.above <= min(LARGEST_RATIO * allowed, _LARGEST_SHARE) * points.n
    return near


def fit(points: Points, allowed: float, tail: float) -> Fit | None:
    """The curve of ``usable`` points, 0 < ``allowed`` < 1; each end of the interval is wrong with probability ``tail``. None
    of too few points, or with hardly a request beyond the limit.
    """
    if points.size < _FEWEST_POINTS or points.above.sum() < _FEWEST_ABOVE or np.ptp(points.load) == 0.0:
        return None
    first = _fit(points, allowed, tail)
    lower, upper = (min(max(math.log(ratio) / first.slope, _LEAST_NEAR), _NEAR) for ratio in (_NEAR_BELOW, _NEAR_ABOVE))
    distance = points.log_load - math.log(first.crossing)
    near = points.chosen((distance >= -lower) & (distance <= upper))
    if near.size:
        near = near.chosen(near.n >= _SHORT * near.n.max())
    if near.size == points.size or near.size < _FEWEST_NEAR or near.above.sum() < _FEWEST_ABOVE or np.ptp(near.load) == 0:
        return first
    return _fit(near, allowed, tail)


def _fit(points: Points, allowed: float, tail: float) -> Fit:
    tried = np.linspace(points.log_load.min() - _FARTHEST, points.log_load.max() + _FARTHEST, _GRID)
    slopes = _best_slopes(points, allowed, tried)
    likelihoods = _likelihoods(points, allowed, tried, slopes)
    best = int(likelihoods.argmax())
    slope = float(slopes[best])
    expected = _expected(points, allowed, tried[best : best + 1], slopes[best : best + 1])[0]
    degrees = max(1, points.size - 2)
    between = float((((points.above - expected) ** 2) / np.maximum(expected, 1e-9)).sum()) / degrees
    within = points.dispersion(allowed)
    dispersion = max(1.0, between, within)
    known = degrees if between > within else max(degrees, _DEGREES_WITHIN)
    lost = likelihoods[best] - likelihoods - dispersion * f_quantile(1.0 - 2.0 * tail, 1, known) / 2.0
    low, high = _first_above(-tried[best::-1], lost[best::-1]), _first_above(tried[best:], lost[best:])
    crossing = _vertex(tried, likelihoods, best)
    return Fit(
        intercept=math.log(allowed) - slope * crossing,
        slope=slope,
        crossing=math.exp(crossing),
        low=None if low is None else math.exp(-low),
        high=None if high is None else math.exp(high),
        dispersion=dispersion,
        expected=float(points.n.sum()) * allowed,
        points=points.size,
    )


def _expected(points: Points, allowed: float, crossings: FloatArray, slopes: FloatArray) -> FloatArray:
    """Requests beyond the limit by the curve through each crossing, shape [crossings, points]."""
    exponents = math.log(allowed) + slopes[:, None] * (points.log_load - crossings[:, None])
    expected: FloatArray = points.n * np.exp(np.minimum(exponents, _LARGEST_EXPONENT))
    return expected


def _likelihoods(points: Points, allowed: float, crossings: FloatArray, slopes: FloatArray) -> FloatArray:
    exponents = math.log(allowed) + slopes[:, None] * (points.log_load - crossings[:, None])
    exponents = np.minimum(exponents, _LARGEST_EXPONENT)
    unlikely = (np.log(slopes / _LIKELY_SLOPE) / _SLOPE_DEVIATION) ** 2 / 2.0
    likelihoods = (points.above * exponents - points.n * np.exp(exponents)).sum(axis=1)
    weighed: FloatArray = likelihoods - points.dispersion(allowed) * unlikely
    return weighed


def _best_slopes(points: Points, allowed: float, crossings: FloatArray) -> FloatArray:
    """The slope of the most likely curve through each crossing, by bisection of the likelihood's derivative."""
    low = np.full(crossings.size, math.log(_LEAST_SLOPE))
    high = np.full(crossings.size, math.log(_LARGEST_SLOPE))
    distances = points.log_load - crossings[:, None]
    weight = points.dispersion(allowed) / _SLOPE_DEVIATION**2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2.0
        slopes = np.exp(middle)
        rise = slopes * ((points.above - _expected(points, allowed, crossings, slopes)) * distances).sum(axis=1)
        rises = rise > weight * (middle - math.log(_LIKELY_SLOPE))
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    best: FloatArray = np.exp((low + high) / 2.0)
    return best


def _vertex(tried: FloatArray, likelihoods: FloatArray, best: int) -> float:
    """Where the parabola through the best crossing and its neighbours is highest."""
    if not 0 < best < tried.size - 1:
        return float(tried[best])
    below, at, above = likelihoods[best - 1 : best + 2]
    bend = below - 2.0 * at + above
    shift = 0.5 * (below - above) / bend if bend < 0.0 else 0.0
    return float(tried[best] + min(max(shift, -0.5), 0.5) * (tried[1] - tried[0]))


def _first_above(loads: FloatArray, lost: FloatArray) -> float | None:
    """Where ``lost``, which starts below 0, first is above it, between two loads in proportion; None where nowhere."""
    above = np.flatnonzero(lost > 0.0)
    if above.size == 0:
        return None
    k = int(above[0])
    share = -lost[k - 1] / (lost[k] - lost[k - 1])
    return float(loads[k - 1] + share * (loads[k] - loads[k - 1]))
