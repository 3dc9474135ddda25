"""What every law of lengths has: draws, moments, bounds, and a spelling that the command line reads back."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.elements.errors import Field, WorkloadError
from workloads.elements.random_streams import Stream
from workloads.elements.request import LONGEST_TOKENS
from workloads.elements.spelling import number_text

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

ANY_LENGTH = (1, LONGEST_TOKENS)
_CHUNK = 1 << 20  # lengths of which the probabilities are in memory at once
_NO_FIELDS: Mapping[str, str] = MappingProxyType({})


class Side(StrEnum):
    """The two lengths of a request."""

    INPUT = "input"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and standard deviation of lengths, in tokens."""

    mean: float
    stdev: float


@dataclass(frozen=True, slots=True)
class Fault:
    """A ``parameter`` of a law that is out of range, its value, and the rule that it breaks, as a sentence."""

    parameter: str
    value: float
    rule: str


class Lengths(Protocol):
    """A distribution of lengths in tokens: whole numbers from 1 to LONGEST_TOKENS."""

    @property
    @abstractmethod
    def spelling(self) -> str:
        """The law as ``spelling.parse`` reads it."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest length that can be drawn."""

    @property
    def asked(self) -> Moments:
        """Mean and standard deviation as the law states them, before rounding and bounds."""
        return self.moments()

    @property
    def digest(self) -> str | None:
        """SHA-256 of the data of a law that is not wholly in its spelling; else None."""
        return None

    @abstractmethod
    def draw(self, count: int, seed: int, stream: Stream) -> Integers:
        """``count`` lengths, shape [count]: the first of any larger number of draws."""

    @abstractmethod
    def moments(self) -> Moments:
        """Mean and standard deviation of what ``draw`` draws, after rounding and bounds."""

    @abstractmethod
    def fault(self) -> Fault | None:
        """The first parameter that is out of range."""

    def shift(self) -> float:
        """Tokens by which the bounds move the mean of the rounded lengths."""
        return 0.0


def check(lengths: Lengths, field: str, own_fields: Mapping[str, str] = _NO_FIELDS) -> None:
    """Raise WorkloadError for a law that is out of range, naming its ``field``, or a parameter's own one of ``own_fields``."""
    fault = lengths.fault()
    if fault is None:
        return
    own = own_fields.get(fault.parameter)
    value = lengths.spelling if own is None else number_text(fault.value)
    raise WorkloadError(Field(own or field), f" {value}: {fault.rule}")


def outside(parameter: str, value: float, low: float, high: float, name: str) -> Fault | None:
    """The fault of a value that does not lie in [low, high]; NaN does not."""
    if low <= value <= high:
        return None
    return Fault(parameter, value, f"the {name} must lie between {low:,} and {high:,} tokens")


def reversed_bounds(low: int, high: int) -> Fault | None:
    """The fault of bounds that are no lengths, or of which the lower one is the greater."""
    fault = outside("min", low, *ANY_LENGTH, "min") or outside("max", high, *ANY_LENGTH, "max")
    if fault is None and low > high:
        return Fault("min", low, f"min={low} is above max={high}")
    return fault


def moments_by_cdf(cdf: Callable[[Floats], Floats], bounds: tuple[int, int], centre: float) -> Moments:
    """Moments of whole numbers k with P(X ≤ k) = ``cdf(k)``: what lies beyond a bound counts as the bound.

    Numerically exact: the sum over every k. ``centre`` is a value near the mean, for the accuracy of the variance.
    """
    low, high = bounds
    below, first, second = 0.0, 0.0, 0.0
    for start in range(low, high + 1, _CHUNK):
        k = np.arange(start, min(start + _CHUNK, high + 1), dtype=np.float64)
        cumulative = cdf(k)
        if k[-1] == high:
            cumulative[-1] = 1.0
        probabilities = np.diff(cumulative, prepend=below)
        below = float(cumulative[-1])
        first += float(probabilities @ (k - centre))
        second += float(probabilities @ (k - centre) ** 2)
    return Moments(centre + first, sqrt(max(0.0, second - first**2)))


def moments_by_weights(tokens: Floats, weights: Floats) -> Moments:
    """Moments of ``tokens`` with probabilities in the ratio of ``weights``, shape [n] each."""
    probabilities = weights / weights.sum()
    mean = float(probabilities @ tokens)
    return Moments(mean, sqrt(float(probabilities @ (tokens - mean) ** 2)))
