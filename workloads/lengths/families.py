"""Laws of lengths with parameters: normal, lognormal, uniform, Zipf, constant.

A law with ``low`` or ``high`` is truncated: a length outside is drawn again, so the law is the conditional one on the bounds,
and its mean and deviation are no longer those of the parameters. ``moments`` are those of the lengths as they are drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, exp, floor, log, log1p, sqrt

import numpy as np

from workloads.elements.random_streams import Stream, generator
from workloads.elements.request import LONGEST_TOKENS
from workloads.elements.spelling import number_text
from workloads.lengths.law import (
    ANY_LENGTH,
    Fault,
    Floats,
    Integers,
    Lengths,
    Moments,
    moments_by_cdf,
    moments_by_weights,
    outside,
    reversed_bounds,
)

_SPAN = 9.0  # standard deviations beyond which a normal has no mass that a double could show
_SMOOTH_STDEV = 2.0  # from here on rounding up adds half a token to the mean, to 1e-33
_LEAST_SHARE = 0.01  # of a law that must lie within its bounds
_FEWEST_DRAWN = 1024
_GREATEST_EXPONENT = 100.0


@dataclass(frozen=True, slots=True)
class _MeanAndStdev(Lengths):
    """Base of the laws with a mean and a standard deviation; ``low`` and ``high`` truncate them."""

    mean: float
    stdev: float
    low: int | None = None
    high: int | None = None

    @property
    def is_plain(self) -> bool:
        """Whether mean and deviation are the only parameters, as upstream's are."""
        return self.low is None and self.high is None

    @property
    def bounds(self) -> tuple[int, int]:
        low, high = ANY_LENGTH
        return low if self.low is None else self.low, high if self.high is None else self.high

    @property
    def asked(self) -> Moments:
        return Moments(self.mean, self.stdev)


@dataclass(frozen=True, slots=True)
class Normal(_MeanAndStdev):
    """max(1, ceil(N(mean, stdev))), as upstream draws it; stdev 0 is constant. With ``low`` or ``high`` truncated to them.

    Rounding up adds half a token to the mean, and the bound at 1 adds what lies below it.
    Source: get_norm_dist_tokens of upstream's tools/utils/utils.py.
    """

    @property
    def spelling(self) -> str:
        if self.is_plain:
            return number_text(self.mean) + (f"±{number_text(self.stdev)}" if self.stdev else "")
        return f"normal:mean={number_text(self.mean)},stdev={number_text(self.stdev)}{_bounds_text(self.low, self.high)}"

    def draw(self, count: int, seed: int, stream: Stream) -> Integers:
        random = generator(seed, stream)
        if self.is_plain:
            return _clipped(np.ceil(random.normal(self.mean, self.stdev, count)))
        return _redrawn(lambda size: np.ceil(random.normal(self.mean, self.stdev, size)), self.bounds, count)

    def moments(self) -> Moments:
        low, high = self.bounds
        window = (
            min(high, max(low, floor(self.mean - _SPAN * self.stdev))),
            max(low, min(high, ceil(self.mean + _SPAN * self.stdev))),
        )
        cdf = self._cdf if self.is_plain else _conditional(self._cdf, self.bounds)
        return moments_by_cdf(cdf, window, min(max(self.mean, low), high))

    def shift(self) -> float:
        return self.moments().mean - self._mean_without_bounds()

    def fault(self) -> Fault | None:
        return (
            outside("mean", self.mean, *ANY_LENGTH, "mean")
            or outside("stdev", self.stdev, 0, LONGEST_TOKENS, "deviation")
            or reversed_bounds(*self.bounds)
            or _too_little_left(self._cdf, self.bounds)
        )

    def _cdf(self, k: Floats) -> Floats:
        """P(ceil(N) ≤ k)."""
        if not self.stdev:
            return np.where(k >= self.mean, 1.0, 0.0)
        return _normal_cdf((k - self.mean) / self.stdev)

    def _mean_without_bounds(self) -> float:
        if self.stdev >= _SMOOTH_STDEV:
            return self.mean + 0.5
        window = floor(self.mean - _SPAN * self.stdev), ceil(self.mean + _SPAN * self.stdev)
        return moments_by_cdf(self._cdf, window, self.mean).mean

    def __str__(self) -> str:
        return f"N({self.mean:g}, {self.stdev:g}){_within(self.low, self.high)}"


@dataclass(frozen=True, slots=True)
class Lognormal(_MeanAndStdev):
    """Lengths whose logarithm is normal; ``mean`` and ``stdev`` describe the lengths themselves, in tokens.

    Rounded to the nearest whole number, at least 1. With ``low`` or ``high`` truncated to them.
    """

    @property
    def spelling(self) -> str:
        return f"lognormal:mean={number_text(self.mean)},stdev={number_text(self.stdev)}{_bounds_text(self.low, self.high)}"

    def draw(self, count: int, seed: int, stream: Stream) -> Integers:
        random = generator(seed, stream)
        if self.is_plain:
            return _clipped(np.rint(random.lognormal(*self._of_logarithm, count)))
        return _redrawn(lambda size: np.rint(random.lognormal(*self._of_logarithm, size)), self.bounds, count)

    def moments(self) -> Moments:
        (low, high), (mu, sigma) = self.bounds, self._of_logarithm
        window = (
            min(high, max(low, floor(exp(mu - _SPAN * sigma)))),
            max(low, min(high, ceil(exp(mu + _SPAN * sigma)))),
        )
        cdf = self._cdf if self.is_plain else _conditional(self._cdf, self.bounds)
        return moments_by_cdf(cdf, window, min(max(self.mean, low), high))

    def shift(self) -> float:
        return self.moments().mean - self.mean

    def fault(self) -> Fault | None:
        fault = outside("mean", self.mean, *ANY_LENGTH, "mean") or outside("stdev", self.stdev, 0, LONGEST_TOKENS, "deviation")
        if fault is None and not self.stdev:
            fault = Fault("stdev", 0.0, "the deviation of a lognormal must be above 0; constant:tokens=N is a constant length")
        return fault or reversed_bounds(*self.bounds) or _too_little_left(self._cdf, self.bounds)

    @property
    def _of_logarithm(self) -> tuple[float, float]:
        """Mean and standard deviation of the logarithm."""
        variance = log1p((self.stdev / self.mean) ** 2)
        return log(self.mean) - variance / 2, sqrt(variance)

    def _cdf(self, k: Floats) -> Floats:
        """P(rint(X) ≤ k)."""
        mu, sigma = self._of_logarithm
        return _normal_cdf((np.log(np.maximum(k, 0.0) + 0.5) - mu) / sigma)

    def __str__(self) -> str:
        return f"lognormal({self.mean:g}, {self.stdev:g}){_within(self.low, self.high)}"


@dataclass(frozen=True, slots=True)
class Uniform(Lengths):
    """Every whole number from ``low`` to ``high``, both included, with the same probability."""

    low: int
    high: int

    @property
    def spelling(self) -> str:
        return f"uniform:min={self.low},max={self.high}"

    @property
    def bounds(self) -> tuple[int, int]:
        return self.low, self.high

    def draw(self, count: int, seed: int, stream: Stream) -> Integers:
        return generator(seed, stream).integers(self.low, self.high + 1, count)

    def moments(self) -> Moments:
        values = self.high - self.low + 1
        return Moments((self.low + self.high) / 2, sqrt((values**2 - 1) / 12))

    def fault(self) -> Fault | None:
        return reversed_bounds(self.low, self.high)

    def __str__(self) -> str:
        return f"uniform({self.low}, {self.high})"


@dataclass(frozen=True, slots=True)
class Zipf(Lengths):
    """P(k) in the ratio of k^−exponent over the whole numbers from ``low`` to ``high``; exponent 0 is uniform."""

    exponent: float
    low: int
    high: int

    @property
    def spelling(self) -> str:
        return f"zipf:exponent={number_text(self.exponent)},min={self.low},max={self.high}"

    @property
    def bounds(self) -> tuple[int, int]:
        return self.low, self.high

    def draw(self, count: int, seed: int, stream: Stream) -> Integers:
        cumulative = np.cumsum(self._weights())
        places = np.searchsorted(cumulative, generator(seed, stream).random(count) * cumulative[-1], side="right")
        lengths: Integers = self.low + np.minimum(places, self.high - self.low).astype(np.int64)
        return lengths

    def moments(self) -> Moments:
        return moments_by_weights(np.arange(self.low, self.high + 1, dtype=np.float64), self._weights())

    def fault(self) -> Fault | None:
        if not 0 <= self.exponent <= _GREATEST_EXPONENT:
            rule = f"the exponent must lie between 0 and {_GREATEST_EXPONENT:g}"
            return Fault("exponent", self.exponent, rule)
        return reversed_bounds(self.low, self.high)

    def _weights(self) -> Floats:
        weights: Floats = (np.arange(self.low, self.high + 1) / self.low) ** -self.exponent
        return weights

    def __str__(self) -> str:
        return f"Zipf({self.exponent:g}) within {self.low}..{self.high}"


@dataclass(frozen=True, slots=True)
class Constant(Lengths):
    """The same length for every request."""

    tokens: int

    @property
    def spelling(self) -> str:
        return f"constant:tokens={self.tokens}"

    @property
    def bounds(self) -> tuple[int, int]:
        return self.tokens, self.tokens

    def draw(self, count: int, seed: int, stream: Stream) -> Integers:
        return np.full(count, self.tokens, np.int64)

    def moments(self) -> Moments:
        return Moments(float(self.tokens), 0.0)

    def fault(self) -> Fault | None:
        return outside("tokens", self.tokens, *ANY_LENGTH, "length")

    def __str__(self) -> str:
        return f"{self.tokens}"


def _normal_cdf(z: Floats) -> Floats:
    from scipy.special import ndtr  # 0.1 s, which a usage error need not wait for

    probabilities: Floats = ndtr(z)
    return probabilities


def _bounds_text(low: int | None, high: int | None) -> str:
    return ("" if low is None else f",min={low}") + ("" if high is None else f",max={high}")


def _within(low: int | None, high: int | None) -> str:
    if low is None:
        return "" if high is None else f" up to {high}"
    return f" from {low}" if high is None else f" within {low}..{high}"


def _clipped(lengths: Floats) -> Integers:
    whole: Integers = np.clip(lengths, *ANY_LENGTH).astype(np.int64)
    return whole


def _redrawn(draw: Callable[[int], Floats], bounds: tuple[int, int], count: int) -> Integers:
    """The first ``count`` of an endless draw that lie within the bounds."""
    kept: list[Floats] = []
    missing = count
    while missing > 0:
        drawn = draw(max(missing, _FEWEST_DRAWN))
        kept.append(drawn[(drawn >= bounds[0]) & (drawn <= bounds[1])])
        missing -= kept[-1].size
    whole: Integers = np.concatenate([np.zeros(0), *kept])[:count].astype(np.int64)
    return whole


def _share_within(cdf: Callable[[Floats], Floats], bounds: tuple[int, int]) -> tuple[float, float]:
    """P(X < low), and P(low ≤ X ≤ high)."""
    below, until = cdf(np.array([bounds[0] - 1.0, float(bounds[1])])).tolist()
    return below, until - below


def _conditional(cdf: Callable[[Floats], Floats], bounds: tuple[int, int]) -> Callable[[Floats], Floats]:
    """P(X ≤ k) of the lengths within the bounds, for k within them."""
    below, share = _share_within(cdf, bounds)
    return lambda k: (cdf(k) - below) / share


def _too_little_left(cdf: Callable[[Floats], Floats], bounds: tuple[int, int]) -> Fault | None:
    """The fault of bounds that leave less than _LEAST_SHARE of the law, so that it would be hardly that law any more."""
    if bounds == ANY_LENGTH or _share_within(cdf, bounds)[1] >= _LEAST_SHARE:
        return None
    rule = f"less than {_LEAST_SHARE:.0%} of the law lies within {bounds[0]}..{bounds[1]}; widen min and max"
    return Fault("min", bounds[0], rule)
