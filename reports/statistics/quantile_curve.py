"""A distribution's shape in at most a thousand points, each an order statistic: exact, and close together in the tail."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_ALL_BELOW = 1_000
_EVENLY = 400
_TAIL = 300  # the largest values, all of them
_TOWARDS_TAIL = 200
NAMED_PERCENTILES = (0.50, 0.90, 0.95, 0.99, 0.999)


@dataclass(frozen=True, eq=False)
class Curve:
    """The values of some ranks, shape [m] each, rising: value ``values[i]`` has rank ``ranks[i]`` (from 1) among ``n``.

    ``n`` counts failed requests too, which rank after all values and have none.
    """

    ranks: NDArray[np.int64]
    values: NDArray[np.float64]
    n: int

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of requests at or below each value."""
        shares: NDArray[np.float64] = self.ranks / self.n
        return shares

    @property
    def thinned(self) -> bool:
        return self.ranks.size > 0 and self.ranks.size < int(self.ranks[-1])


def curve_of(ordered: NDArray[np.float64], n: int) -> Curve:
    """The curve of sorted values, shape [values]: all of up to a thousand; else those of the named percentiles, the largest
    300 and the smallest, and others, evenly and ever closer towards the tail. ``n`` counts requests without a value too.
    """
    ranks = _ranks(ordered.size, n)
    return Curve(ranks, ordered[ranks - 1], n)


def nearest_rank_of(q: float, n: int) -> int:
    """The rank of the q-quantile among n, from 1: upstream's ceil(q·n)."""
    # rounded to remove the binary error: 0.07·100 is 7.000000000000001, whose ceiling would be 8
    return max(1, math.ceil(round(q * n, 9)))


def value_at_rank(ordered: NDArray[np.float64], rank: float) -> float:
    """The value at a ``rank`` between 1 and the number of sorted values, between two of them in proportion."""
    lower, part = float(ordered[math.floor(rank) - 1]), rank % 1.0
    if part == 0.0 or math.isinf(lower):
        return lower
    return lower + part * (float(ordered[math.floor(rank)]) - lower)


def _ranks(count: int, n: int) -> NDArray[np.int64]:
    if count <= _ALL_BELOW:
        return np.arange(1, count + 1)
    towards_tail = count + 1 - np.geomspace(_TAIL, count, _TOWARDS_TAIL)
    named = [rank for q in NAMED_PERCENTILES if (rank := nearest_rank_of(q, n)) <= count]
    chosen = np.concatenate([np.linspace(1, count, _EVENLY), towards_tail, np.arange(count - _TAIL + 1, count + 1), named])
    ranks: NDArray[np.int64] = np.unique(np.round(chosen).astype(np.int64))
    return ranks
