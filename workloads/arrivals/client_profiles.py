"""Traffic of many clients, each a rate that changes over time and lengths of its own (ServeGen), and requests drawn from it.

A client's arrivals are a renewal process in operational time, which runs as fast as its rate: gaps have mean 1 and the shape
of the window in which they begin, Gamma or Weibull. So the rates are those of the profile whatever the fitted scale, which does
not reproduce the rates of most Weibull windows. The process begins in equilibrium, for clients do not start together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import gamma as gamma_function

from workloads.elements.errors import Field, WorkloadError
from workloads.elements.random_streams import Stream, generator
from workloads.table.workload import Workload, WorkloadFacts

MOST_REQUESTS = 20_000_000
_ARRIVALS, _LENGTHS = 0, 1
_MARGIN = 6  # standard deviations of a draw of gaps over the expected number

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class GapFamily(StrEnum):
    GAMMA = "Gamma"
    WEIBULL = "Weibull"


@dataclass(frozen=True, slots=True)
class RateWindow:
    """Arrivals from ``start_s`` to ``end_s``: ``rate_per_s`` requests a second in gaps of a family and shape; rate 0: none."""

    start_s: float
    end_s: float
    rate_per_s: float
    family: GapFamily
    shape: float


@dataclass(frozen=True)
class LengthDistribution:
    """Lengths in tokens with their probabilities, shape [n] each."""

    tokens: Integers
    probabilities: Floats


@dataclass(frozen=True)
class LengthWindow:
    """Lengths of the requests that arrive from ``start_s`` on."""

    start_s: float
    inputs: LengthDistribution
    outputs: LengthDistribution


@dataclass(frozen=True)
class ClientProfile:
    """A client; windows are sorted by their start."""

    name: str
    rates: tuple[RateWindow, ...]
    lengths: tuple[LengthWindow, ...]


def profile_workload(
    profiles: Sequence[ClientProfile], source: str, seed: int, duration_s: float, start_s: float = 0.0
) -> Workload:
    """The requests of ``duration_s`` seconds from ``start_s`` of the profiles on. Raises WorkloadError."""
    expected = sum(_expected(profile, start_s, start_s + duration_s) for profile in profiles)
    if expected > MOST_REQUESTS:
        raise WorkloadError(
            f"{source}: ", Field("duration"), f" {duration_s:g} makes {expected:,.0f} requests, more than {MOST_REQUESTS:,}"
        )
    drawn = [_draw(profile, number, seed, (start_s, start_s + duration_s)) for number, profile in enumerate(profiles)]
    arrival_s = np.concatenate([arrays[0] for arrays in drawn])
    if not arrival_s.size:
        raise WorkloadError(
            f"{source}: has no request in {duration_s:g} s from {start_s:g} s on; ",
            Field("start"),
            " and ",
            Field("duration"),
            " choose them",
        )
    order = np.argsort(arrival_s, kind="stable")
    arrival_ns = np.rint((arrival_s[order] - start_s) * 1e9).astype(np.int64)
    clients = np.repeat(np.arange(len(profiles)), [arrays[0].size for arrays in drawn])[order]
    return Workload.of_columns(
        WorkloadFacts("servegen", f"{source}, seed {seed}, {duration_s:g} s from {start_s:g} s"),
        arrival_ns.size,
        {
            "arrival_ns": arrival_ns - arrival_ns[0],
            "input_tokens": np.concatenate([arrays[1] for arrays in drawn])[order],
            "output_tokens": np.concatenate([arrays[2] for arrays in drawn])[order],
            "request_class": [profiles[client].name for client in clients.tolist()],
        },
    )


def _draw(profile: ClientProfile, number: int, seed: int, span_s: tuple[float, float]) -> tuple[Floats, Integers, Integers]:
    """Arrivals in s, and both lengths of each request of one client."""
    arrival_s = np.concatenate(
        [np.zeros(0), *_arrivals(profile, generator(seed, Stream.CLIENT_PROFILES, number, _ARRIVALS), span_s)]
    )
    lengths = generator(seed, Stream.CLIENT_PROFILES, number, _LENGTHS)
    starts = np.array([window.start_s for window in profile.lengths])
    window_of = np.clip(np.searchsorted(starts, arrival_s, side="right") - 1, 0, None)
    inputs, outputs = np.zeros(arrival_s.size, np.int64), np.zeros(arrival_s.size, np.int64)
    for place in np.unique(window_of).tolist():
        here = window_of == place
        for drawn, distribution in ((inputs, profile.lengths[place].inputs), (outputs, profile.lengths[place].outputs)):
            drawn[here] = lengths.choice(distribution.tokens, int(here.sum()), p=distribution.probabilities)
    return arrival_s, inputs, outputs


def _arrivals(profile: ClientProfile, random: np.random.Generator, span_s: tuple[float, float]) -> Iterator[Floats]:
    """The arrivals of each window, in s."""
    until_next: float | None = None  # in operational time
    for window in profile.rates:
        start_s, end_s = max(window.start_s, span_s[0]), min(window.end_s, span_s[1])
        if start_s >= end_s or not window.rate_per_s:
            continue
        if until_next is None:
            until_next = _residual(window, random)
        length = window.rate_per_s * (end_s - start_s)
        at = until_next + np.concatenate([[0.0], np.cumsum(_gaps(window, random, max(0.0, length - until_next)))])
        until_next = float(at[np.searchsorted(at, length, side="left")]) - length
        yield start_s + at[at < length] / window.rate_per_s


def _gaps(window: RateWindow, random: np.random.Generator, length: float) -> Floats:
    """Gaps of mean 1 whose sum exceeds ``length``."""
    parts: list[Floats] = []
    total = 0.0
    while total <= length:
        count = int(length - total + _MARGIN * np.sqrt(length - total)) + _MARGIN
        if count + sum(part.size for part in parts) > MOST_REQUESTS:
            raise WorkloadError(
                f"a client's gaps of shape {window.shape:g} make a burst of more than {MOST_REQUESTS:,} requests"
            )
        drawn = random.gamma(window.shape, 1 / window.shape, count) if window.family is GapFamily.GAMMA else None
        parts.append(random.weibull(window.shape, count) / gamma_function(1 + 1 / window.shape) if drawn is None else drawn)
        total += float(parts[-1].sum())
    return np.concatenate(parts)


def _residual(window: RateWindow, random: np.random.Generator) -> float:
    """From any moment to the next arrival: a uniform part of a gap that was drawn by its length."""
    if window.family is GapFamily.GAMMA:
        gap = random.gamma(window.shape + 1, 1 / window.shape)
    else:
        gap = random.gamma(1 + 1 / window.shape) ** (1 / window.shape) / gamma_function(1 + 1 / window.shape)
    return float(random.random() * gap)


def _expected(profile: ClientProfile, start_s: float, end_s: float) -> float:
    spans = ((max(window.start_s, start_s), min(window.end_s, end_s), window.rate_per_s) for window in profile.rates)
    return sum(max(0.0, until - begin) * rate for begin, until, rate in spans)
