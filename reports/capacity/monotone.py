"""What probes show without a curve: loads at which the share beyond a limit is at most, or more than, the allowed one.

If the share nowhere falls as the load rises, the probes at a load and somewhat above it bound the share there from above, and
those at the load and somewhat below it from below.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from reports.capacity.curve import Points
from reports.statistics.arrays import FloatArray
from reports.statistics.exceedances import Exceedances

_WINDOW = 1.1  # of loads whose requests count together
_FEWEST_EXPECTED = 20.0  # requests beyond the limit at the allowed share: where none of fewer came, that may be chance
_ENOUGH_EXPECTED = 100.0  # as many as decide by none of them, in clusters as large as is usual at capacity
_SURE_FALL = 4.0  # standard errors of a logarithm
_SHOWN_CLUSTERS = 10.0  # that the higher share must come in: fewer may be the one event of many runs
_NEIGHBOURS = 1.05  # loads whose shares differ by chance alone


def highest_held(points: Points, allowed: float, tail: float, keeps_up_at: Callable[[float], bool]) -> float | None:
    """The highest load of ``points`` at which the target keeps up and the share is at most ``allowed``; it is wrong with
    probability ``tail``, however many loads there are: they are tested one after the other, from the lowest on, until one is
    not held (a fixed sequence: Maurer, Hothorn and Lehmacher 1995).
    """
    return _last_held(points, keeps_up_at, lambda load: _holds(_from(points, load, allowed), allowed, tail))


def _from(points: Points, load: float, allowed: float) -> Points:
    """The probes at ``load`` and at the next higher ones, of which the nearest that are together long enough to decide."""
    loads = np.unique(points.load[points.load >= load])
    requests = np.array([points.n[points.load == each].sum() for each in loads]).cumsum()
    last = loads[min(int(np.searchsorted(requests * allowed, _ENOUGH_EXPECTED)), loads.size - 1)]
    return points.chosen((points.load >= load) & (points.load <= max(last, _WINDOW * load)))


def lowest_exceeded(points: Points, allowed: float, tail: float) -> float | None:
    """The lowest load at which the share is more than ``allowed``; as ``highest_held``."""
    windows = [
        (load, points.chosen((points.load <= load) & (points.load >= load / _WINDOW))) for load in np.unique(points.load)
    ]
    may_decide = sum(window.n.sum() * allowed >= _FEWEST_EXPECTED for _, window in windows)  # these share the error
    return next((load for load, window in windows if _exceeds(window, allowed, tail / max(1, may_decide))), None)


def held_alone(points: Points, allowed: float, tail: float, keeps_up_at: Callable[[float], bool]) -> float | None:
    """As ``highest_held``, where the share may fall as the load rises: each load, and all lower ones, by its own probes."""
    return _last_held(points, keeps_up_at, lambda load: _holds(points.chosen(points.load == load), allowed, tail))


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
    """Whether the share is lower at a load than at a lower one, by more than its clusters, and what probes at nearly the same
    load differ by, explain.
    """
    loads = np.unique(points.load)
    here = [points.chosen(points.load == load) for load in loads]
    logarithms = np.array([math.log((each.above.sum() + 0.5) / each.n.sum()) for each in here])
    clusters = np.array([each.above.sum() / each.dispersion(allowed) for each in here])
    errors = np.sqrt(1.0 / (clusters + 0.5))
    noise = _noise_between_neighbours(loads, logarithms, errors)
    for low in np.flatnonzero(clusters >= _SHOWN_CLUSTERS):
        far = loads > _NEIGHBOURS * loads[low]
        fall = (logarithms[low] - logarithms[far]) / np.hypot(errors[low], errors[far])
        if (fall > _SURE_FALL * noise).any():
            return True
    return False


def _noise_between_neighbours(loads: FloatArray, logarithms: FloatArray, errors: FloatArray) -> float:
    """How many times as much as by their clusters the shares at neighbouring loads differ, at least 1."""
    near = loads[1:] <= _NEIGHBOURS * loads[:-1]
    if not near.any():
        return 1.0
    differences = (np.diff(logarithms) / np.hypot(errors[1:], errors[:-1]))[near]
    return max(1.0, float(np.sqrt(np.mean(differences**2))))


def _together(points: Points, allowed: float) -> Exceedances:
    effect = points.dispersion(allowed)
    return Exceedances(int(points.n.sum()), int(points.above.sum()), effect, effect)


def _holds(points: Points, allowed: float, tail: float) -> bool:
    return bool(np.isfinite(points.effect).any()) and _together(points, allowed).at_most(allowed) <= tail


def _exceeds(points: Points, allowed: float, tail: float) -> bool:
    together = _together(points, allowed)
    return together.share > allowed and together.at_least(allowed) <= tail
