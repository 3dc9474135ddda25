"""Arrival processes: frozen values that give the send offsets of requests and format themselves.

Offsets are in nanoseconds from the first arrival, which is at 0, and never decrease.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.elements.errors import Field, WorkloadError
from workloads.elements.random_streams import Stream, generator

LONGEST_S = 1e8  # three years; ns as float64 are exact up to 104 days, and as int64 far beyond
_MOST_ARRIVALS = 10_000_000  # within a duration; more is a typing error that would exhaust memory


class Arrivals(Protocol):
    """An arrival process."""

    def offsets_ns(self, count: int, seed: int) -> NDArray[np.int64]:
        """``count`` offsets in ns, shape [count], sorted, the first 0."""
        ...

    @property
    def asked_rate_per_s(self) -> float | None:
        """The mean rate; None where there is none."""
        ...

    @property
    def asked_gap_cv(self) -> float | None:
        """Standard deviation over mean of the gaps; None where they have no one law."""
        ...


@dataclass(frozen=True, slots=True)
class _AtRate:
    """Base of the processes with a rate that stays."""

    rate_per_s: float

    @property
    def asked_rate_per_s(self) -> float:
        return self.rate_per_s


@dataclass(frozen=True, slots=True)
class Exponential(_AtRate):
    """Poisson process: independent exponential gaps with mean 1/rate."""

    def offsets_ns(self, count: int, seed: int) -> NDArray[np.int64]:
        gaps_s = generator(seed, Stream.ARRIVALS).exponential(1.0 / self.rate_per_s, _gaps_between(count))
        return _offsets_ns(gaps_s, count)

    @property
    def asked_gap_cv(self) -> float:
        return 1.0

    def __str__(self) -> str:
        return f"exponential arrivals at {self.rate_per_s:g} requests/s"


@dataclass(frozen=True, slots=True)
class Gamma(_AtRate):
    """Independent gamma gaps with mean 1/rate. Their variance is 1/(shape · rate²): below 1 burstier than a Poisson
    process, 1 the same as one, above 1 more regular. vLLM's and SGLang's load generators call the shape "burstiness".
    """

    shape: float

    def offsets_ns(self, count: int, seed: int) -> NDArray[np.int64]:
        scale_s = 1.0 / (self.rate_per_s * self.shape)
        gaps_s = generator(seed, Stream.ARRIVALS).gamma(self.shape, scale_s, _gaps_between(count))
        return _offsets_ns(gaps_s, count)

    @property
    def asked_gap_cv(self) -> float:
        return 1.0 / math.sqrt(self.shape)

    def __str__(self) -> str:
        return f"gamma arrivals (shape {self.shape:g}) at {self.rate_per_s:g} requests/s"


@dataclass(frozen=True, slots=True)
class Weibull(_AtRate):
    """Independent Weibull gaps with mean 1/rate: of shape 1 a Poisson process, below it burstier, with a longer tail."""

    shape: float

    def offsets_ns(self, count: int, seed: int) -> NDArray[np.int64]:
        scale_s = 1.0 / (self.rate_per_s * math.gamma(1.0 + 1.0 / self.shape))
        gaps_s = generator(seed, Stream.ARRIVALS).weibull(self.shape, _gaps_between(count)) * scale_s
        return _offsets_ns(gaps_s, count)

    @property
    def asked_gap_cv(self) -> float:
        return weibull_cv(self.shape)

    def __str__(self) -> str:
        return f"Weibull arrivals (shape {self.shape:g}) at {self.rate_per_s:g} requests/s"


@dataclass(frozen=True, slots=True)
class Bursts(_AtRate):
    """``size`` requests at once, in exponential gaps: a Poisson process of bursts, with ``rate_per_s`` requests a second."""

    size: int

    def offsets_ns(self, count: int, seed: int) -> NDArray[np.int64]:
        bursts = -(-count // self.size)
        gaps_s = generator(seed, Stream.ARRIVALS).exponential(self.size / self.rate_per_s, _gaps_between(bursts))
        return np.repeat(_offsets_ns(gaps_s, bursts), self.size)[:count]

    @property
    def asked_gap_cv(self) -> float:
        return math.sqrt(2.0 * self.size - 1.0)

    def __str__(self) -> str:
        return f"bursts of {self.size:,} at {self.rate_per_s:g} requests/s"


@dataclass(frozen=True, slots=True)
class Constant(_AtRate):
    """Equal gaps of 1/rate."""

    def offsets_ns(self, count: int, seed: int) -> NDArray[np.int64]:
        return _whole_ns(np.arange(count) / self.rate_per_s)

    @property
    def asked_gap_cv(self) -> float:
        return 0.0

    def __str__(self) -> str:
        return f"constant arrivals at {self.rate_per_s:g} requests/s"


@dataclass(frozen=True, slots=True)
class AllAtOnce:
    """Every request at offset 0: upstream's request rate of -1, which measures the server's highest throughput."""

    def offsets_ns(self, count: int, seed: int) -> NDArray[np.int64]:
        return np.zeros(count, dtype=np.int64)

    asked_rate_per_s = None
    asked_gap_cv = None

    def __str__(self) -> str:
        return "all requests at once"


@dataclass(frozen=True, slots=True)
class Recorded:
    """The arrivals of a trace: ``times_ns`` are sorted; the first comes after the silence with which its window begins."""

    times_ns: tuple[int, ...]

    def offsets_ns(self, count: int, seed: int) -> NDArray[np.int64]:
        """The first ``count`` of them; all, where there are fewer."""
        return np.array(self.times_ns[:count], dtype=np.int64)

    @property
    def busiest_second(self) -> int:
        """The most arrivals in any whole second."""
        seconds = np.array(self.times_ns, dtype=np.int64) // 1_000_000_000
        return int(np.unique(seconds, return_counts=True)[1].max())

    @property
    def asked_rate_per_s(self) -> float | None:
        length_ns = self.times_ns[-1] - self.times_ns[0]
        return (len(self.times_ns) - 1) / length_ns * 1e9 if length_ns else None

    @property
    def asked_gap_cv(self) -> float | None:
        gaps = np.diff(np.array(self.times_ns, dtype=np.int64))
        return float(gaps.std() / gaps.mean()) if gaps.any() else None

    def __str__(self) -> str:
        rate = self.asked_rate_per_s
        return "the trace's own arrivals" + ("" if rate is None else f", {rate:.3g} requests/s")


@dataclass(frozen=True, slots=True)
class RampedUp:
    """Another process with a stretched clock, so that its rate rises linearly from 0 to its full value within ``ramp_up_s``.

    The rate and the variation that are asked are those of ``arrivals``. After the ramp the gaps are its own, to the nanosecond.
    An arrival due at ``t`` at the full rate comes at √(2 · ramp · t) during the ramp: inversion of the integrated rate (Çinlar
    1975, Introduction to Stochastic Processes). Mapping times in the ramp back by
    t² / (2 · ramp) recovers gaps of the original law.
    """

    arrivals: Arrivals
    ramp_up_s: float

    def offsets_ns(self, count: int, seed: int) -> NDArray[np.int64]:
        steady = self.arrivals.offsets_ns(count, seed)
        ramp_ns = round(self.ramp_up_s * 1e9)
        half = ramp_ns // 2  # a rate that rises linearly to r in ramp_ns yields as many arrivals as r does in half that time
        rising = np.round(np.sqrt(2.0 * ramp_ns * np.minimum(steady, half))).astype(np.int64)
        offsets: NDArray[np.int64] = np.where(steady < half, np.minimum(rising, ramp_ns), steady + (ramp_ns - half))
        return offsets

    @property
    def asked_rate_per_s(self) -> float | None:
        return self.arrivals.asked_rate_per_s

    @property
    def asked_gap_cv(self) -> float | None:
        return self.arrivals.asked_gap_cv

    def __str__(self) -> str:
        return f"{self.arrivals}, the rate rising over {self.ramp_up_s:g} s"


def weibull_cv(shape: float) -> float:
    """The coefficient of variation of Weibull gaps: √(Γ(1 + 2/k) / Γ(1 + 1/k)² − 1)."""
    return math.sqrt(math.expm1(math.lgamma(1.0 + 2.0 / shape) - 2.0 * math.lgamma(1.0 + 1.0 / shape)))


def offsets_within(arrivals: Arrivals, duration_s: float, seed: int, at_most: int | None = None) -> NDArray[np.int64]:
    """The offsets below ``duration_s``, at most ``at_most``: a prefix of every longer draw.

    Raises WorkloadError when there are more than ``_MOST_ARRIVALS`` (or ``at_most``).
    """
    limit = _MOST_ARRIVALS if at_most is None else at_most
    count = min(limit, 16)
    while True:
        offsets = arrivals.offsets_ns(count, seed)
        within: NDArray[np.int64] = offsets[: np.searchsorted(offsets, round(duration_s * 1e9))]
        if within.size < count or count == at_most:
            return within
        if count == limit:
            raise WorkloadError(
                Field("duration"),
                f" {duration_s:g}: more than {limit:,} requests would arrive; lower ",
                Field("request_rate"),
                " or ",
                Field("duration"),
            )
        count = min(limit, 4 * count)


def _gaps_between(count: int) -> int:
    return max(0, count - 1)


def _offsets_ns(gaps_s: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    offsets_s = np.zeros(count)
    offsets_s[1:] = np.cumsum(gaps_s)
    return _whole_ns(offsets_s)


def _whole_ns(offsets_s: NDArray[np.float64]) -> NDArray[np.int64]:
    if offsets_s.size and not offsets_s[-1] < LONGEST_S:
        raise WorkloadError(Field("request_rate"), " is so low that the last request would come years from now")
    offsets: NDArray[np.int64] = np.round(offsets_s * 1e9).astype(np.int64)
    return offsets
