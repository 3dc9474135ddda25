"""Arrays of numbers in which NaN stands for an unknown value."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


def known(values: FloatArray) -> FloatArray:
    """The values that are not NaN."""
    return values[~np.isnan(values)]


def mean_of_known(values: FloatArray) -> float | None:
    """The mean of the values that are not NaN; None for none."""
    values = known(values)
    return float(values.mean()) if values.size else None


def shifted_mean(values: FloatArray) -> float:
    """The mean of finite values, n ≥ 1, from their distances to the first: that of equal values is the value itself. The sum of
    equal values is rounded, by another amount for each n, and so two sides of equal values would differ.
    """
    first = float(values[0])
    return first + float((values - first).mean())


def shifted_variance(values: FloatArray) -> float:
    """The unbiased variance of finite values, n ≥ 2, from their distances to the first: that of equal values is 0."""
    return float((values - values[0]).var(ddof=1))


def finite(value: float) -> float | None:
    """The value; None for NaN and for an infinite one."""
    return value if math.isfinite(value) else None
