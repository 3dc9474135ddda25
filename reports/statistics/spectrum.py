"""Variance of a series' mean from its lowest frequencies, when the correlation may reach as far as the run is long.

The squared cosine coefficients of a series are the ordinates of its spectrum, and the variance of its mean is the spectrum at
frequency 0, which lies below the lowest of them. An average of the lowest ordinates is that variance only where the spectrum
is flat there. Load that drifts slowly under independent noise has a spectrum that still rises, so the average is too small,
the more the calmer the run looks. Here the spectrum is white noise plus a first-order autoregression of unknown strength and
correlation time, from a hundredth of the run to twice its length; the variance of the mean is weighed over them by how well
each explains the ordinates (Müller 2014, "HAC corrections for strongly autocorrelated time series", has the same model; the
weights here are those of Bayes' rule, with the priors below). The error of the mean is then a mixture of Student
distributions. It is summarised by the one with as many degrees of freedom as ordinates that has its 90 % interval: farther out
the mixture is wider, by the small chance of large slow changes of which the run shows no trace.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from reports.statistics.arrays import FloatArray
from reports.statistics.probability import student_quantile

MOST_ORDINATES = 32
_ORDINATES = (16, 24, MOST_ORDINATES)
_VALUES_AN_ORDINATE = 15  # independent ones; more ordinates where the series has more information
# The prior was chosen for coverage on queues, autoregressions and an engine like those of benchmarks/serving_processes.py.
_RUN_LENGTHS = np.geomspace(0.7, 144.0, 12)  # of the run in correlation times
_STRENGTHS = np.geomspace(0.2, 1e4, 14)  # spectrum of the autoregression at 0, where the noise's is 1
_WHITE = 0.35  # prior probability of noise alone
_LEAST_WEIGHT = 1e-4
_MATCHED = 0.90
_SECANT_STEPS = 30
_CLOSE = 1e-7


@dataclass(frozen=True, slots=True)
class MeanError:
    """The error of a mean: Student's t with ``degrees`` of freedom times the root of ``variance``.

    ``variance`` is relative to that of a mean of independent values.
    """

    variance: float
    degrees: int


@dataclass(frozen=True, eq=False)
class _Shapes:
    """Spectra, shape [shapes, ordinates], the variance of the mean that belongs to each, and the logarithm of its weight
    before the data, shape [shapes].
    """

    inverse: FloatArray
    mean_variance: FloatArray
    log_prior: FloatArray


def error_of_mean(ordinates: FloatArray, independent: float) -> MeanError:
    """The error of a mean from its ``ordinates``: squared cosine coefficients over their value for independent values, lowest
    frequency first, shape [MOST_ORDINATES]; ``independent`` is how many independent values the series may be worth.
    """
    count = next((q for q in reversed(_ORDINATES) if independent >= q * _VALUES_AN_ORDINATE), _ORDINATES[0])
    shapes, used = _shapes(count), ordinates[:count]
    levels = shapes.inverse @ used / count  # of the noise, one for each shape
    log_weights = shapes.log_prior - 0.5 * count * np.log(levels)
    weights = np.exp(log_weights - log_weights.max())
    kept = weights > _LEAST_WEIGHT * weights.sum()
    scales = np.sqrt(levels[kept] * shapes.mean_variance[kept])
    half = _half_width(weights[kept] / weights[kept].sum(), scales, count)
    return MeanError((half / student_quantile((1.0 + _MATCHED) / 2.0, count)) ** 2, count)


def _half_width(weights: FloatArray, scales: FloatArray, degrees: int) -> float:
    """The half width that holds the mixture with probability _MATCHED, by the secant method on logarithms."""
    from scipy.special import stdtr

    def excess(logarithm: float) -> float:
        outside = 2.0 * float(weights @ stdtr(degrees, -math.exp(logarithm) / scales))
        return math.log(outside / (1.0 - _MATCHED))

    before, now = math.log(float(weights @ scales)), math.log(3.0 * float(weights @ scales))
    excess_before, excess_now = excess(before), excess(now)
    for _ in range(_SECANT_STEPS):
        if abs(excess_now) < _CLOSE or excess_now == excess_before:
            break
        change = -excess_now * (now - before) / (excess_now - excess_before)
        before, excess_before = now, excess_now
        now += min(max(change, -1.0), 1.0)
        excess_now = excess(now)
    return math.exp(now)


@lru_cache
def _shapes(count: int) -> _Shapes:
    lengths, strengths = (values.ravel() for values in np.meshgrid(_RUN_LENGTHS, _STRENGTHS))
    frequencies = np.pi * np.arange(1, count + 1)
    spectra = 1.0 + strengths[:, None] / (1.0 + (frequencies / lengths[:, None]) ** 2)
    # of the mean of a first-order autoregression over this many correlation times (Priestley 1981, 5.3)
    variances = 1.0 + strengths * (1.0 - (1.0 - np.exp(-lengths)) / lengths)
    spectra, variances = np.vstack([np.ones(count), spectra]), np.append(1.0, variances)
    prior = np.full(variances.size, (1.0 - _WHITE) / (variances.size - 1))
    prior[0] = _WHITE
    return _Shapes(1.0 / spectra, variances, np.log(prior) - 0.5 * np.log(spectra).sum(axis=1))
