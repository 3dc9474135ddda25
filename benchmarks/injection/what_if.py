"""How far a percentile without a phase lies from that of requests without the delay, beside what two equal kinds differ by.

The requests of two neighbouring windows, one with delays and one without, are a cycle. Cycles are clusters: what else the
machine does lasts longer than a request, so that requests of one window are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
_DRAWS = 2_000
_SEED = 1


@dataclass(frozen=True, eq=False)
class Latencies:
    """Latencies without one phase in ms, shape [n]: whether each request was ``delayed``, and its ``cycle``."""

    without_ms: NDArray[np.float64]
    delayed: NDArray[np.bool_]
    cycle: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The quantile of the delayed requests over that of the others, less 1. ``half_width`` is that of its 95 % interval, by a
    bootstrap of cycles. ``equal`` is how far apart two equal halves of the others are in 95 % of the ways to divide them,
    for as many requests of each kind as there are; None for fewer than four cycles.
    """

    difference: float
    half_width: float | None
    equal: float | None


def of_all(runs: Sequence[Latencies]) -> Latencies:
    """The requests of several runs against one server."""
    return Latencies(
        np.concatenate([run.without_ms for run in runs]),
        np.concatenate([run.delayed for run in runs]),
        np.concatenate([run.cycle for run in runs]),
    )


def what_if(latencies: Latencies, q: float) -> WhatIf:
    """The ``q``-quantile. Each kind has a request at least."""
    names, cycle = np.unique(latencies.cycle, return_inverse=True)
    delayed, others = (_Kind.of(latencies.without_ms[which], cycle[which]) for which in (latencies.delayed, ~latencies.delayed))
    every = np.ones((1, names.size))
    difference = float((delayed.quantiles(every, q) / others.quantiles(every, q))[0] - 1.0)
    if names.size < 4:
        return WhatIf(difference, None, None)
    rng = np.random.default_rng(_SEED)
    drawn = rng.multinomial(names.size, np.full(names.size, 1.0 / names.size), _DRAWS).astype(np.float64)
    low, high = np.nanquantile(
        delayed.quantiles(drawn, q) / others.quantiles(drawn, q), ((1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0)
    )
    return WhatIf(difference, float(high - low) / 2.0, _equal(others, names.size, q, rng))


def _equal(others: _Kind, cycles: int, q: float, rng: np.random.Generator) -> float:
    """Chance assigns one of two neighbouring cycles to the first kind, and the other one to the second."""
    first = rng.integers(0, 2, (_DRAWS, cycles // 2))
    one = np.stack([first, 1 - first], axis=2).reshape(_DRAWS, -1).astype(np.float64)
    one = np.pad(one, ((0, 0), (0, cycles - one.shape[1])))
    other = np.where(np.arange(cycles) < 2 * (cycles // 2), 1.0 - one, 0.0)
    apart = np.abs(others.quantiles(one, q) / others.quantiles(other, q) - 1.0)
    return float(np.nanquantile(apart, CONFIDENCE) / np.sqrt(2.0))  # each half has half as many requests as a kind


@dataclass(frozen=True, eq=False)
class _Kind:
    """``values`` in their order, shape [n], and the cycle of each."""

    values: NDArray[np.float64]
    cycle: NDArray[np.int64]

    @classmethod
    def of(cls, values: NDArray[np.float64], cycle: NDArray[np.int64]) -> _Kind:
        order = np.argsort(values, kind="stable")
        return cls(values[order], cycle[order])

    def quantiles(self, weights: NDArray[np.float64], q: float) -> NDArray[np.float64]:
        """The nearest-rank quantile with each cycle as often as ``weights``, shape [draws, cycles]; NaN without a value."""
        found = np.full(len(weights), np.nan)
        for draw, weight in enumerate(weights):
            ranks = np.cumsum(weight[self.cycle])
            if ranks[-1] > 0:
                found[draw] = self.values[np.searchsorted(ranks, np.ceil(q * ranks[-1]))]
        return found
