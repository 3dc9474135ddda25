"""What the durations of steps vary by: blocks of consecutive residuals, which keep the correlation of neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from simulator.arrays import IntArray

BLOCK = 20  # steps
Seed = int | Sequence[int]


def resampled(residuals: Sequence[float], seed: Seed) -> Iterator[float]:
    """Residuals without end, in blocks of consecutive values, whose order is drawn anew each time that all were used.

    Blocks are drawn without replacement, so that no simulation has slower steps than another for all its length: with
    replacement the mean of 5,000 steps would vary by more than the fitted constant does. The first block starts at a random
    place.
    """
    pool = np.asarray(residuals, np.float64)
    for turn, order in orders(len(pool), seed):
        blocks = np.array_split(np.roll(pool, turn), len(order))
        for number in order.tolist():
            yield from blocks[number].tolist()


def orders(length: int, seed: Seed) -> Iterator[tuple[int, IntArray]]:
    """For each use of ``length`` residuals, without end: by how many places they are turned, and the order of their blocks.

    The blocks are those of ``numpy.array_split``.
    """
    random = np.random.default_rng(seed)
    while True:
        turn = int(random.integers(length))
        yield turn, random.permutation(max(1, length // BLOCK))


def seeds_of_replica(seed: int, number: int) -> tuple[Seed, Seed]:
    """The seeds of the noise of a replica's steps and of its launches."""
    return (seed, seed + 1) if number == 0 else ([seed, number], [seed + 1, number])
