"""Standard error of a mean of correlated neighbours, on which the intervals of means, rates and percentiles rest.

Requests that come one after the other wait in the same queue, so n of them hold less information than n independent ones.
What counts is the long-run variance: the variance of the series' sum over runs, its spectrum at frequency 0. It is estimated
from the squared cosine coefficients of the lowest frequencies (``reports/statistics/spectrum.py``). Their plain average
(equal-weighted cosine: Müller 2007; Lazarus, Lewis, Stock and Watson 2018) is the design effect that a run shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reports.statistics.arrays import FloatArray, shifted_mean
from reports.statistics.estimate import Cause, Correlated, Interval, Reason, TooFew
from reports.statistics.probability import f_quantile, normal_quantile, student_quantile
from reports.statistics.spectrum import MOST_ORDINATES, error_of_mean

BINS = 1_000  # longer series are summed to this many bins, which changes no coefficient of a low frequency
FEWEST_VALUES = 100  # below, the correlation of neighbours cannot be estimated
SHORT_RUN = 700  # values; in fewer, a run with slow changes looks like a calm one
FEWEST_INDEPENDENT = 30  # with an effective sample size below, the correlation time may exceed the run
_FEWEST_INDEPENDENT_OF_LONG = 10


_FEWEST_DEGREES = 4.0  # where the spectrum is unknown
_PILOT_COSINES = 8
_DRIFT_COSINES = 2
_DRIFT_SIGNIFICANCE = 0.01
_CHUNK = 1 << 18
_LARGEST_CORRELATION = 0.999_999
_ROUNDING = 1e-24  # of the mean's square: less is no variance


@dataclass(frozen=True, slots=True)
class LongRun:
    """``variance`` of a series' sum over runs like this one, known with this many ``degrees`` of freedom.

    It allows for slow changes that the run is too short to show. ``effect`` is the ratio of what the run does show to the
    variance of independent values (Kish's design effect): this many values hold as much information as one independent value;
    ``allowed_effect`` is that ratio for ``variance``. ``drifts``: the lowest frequencies dominate, as in a run that was not
    steady.
    """

    variance: float
    degrees: float
    effect: float
    allowed_effect: float
    drifts: bool


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean, or ratio of sums, of ``n`` values that hold as much information as ``independent`` independent ones.

    ``independent`` follows from the correlation of next neighbours, as if the series were a first-order autoregression. That is
    too many for most queues, but it hardly varies between runs, so it can decide which runs get an interval without
    preferring those that look calmer than they are. The width of the interval follows from ``long_run``.
    """

    value: float
    standard_error: float
    n: int
    independent: float
    long_run: LongRun

    def interval(self, confidence: float) -> Interval | None:
        """The interval of the mean, for an error that grows with the square of the mean; None where there is no upper limit.

        The error of a queue's mean does so (Whitt 1989: with load ρ, M/M/1 has a mean of order 1/(1 − ρ) and an error of order
        1/(1 − ρ)²), and a rate is the inverse of a mean gap. So the lower limit is the one that is symmetric in 1/mean, and the
        upper limit lies as far from the mean as the error that belongs to it.
        """
        half = _student(confidence, self.long_run.degrees) * self.standard_error
        if self.value <= 0:
            return self.value - half, self.value + half
        share = half / self.value
        return (self.value / (1.0 + share), self.value + half * (1.0 + share) ** 2) if share < 1.0 else None

    @property
    def no_interval_reason(self) -> Reason | None:
        """Why no number computed from this series has an interval; None where one may have."""
        if self.n < FEWEST_VALUES:
            return TooFew(self.n, FEWEST_VALUES)
        if self.long_run.drifts:
            return Cause.DRIFTS
        needed = fewest_independent(self.n)
        return Correlated(math.floor(self.independent), needed) if self.independent < needed else None


def mean_of(values: NDArray[Any], counted: NDArray[np.bool_] | None = None) -> Mean:
    """The mean of ``values``, shape [n], in the order in which they came; only those ``counted``, where given. n ≥ 1."""
    n = values.size if counted is None else int(np.count_nonzero(counted))
    starts = _starts(values.size)
    sums = np.add.reduceat(values if counted is None else np.where(counted, values, 0.0), starts, dtype=np.float64)
    counts = np.diff(starts, append=values.size) if counted is None else np.add.reduceat(counted, starts, dtype=np.float64)
    value = float(sums.sum() / n)
    squares, products = _moments(values, counted, value)
    if squares == 0.0 and math.isfinite(value):  # the sum of equal values is rounded, and a limit may be that value
        value = float(values[0] if counted is None else values[np.argmax(counted)])
    long_run = _long_run(sums - value * counts, squares, n)
    correlation = min(products / squares, _LARGEST_CORRELATION) if squares > 0 else 0.0
    independent = n * min(1.0, (1.0 - correlation) / (1.0 + correlation))
    return Mean(value, math.sqrt(long_run.variance) / n, n, independent, long_run)


def share_of(chosen: NDArray[np.bool_]) -> LongRun:
    """The long-run variance of how many values are ``chosen``, shape [n], n ≥ 1, in the order in which they came."""
    starts = _starts(chosen.size)
    sums = np.add.reduceat(chosen, starts, dtype=np.float64)
    share = float(sums.sum()) / chosen.size
    counts = np.diff(starts, append=chosen.size)
    return _long_run(sums - share * counts, chosen.size * share * (1.0 - share), chosen.size)


def mean_over_groups(values: NDArray[Any], groups: NDArray[np.int64]) -> Mean | None:
    """The mean of ``values``, shape [n], where those of each of the ``groups``, numbered in shape [n], are alike as long as the
    run lasts, and groups differ: its error is that of the groups' sums about what the mean would give them (Kish's cluster
    sample). -1 is a group of its own; None of fewer than two groups.
    """
    value = shifted_mean(values)
    deviations, grouped = values - value, groups >= 0
    _, of = np.unique(groups[grouped], return_inverse=True)
    sums = np.concatenate([np.bincount(of, deviations[grouped]), deviations[~grouped]])
    if sums.size < 2:
        return None
    squares = float(deviations @ deviations)
    variance = float(sums @ sums) * sums.size / (sums.size - 1.0)
    effect = variance / squares if squares > 0.0 else 1.0
    long_run = LongRun(variance, sums.size - 1.0, effect, effect, False)
    return Mean(value, math.sqrt(variance) / values.size, values.size, float(sums.size), long_run)


def student_to_normal(confidence: float, degrees: float) -> float:
    """How much wider Student's t is than the normal distribution."""
    return _student(confidence, degrees) / normal_quantile((1.0 + confidence) / 2.0)


def mean_cluster_size(effect: float) -> float:
    """The mean size of the clusters in which rare values come, by their design effect, where sizes are geometric as in many
    queues: at least 1.
    """
    return (1.0 + max(1.0, effect)) / 2.0


def fewest_independent(n: int) -> int:
    """The independent values that ``n`` correlated ones must be worth for the interval of a mean."""
    return FEWEST_INDEPENDENT if n < SHORT_RUN else _FEWEST_INDEPENDENT_OF_LONG


def _starts(size: int) -> NDArray[np.int64]:
    bins = min(BINS, size)
    return np.arange(bins) * size // bins


def _moments(values: NDArray[Any], counted: NDArray[np.bool_] | None, mean: float) -> tuple[float, float]:
    """Σ of the deviations' squares, and of their products with the next one; piece by piece, for series of many millions."""
    squares, products, last = 0.0, 0.0, 0.0
    for start in range(0, values.size, _CHUNK):
        piece = slice(start, start + _CHUNK)
        deviations = values[piece] - mean
        if counted is not None:
            deviations = np.where(counted[piece], deviations, 0.0)
        squares += float(deviations @ deviations)
        products += last * float(deviations[0]) + float(deviations[1:] @ deviations[:-1])
        last = float(deviations[-1])
    return (squares, products) if squares > _ROUNDING * values.size * mean**2 else (0.0, 0.0)


def _long_run(deviations: FloatArray, independent: float, n: int) -> LongRun:
    """The long-run variance of ``n`` values from their deviations, summed to bins; ``independent`` is the variance that the sum
    of independent values would have.
    """
    if independent <= 0 or deviations.size < FEWEST_VALUES:
        return LongRun(0.0 if independent <= 0 else independent, _FEWEST_DEGREES, 1.0, 1.0, False)
    from scipy.fft import dct  # 0.05 s of CPU, which a run of few requests need not wait for

    coefficients = dct(deviations, type=2, norm="ortho")[1 : MOST_ORDINATES + 1]
    ordinates = np.maximum(coefficients**2 * (deviations.size / independent), _ROUNDING)
    effect = max(float(ordinates[:_PILOT_COSINES].mean()), 1.0 / n)
    error = error_of_mean(ordinates, n / effect)
    return LongRun(error.variance * independent, error.degrees, effect, error.variance, _stands_out(ordinates))


def _stands_out(ordinates: FloatArray) -> bool:
    """Whether the lowest frequencies hold significantly more variance than the next ones: Fisher's F of cosines."""
    lowest, others = ordinates[:_DRIFT_COSINES], ordinates[_DRIFT_COSINES:_PILOT_COSINES]
    return float(lowest.mean()) > _largest_ratio() * float(others.mean()) + 1e-12


@lru_cache
def _largest_ratio() -> float:
    return f_quantile(1.0 - _DRIFT_SIGNIFICANCE, _DRIFT_COSINES, _PILOT_COSINES - _DRIFT_COSINES)


@lru_cache
def _student(confidence: float, degrees: float) -> float:
    return student_quantile((1.0 + confidence) / 2.0, degrees)
