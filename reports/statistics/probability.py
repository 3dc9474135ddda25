"""Quantiles and tails of the distributions that intervals and tests rest on, by scipy.special.

scipy.stats has them all and more, but it takes over a second of CPU to import, at the end of every measurement. The
functions below are those that it calls itself, or equivalent ones; tests compare each with it. Arguments outside the stated
domain give NaN; nothing is raised. Imports are inside the functions, so that a command that needs no number does not pay for
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from reports.statistics.arrays import FloatArray

_LARGEST_EXACT = 10_000  # values: the exact tail is a sum of as many terms
_EXACT_BELOW = 0.05


def normal_quantile(p: float) -> float:
    """The value that a standard normal variable is below with probability ``p``, 0 ≤ p ≤ 1."""
    from scipy.special import ndtri

    return float(ndtri(p))


def student_quantile(p: float, degrees: float) -> float:
    """The value that Student's t with ``degrees`` > 0 of freedom, whole or not, is below with probability ``p``."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, p)) if p != 0.0 else -math.inf  # scipy.special returns +inf


def student_tail(value: float, degrees: float) -> float:
    """The probability that Student's t with ``degrees`` > 0 of freedom, whole or not, is above ``value``."""
    from scipy.special import stdtr

    return float(stdtr(degrees, -value))  # by symmetry: 1 − P(≤ value) would lose all digits of a small tail


def student_tail_of(values: FloatArray, degrees: float) -> FloatArray:
    """As ``student_tail``, of each of the ``values``, shape [n]."""
    from scipy.special import stdtr

    return np.asarray(stdtr(degrees, -values), dtype=np.float64)


def f_quantile(p: float, numerator_degrees: float, denominator_degrees: float) -> float:
    """The ratio of mean squares that Fisher's F is below with probability ``p``; degrees of freedom > 0.

    NaN for some ``p`` above 0 and below 3e-308, for which scipy.special finds none.
    """
    from scipy.special import fdtri

    return float(fdtri(numerator_degrees, denominator_degrees, p))


def chi_squared_tail(value: float, degrees: float) -> float:
    """The probability that a chi-squared variable with ``degrees`` > 0 of freedom is above ``value`` ≥ 0."""
    from scipy.special import chdtrc

    return float(chdtrc(degrees, value))


def beta_quantile(p: float, a: float, b: float) -> float:
    """The share that a beta variable with shapes ``a``, ``b`` > 0 is below with probability ``p``.

    By Boost's inverse of the regularised incomplete beta function, whose search may fail (NaN) for 0 < ``p`` < 1e-12.
    """
    from scipy.special import betaincinv

    return float(betaincinv(a, b, p))


def binomial_at_most(k: int, n: int, p: float) -> float:
    """The probability of at most ``k`` ≥ 0 successes in ``n`` trials, each with probability ``p``.

    It is the complement of the regularised incomplete beta function (Abramowitz and Stegun 26.5.24), which has no limit
    on ``n``; scipy.special.bdtr takes 32 bits, and returns NaN beyond.
    """
    from scipy.special import betaincc

    return float(betaincc(k + 1.0, float(n - k), p)) if k < n else 1.0


def gamma_share(values: FloatArray, shape: float) -> FloatArray:
    """For each value, shape [n], the probability that a gamma variable of mean 1 and ``shape`` > 0 is not above it.

    With shape 1 it is exponential. Below 0 it is 0.
    """
    from scipy.special import gammainc

    return np.asarray(gammainc(shape, shape * np.maximum(values, 0.0)), dtype=np.float64)


def weibull_share(values: FloatArray, shape: float) -> FloatArray:
    """For each value, shape [n], the probability that a Weibull variable of mean 1 and ``shape`` > 0 is not above it.

    Below 0 it is 0.
    """
    scaled = np.maximum(values, 0.0) * math.gamma(1.0 + 1.0 / shape)
    return np.asarray(-np.expm1(-(scaled**shape)), dtype=np.float64)


def weibull_squared_variation(shape: float) -> float:
    """Variance / mean² of a Weibull variable: Γ(1 + 2/k) / Γ(1 + 1/k)² − 1."""
    return math.expm1(math.lgamma(1.0 + 2.0 / shape) - 2.0 * math.lgamma(1.0 + 1.0 / shape))


def kolmogorov_smirnov(shares: FloatArray) -> tuple[float, float]:
    """Kolmogorov's and Smirnov's distance between values and a continuous law, and its two-sided p-value.

    ``shares``, shape [n], n ≥ 1, in any order, are the law's probabilities of a value not above each. The p-value is that
    of Kolmogorov's limit (1933) at Vrbik's argument for n values (Vrbik 2018, "Small-sample corrections to
    Kolmogorov–Smirnov test statistic"). Below 0.05, for up to 10,000 values, it is twice Smirnov's exact one-sided p-value
    (Birnbaum and Tingey 1951), which counts the chance of exceeding on both sides twice: less than 1e-6.
    Against the exact law, errors were at most 6e-4 with 20 values, 2e-4 with 100, 2e-5 with 1,000; below 0.05 at most 2e-6.
    """
    from scipy.special import kolmogorov, smirnov

    ordered = np.sort(shares)
    n = ordered.size
    ranks = np.arange(n + 1) / n
    distance = float(max((ranks[1:] - ordered).max(), (ordered - ranks[:-1]).max()))
    scaled = math.sqrt(n) * distance
    p_value = float(kolmogorov(scaled + 1.0 / (6.0 * math.sqrt(n)) + (scaled - 1.0) / (4.0 * n)))
    if p_value < _EXACT_BELOW and n <= _LARGEST_EXACT:
        return distance, 2.0 * float(smirnov(n, distance))
    return distance, p_value


def gamma_quantile(p: float, shape: float) -> float:
    """The quantile of a gamma distribution of this ``shape`` and the scale 1."""
    from scipy.special import gammaincinv

    return float(gammaincinv(shape, p))


def at_least(successes: int, probabilities: Sequence[float]) -> float:
    """The probability of at least this many ``successes`` in trials with these ``probabilities`` (Poisson's binomial)."""
    distribution = np.ones(1)
    for p in probabilities:
        distribution = np.convolve(distribution, (1.0 - p, p))
    return float(distribution[successes:].sum())
