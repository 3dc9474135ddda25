"""The search for capacity: the highest load at which the limits hold, from what all probes show together.

Everything here is a function of the probes so far: a search that was cut short goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from reports.capacity.probe import Probe


class Shape(StrEnum):
    """How the share beyond a limit depends on the load.

    CROSSING: it rises through the allowed share. FLAT: it rises so little near there that the limit does not decide. CLIFF: the
    limit is met until the queue grows. NOT_MONOTONE: it is lower at a higher load than chance explains. ALWAYS_HELD: no
    load that was tried is too high. NEVER_HELD: the lowest load that was tried is too high. UNKNOWN: too few probes.
    """

    CROSSING = "crossing"
    FLAT = "flat"
    CLIFF = "cliff"
    NOT_MONOTONE = "not monotone"
    ALWAYS_HELD = "always held"
    NEVER_HELD = "never held"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Goal:
    """What a search is to find: the load at which each limit is exceeded by at most its ``allowed`` share of the requests.

    ``limits`` are their positions in ``Probe.violations``. The bracket of the search as a whole, over all its looks, is right
    with probability ``confidence``; it is to have at most ``ratio`` between its ends (1.2 for ±10 %).
    """

    limits: tuple[int, ...]
    allowed: tuple[float, ...]
    confidence: float = 0.95
    ratio: float = 1.2


@dataclass(frozen=True, slots=True)
class Curve:
    """The share beyond one limit at a load, as fitted: exp(intercept + slope · ln load).

    ``crossing`` is the load at which it is the allowed share, within ``low`` and ``high``; an end is None where the probes give
    none. ``clusters`` is how many independent events beyond the limit the probes near the crossing hold.
    """

    shape: Shape
    intercept: float | None = None
    slope: float | None = None
    crossing: float | None = None
    low: float | None = None
    high: float | None = None
    clusters: float | None = None


@dataclass(frozen=True, slots=True)
class Bracket:
    """What the probes show: the highest load ``certified`` to hold every limit, and the lowest ``refused``; None is unknown.

    ``binding`` is the position among the goal's limits of the one that decides. ``more_requests`` is an estimate of the further
    requests that the goal's ratio needs; None where no number is known to reach it.
    """

    curves: tuple[Curve, ...]
    certified: float | None
    refused: float | None
    estimate: float | None
    binding: int | None
    shape: Shape
    more_requests: int | None

    @property
    def ratio(self) -> float | None:
        """refused / certified; None where an end is unknown."""
        return None if not self.certified or self.refused is None else self.refused / self.certified


@dataclass(frozen=True, slots=True)
class NextProbe:
    """The probe that teaches most: its load, and its number of requests, ramp included."""

    load: float
    requests: int


def bracket(probes: Sequence[Probe], goal: Goal) -> Bracket:
    """What ``probes`` show together. Works with any loads that were measured, as those of a sweep, too."""
    raise NotImplementedError


def next_probe(probes: Sequence[Probe], goal: Goal, first_load: float, most_requests: int) -> NextProbe | None:
    """The probe after ``probes``, of at most ``most_requests``; None where the goal is reached, or cannot be.

    ``first_load`` is a guess from which the search starts, such as half the throughput of a closed loop.
    """
    raise NotImplementedError
