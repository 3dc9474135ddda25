"""Rates that change over time: a process of arrivals with a clock that runs as fast as the rate.

An arrival due at operational time x comes when the integrated rate reaches x (inversion: Çinlar 1975, Introduction to
Stochastic Processes). So the law of the gaps holds in operational time, and counts follow the rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals.processes import Arrivals
from workloads.elements.errors import Field, WorkloadError
from workloads.elements.spelling import Spelt, number_of, number_text, parse_spelt

FORMS = "sine:amplitude=0.5,period=600s, on_off:on=10s,off=20s, stages:5/s*60s,10/s*60s or piecewise:0s=5/s,60s=10/s"
_FIELD = Field("rate_profile")
_LONGEST_S = 1e7
_FASTEST_PER_S = 1e6
_BISECTIONS = 60

Floats = NDArray[np.float64]


class RateProfile(Protocol):
    """A rate over time. Its text parses back to it: ``parse_profile(str(profile)) == profile``.

    ``is_absolute``: it has rates of its own, in requests/s; else it is a factor of mean 1. ``end_s`` is its end, None without.
    """

    @property
    def is_absolute(self) -> bool: ...

    @property
    def end_s(self) -> float | None: ...

    @property
    def peak(self) -> float:
        """The highest rate, or factor."""
        ...

    def times_s(self, operational: Floats) -> Floats:
        """The times at which the integral of the rate reaches ``operational``, which is sorted and not negative; shape [n]."""
        ...

    def rate_at(self, at_s: float) -> float:
        """The rate, or factor, at a time from 0 on: at a step the later one, from the end on 0."""
        ...


@dataclass(frozen=True, slots=True)
class Sine:
    """1 + amplitude · sin(2πt / period): a day of traffic in a period."""

    amplitude: float
    period_s: float

    is_absolute = False
    end_s = None

    @property
    def peak(self) -> float:
        return 1.0 + self.amplitude

    def times_s(self, operational: Floats) -> Floats:
        reach = self.amplitude * self.period_s / (2.0 * math.pi)  # the integral is t + reach · (1 − cos)
        low, high = np.maximum(0.0, operational - 2.0 * reach), operational.copy()
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            is_before = middle + reach * (1.0 - np.cos(2.0 * math.pi * middle / self.period_s)) < operational
            low, high = np.where(is_before, middle, low), np.where(is_before, high, middle)
        return np.maximum.accumulate(high)

    def rate_at(self, at_s: float) -> float:
        return 1.0 + self.amplitude * math.sin(2.0 * math.pi * at_s / self.period_s)

    def __str__(self) -> str:
        return f"sine:amplitude={number_text(self.amplitude)},period={number_text(self.period_s)}s"


@dataclass(frozen=True, slots=True)
class OnOff:
    """Requests for ``on_s`` seconds, none for ``off_s``, again and again; the mean rate stays."""

    on_s: float
    off_s: float

    is_absolute = False
    end_s = None

    @property
    def peak(self) -> float:
        return (self.on_s + self.off_s) / self.on_s

    def times_s(self, operational: Floats) -> Floats:
        busy_s = operational / self.peak
        times: Floats = busy_s + np.floor(busy_s / self.on_s) * self.off_s
        return times

    def rate_at(self, at_s: float) -> float:
        return self.peak if at_s % (self.on_s + self.off_s) < self.on_s else 0.0

    def __str__(self) -> str:
        return f"on_off:on={number_text(self.on_s)}s,off={number_text(self.off_s)}s"


@dataclass(frozen=True, slots=True)
class Stage:
    """A constant rate from ``begin_s`` to ``end_s``."""

    begin_s: float
    end_s: float
    rate_per_s: float


@dataclass(frozen=True, slots=True)
class Piecewise:
    """Requests/s that change linearly between ``points``, which are (s, requests/s) with rising times, the first 0.

    Two points at one time are a step.
    """

    points: tuple[tuple[float, float], ...]

    is_absolute = True

    @property
    def end_s(self) -> float:
        return self.points[-1][0]

    @property
    def peak(self) -> float:
        return max(rate for _, rate in self.points)

    def times_s(self, operational: Floats) -> Floats:
        """Beyond the end the times are after it."""
        at_s, rates = (np.array(values) for values in zip(*self.points, strict=True))
        lengths_s = np.diff(at_s)
        reached = np.concatenate([[0.0], np.cumsum(lengths_s * (rates[1:] + rates[:-1]) / 2.0)])
        place = np.clip(np.searchsorted(reached, operational, side="right") - 1, 0, lengths_s.size - 1)
        left, first = operational - reached[place], rates[:-1][place]
        slope = (rates[1:] - rates[:-1])[place] / np.maximum(lengths_s[place], 1e-300)
        # the root of first · t + slope · t² / 2 = left that is stable where the slope is small
        spread = np.sqrt(np.maximum(first**2 + 2.0 * slope * left, 0.0))
        within = 2.0 * left / np.maximum(first + spread, 1e-300)
        times = at_s[:-1][place] + np.minimum(within, lengths_s[place])
        return np.where(operational >= reached[-1], self.end_s + 1.0 + (operational - reached[-1]), times)

    def rate_at(self, at_s: float) -> float:
        if at_s >= self.end_s:
            return 0.0
        later = next(number for number, (point_s, _) in enumerate(self.points) if point_s > at_s)
        (begin_s, first), (end_s, last) = self.points[later - 1], self.points[later]
        return first + (last - first) * (at_s - begin_s) / (end_s - begin_s)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The constant rates that it consists of; empty for any other."""
        if len(self.points) % 2:
            return ()
        found = tuple(Stage(begin[0], end[0], begin[1]) for begin, end in zip(self.points[::2], self.points[1::2], strict=True))
        is_constant = all(stage.rate_per_s == end[1] for stage, end in zip(found, self.points[1::2], strict=True))
        return found if is_constant else ()

    def __str__(self) -> str:
        if self.stages:
            return "stages:" + ",".join(
                f"{number_text(stage.rate_per_s)}/s*{number_text(stage.end_s - stage.begin_s)}s" for stage in self.stages
            )
        return "piecewise:" + ",".join(f"{number_text(at)}s={number_text(rate)}/s" for at, rate in self.points)


def stages(lengths_and_rates: tuple[tuple[float, float], ...]) -> Piecewise:
    """Constant rates one after another; each is (s, requests/s), of more than 0 s."""
    points: list[tuple[float, float]] = []
    begin_s = 0.0
    for length_s, rate in lengths_and_rates:
        points += [(begin_s, rate), (begin_s + length_s, rate)]
        begin_s += length_s
    return Piecewise(tuple(points))


@dataclass(frozen=True, slots=True)
class Profiled:
    """``arrivals``, at the mean rate or for an absolute profile at 1 a second, on the clock of ``profile``."""

    arrivals: Arrivals
    profile: RateProfile
    rate_per_s: float

    def offsets_ns(self, count: int, seed: int) -> NDArray[np.int64]:
        operational = self.arrivals.offsets_ns(count, seed) / 1e9
        offsets: NDArray[np.int64] = np.round(self.profile.times_s(operational) * 1e9).astype(np.int64)
        return offsets

    @property
    def peak_rate_per_s(self) -> float:
        return self.rate_per_s * self.profile.peak

    @property
    def asked_rate_per_s(self) -> float:
        """Over the whole of a profile that ends, else in the long run."""
        return self.rate_per_s if self.profile.end_s is None else self.asked_rate_until(self.profile.end_s)

    asked_gap_cv = None  # gaps change with the rate

    def asked_rate_until(self, end_s: float) -> float:
        """The mean rate up to ``end_s``: the integral of the rate over it, found by bisection."""
        low, high = 0.0, self.profile.peak * end_s
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            is_before = float(self.profile.times_s(np.array([middle]))[0]) <= end_s
            low, high = (middle, high) if is_before else (low, middle)
        return self.rate_per_s * low / end_s

    def __str__(self) -> str:
        if self.profile.is_absolute:
            return f"{str(self.arrivals).partition(' at ')[0]}, the rate by {self.profile}"
        return f"{self.arrivals} on average, the rate by {self.profile}"


def parse_profile(text: str) -> RateProfile:
    """The profile that ``text`` spells, in any letter case. Raises WorkloadError."""
    name, _, rest = text.strip().lower().partition(":")
    match name.strip():
        case "sine":
            return _sine(parse_spelt(text, _FIELD, FORMS, ("amplitude",)))
        case "on_off":
            return _on_off(parse_spelt(text, _FIELD, FORMS, ()))
        case "stages":
            return _stages(text, tuple(_pair(text, part, "*") for part in rest.split(",")))
        case "piecewise":
            return _piecewise(text, tuple(_pair(text, part, "=") for part in rest.split(",")))
        case _:
            raise WorkloadError(_FIELD, f" {text}: {name.strip()!r} is no profile of a rate; write {FORMS}")


def _sine(spelt: Spelt) -> Sine:
    spelt.check_names(("amplitude", "period"))
    amplitude, period_s = spelt.numbers["amplitude"], spelt.numbers["period"]
    if amplitude > 1.0:
        raise spelt.error("the amplitude is a share of the mean rate, from 0 to 1")
    if not 0 < period_s <= _LONGEST_S:
        raise spelt.error(f"the period must be above 0 s, and at most {_LONGEST_S:g} s")
    return Sine(amplitude, period_s)


def _on_off(spelt: Spelt) -> OnOff:
    spelt.check_names(("on", "off"))
    on_s, off_s = spelt.numbers["on"], spelt.numbers["off"]
    if not 0 < on_s <= _LONGEST_S or off_s > _LONGEST_S:
        raise spelt.error(f"the time with requests must be above 0 s, and both at most {_LONGEST_S:g} s")
    return OnOff(on_s, off_s)


def _stages(text: str, rates_and_lengths: tuple[tuple[float, float], ...]) -> Piecewise:
    if min(length_s for _, length_s in rates_and_lengths) <= 0 or max(rate for rate, _ in rates_and_lengths) <= 0:
        raise WorkloadError(_FIELD, f" {text}: each stage has a length above 0 s, and one of them a rate above 0")
    return stages(tuple((length_s, rate) for rate, length_s in rates_and_lengths))


def _piecewise(text: str, points: tuple[tuple[float, float], ...]) -> Piecewise:
    times_s = [at_s for at_s, _ in points]
    if times_s[0] != 0.0 or times_s != sorted(times_s) or times_s[-1] <= 0 or max(rate for _, rate in points) <= 0:
        raise WorkloadError(
            _FIELD, f" {text}: give points from 0s on with rising times, and a rate above 0, as piecewise:0s=5/s,60s=10/s"
        )
    return Piecewise(points)


def _pair(text: str, part: str, between: str) -> tuple[float, float]:
    """The two numbers of a part, in their order, of which one is requests/s and has no unit of time."""
    first, found, second = (piece.strip() for piece in part.partition(between))
    rate, time = (first, second) if between == "*" else (second, first)
    rate = rate.removesuffix("/s").strip()
    rate_per_s, at_s = number_of(rate) if rate[-1:].isdigit() else None, number_of(time)
    if not found or rate_per_s is None or at_s is None:
        raise WorkloadError(_FIELD, f" {text}: {part!r} is no stage or point; write {FORMS}")
    if rate_per_s > _FASTEST_PER_S or at_s > _LONGEST_S:
        raise WorkloadError(
            _FIELD, f" {text}: {part!r}: give at most {_FASTEST_PER_S:,.0f} requests/s, and at most {_LONGEST_S:,.0f} s"
        )
    return (rate_per_s, at_s) if between == "*" else (at_s, rate_per_s)
