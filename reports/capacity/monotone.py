"""What probes show without a curve: loads at which the share beyond a limit is at most, or more than, the allowed one.

If the share nowhere falls as the load rises, the probes at a load and somewhat above it bound the share there from above, and
those at the load and somewhat below it from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reports.capacity.curve import Points
from reports.statistics.exceedances import Exceedances

WINDOW = 1.1
"""The ratio of the highest to the lowest load whose requests count together."""

FEWEST_EXPECTED = 20.0
"""Requests beyond the limit at the allowed share: where none of fewer came, that may be chance."""

_ENOUGH_EXPECTED = 100.0  # as many as decide by none of them, in clusters as large as is usual at capacity
_SURE_FALL = 4.0  # standard errors of a logarithm
_SHOWN_CLUSTERS = 10.0  # that the higher share must come in: fewer may be the one event of many runs
_NEIGHBOURS = 1.05  # loads whose shares differ by chance alone
_SHORT = 0.4  # of the longest probe at the lower load: in a shorter one the queue may not have reached the limit yet


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the target, beside the points: whether it keeps up with a load, and the mean design effect that requests
    beyond the limit may have there, by those in all probes, those that gave up included.
    """

    keeps_up_at: Callable[[float], bool]
    met_effect_at: Callable[[float], float]


def highest_held(points: Points, allowed: float, tail: float, known: Known) -> float | None:
    """The highest load of ``points`` at which the target keeps up and the share is at most ``allowed``; it is wrong with
    probability ``tail``, however many loads there are: they are tested one after the other, from the lowest on, until one is
    not held (a fixed sequence: Maurer, Hothorn and Lehmacher 1995).
    """

    def holds(load: float) -> bool:
        return _holds(_from(points, load, allowed), allowed, tail, known.met_effect_at(load))

    return _last_held(points, known.keeps_up_at, holds)


def _from(points: Points, load: float, allowed: float) -> Points:
    """The probes at ``load`` and at the next higher ones, of which the nearest that are together long enough to decide."""
    loads = np.unique(points.load[points.load >= load])
    requests = np.array([points.n[points.load == each].sum() for each in loads]).cumsum()
    last = loads[min(int(np.searchsorted(requests * allowed, _ENOUGH_EXPECTED)), loads.size - 1)]
    return points.chosen((points.load >= load) & (points.load <= max(last, WINDOW * load)))


def lowest_exceeded(points: Points, allowed: float, tail: float) -> float | None:
    """The lowest load at which the share is more than ``allowed``; as ``highest_held``."""
    windows = [(load, points.chosen((points.load <= load) & (points.load >= load / WINDOW))) for load in np.unique(points.load)]
    may_decide = sum(window.n.sum() * allowed >= FEWEST_EXPECTED for _, window in windows)  # these share the error
    return next((load for load, window in windows if _exceeds(window, allowed, tail / max(1, may_decide))), None)


def held_alone(points: Points, allowed: float, tail: float, known: Known) -> float | None:
    """As ``highest_held``, where the share may fall as the load rises: each load, and all lower ones, by its own probes."""

    def holds(load: float) -> bool:
        return _holds(points.chosen(points.load == load), allowed, tail, known.met_effect_at(load))

    return _last_held(points, known.keeps_up_at, holds)


def _last_held(points: Points, *tests: Callable[[float], bool]) -> float | None:
    """The last load, from the lowest on, before the first that fails one of the ``tests``."""
    held = None
    for load in np.unique(points.load):
        if not all(holds(float(load)) for holds in tests):
            break
        held = float(load)
    return held


def exceeded_alone(points: Points, allowed: float, tail: float) -> float | None:
    """The lowest load whose own probes exceed the allowed share."""
    loads = np.unique(points.load)
    for load in loads:
        if _exceeds(points.chosen(points.load == load), allowed, tail / loads.size):
            return float(load)
    return None


def falls(points: Points, allowed: float) -> bool:
    """Whether the share is lower at a load than at a lower one, in probes about as long, by more than its clusters, and what
    probes at nearly the same load differ by, explain.
    """
    loads = np.unique(points.load)
    here = [points.chosen(points.load == load) for load in loads]
    longest = np.array([each.n.max() for each in here])
    shares = [_logarithm(each, allowed) for each in here]
    noise = _noise_between_neighbours(points, allowed)
    for low, share in enumerate(shares):
        comparable = (loads > _NEIGHBOURS * loads[low]) & (longest >= _SHORT * longest[low])
        falls_by = max((share.standard_errors_above(shares[far]) for far in np.flatnonzero(comparable)), default=0.0)
        if share.clusters >= _SHOWN_CLUSTERS and falls_by > _SURE_FALL * noise:
            return True
    return False


@dataclass(frozen=True, slots=True)
class _LogarithmOfShare:
    """The logarithm of a share, of requests in this many clusters."""

    value: float
    clusters: float

    def standard_errors_above(self, other: _LogarithmOfShare) -> float:
        """How many standard errors of the difference it is larger than another one by."""
        return (self.value - other.value) / math.sqrt(1.0 / (self.clusters + 0.5) + 1.0 / (other.clusters + 0.5))


def _logarithm(points: Points, allowed: float) -> _LogarithmOfShare:
    above = float(points.above.sum())
    return _LogarithmOfShare(math.log((above + 0.5) / points.n.sum()), above / points.dispersion(allowed))


def _noise_between_neighbours(points: Points, allowed: float) -> float:
    """How many times as much as by their clusters the shares of single probes at nearly the same load differ, at least 1."""
    order = np.argsort(points.load, kind="stable")
    loads = points.load[order]
    shares = [_logarithm(points.chosen(np.arange(points.size) == each), allowed) for each in order]
    near = np.flatnonzero(loads[1:] <= _NEIGHBOURS * loads[:-1])
    if not near.size:
        return 1.0
    differences = np.array([shares[k + 1].standard_errors_above(shares[k]) for k in near])
    return max(1.0, float(np.sqrt(np.mean(differences**2))))


def _together(points: Points, effect: float) -> Exceedances:
    return Exceedances(int(points.n.sum()), int(points.above.sum()), effect, effect)


def _holds(points: Points, allowed: float, tail: float, met: float) -> bool:
    """Whether so few are beyond the limit by chance, if they come in clusters of at least the ``met`` design effect."""
    together = _together(points, max(met, points.dispersion(allowed)))
    return bool(np.isfinite(points.effect).any()) and together.at_most(allowed) <= tail


def _exceeds(points: Points, allowed: float, tail: float) -> bool:
    together = _together(points, points.dispersion(allowed))
    return together.share > allowed and together.at_least(allowed) <= tail
