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


def finite(value: float) -> float | None:
    """The value; None for NaN and for an infinite one."""
    return value if math.isfinite(value) else None
