"""Arrivals as an origin recorded them: their order, and the grid to which it rounded them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]

_LEAST_INSTANTS = 10
_LEAST_SHARED = 0.01  # of the requests have an instant in common with the one before them
_LEAST_ON_GRID = 0.99  # of the gaps between instants are multiples of the tick
_LEAST_UNITS = 10  # of the file's resolution make a tick that is not this resolution itself


def order_of_arrival(arrival_ns: Times) -> NDArray[np.intp] | None:
    """The order that sorts the arrivals, with equal ones in the order of the file; None where they are sorted."""
    if arrival_ns.size < 2 or bool((np.diff(arrival_ns) >= 0).all()):
        return None
    return np.argsort(arrival_ns, kind="stable")


def find_tick_ns(arrival_ns: Times) -> int | None:
    """The grid to which sorted arrivals were rounded; None where they were not.

    Requests share instants, and the gaps between instants are multiples of the tick. They may be off by two units of the file's
    resolution, as in Mooncake's conversation trace, with instants 2,999 to 3,001 ms apart.
    """
    gaps = np.diff(arrival_ns)
    between = gaps[gaps > 0]
    if between.size < _LEAST_INSTANTS - 1 or between.size > (1 - _LEAST_SHARED) * gaps.size:
        return None
    unit = int(np.gcd.reduce(between))
    tick = int(np.median(between))
    off = np.abs(between - np.maximum(1, np.rint(between / tick)) * tick)
    if tick >= _LEAST_UNITS * unit and float((off <= 2 * unit).mean()) >= _LEAST_ON_GRID:
        return tick
    return unit if unit >= _COARSE_NS else None


_COARSE_NS = 10_000_000  # a finer resolution does not change what a server experiences
