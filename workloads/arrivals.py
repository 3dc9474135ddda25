"""Arrival processes: small pure values that say when requests come, and print themselves.

All give offsets in nanoseconds from the first arrival, which is at 0, and never decrease.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.errors import WorkloadError
from workloads.random_streams import Stream, generator

_LONGEST_S = 1e8  # three years; ns as float64 are exact up to 104 days, and as int64 far beyond


class Arrivals(Protocol):
    """When requests arrive."""

    def offsets_ns(self, count: int, seed: int) -> NDArray[np.int64]:
        """``count`` offsets in ns, shape [count], sorted, the first 0."""
        ...


@dataclass(frozen=True, slots=True)
class Exponential:
    """A Poisson process: gaps are independent and exponential with mean 1/rate."""

    rate_per_s: float

    def offsets_ns(self, count: int, seed: int) -> NDArray[np.int64]:
        gaps_s = generator(seed, Stream.ARRIVALS).exponential(1.0 / self.rate_per_s, max(0, count - 1))
        return _offsets_ns(gaps_s, count)

    def __str__(self) -> str:
        return f"exponential arrivals at {self.rate_per_s:g} requests/s"


@dataclass(frozen=True, slots=True)
class Constant:
    """Equal gaps of 1/rate."""

    rate_per_s: float

    def offsets_ns(self, count: int, seed: int) -> NDArray[np.int64]:
        return _whole_ns(np.arange(count) / self.rate_per_s)

    def __str__(self) -> str:
        return f"constant arrivals at {self.rate_per_s:g} requests/s"


@dataclass(frozen=True, slots=True)
class AllAtOnce:
    """Everything arrives at the start: the server's speed of light, upstream's ``--request_rate -1``."""

    def offsets_ns(self, count: int, seed: int) -> NDArray[np.int64]:
        return np.zeros(count, dtype=np.int64)

    def __str__(self) -> str:
        return "all requests at once"


def arrivals_of(request_rate: float, time_delay_dist: str) -> Arrivals:
    """The process that upstream's options ask for. Raises WorkloadError for a rate that is neither positive nor -1."""
    if request_rate == -1:
        return AllAtOnce()
    if not 0 < request_rate < float("inf"):
        raise WorkloadError(
            f"--request_rate {request_rate:g}: give requests per second, more than 0, or -1 to send everything at once"
        )
    return Constant(request_rate) if time_delay_dist == "constant" else Exponential(request_rate)


def _offsets_ns(gaps_s: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    offsets_s = np.zeros(count)
    offsets_s[1:] = np.cumsum(gaps_s)
    return _whole_ns(offsets_s)


def _whole_ns(offsets_s: NDArray[np.float64]) -> NDArray[np.int64]:
    if offsets_s.size and not offsets_s[-1] < _LONGEST_S:
        raise WorkloadError("--request_rate is so low that the last request would come years from now")
    offsets: NDArray[np.int64] = np.round(offsets_s * 1e9).astype(np.int64)
    return offsets
