"""What the durations of steps vary by: blocks of consecutive residuals, which keep the correlation of neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

BLOCK = 20  # steps


def resampled(residuals: Sequence[float], seed: int | Sequence[int]) -> Iterator[float]:
    """Residuals without end, in blocks of consecutive values, whose order is drawn anew each time that all were used.

    Blocks are drawn without replacement, so that no simulation has slower steps than another for all its length: with
    replacement the mean of 5,000 steps would vary by more than the fitted constant does. The first block starts at a random
    place.
    """
    pool = np.asarray(residuals, np.float64)
    random = np.random.default_rng(seed)
    while True:
        turned = np.roll(pool, int(random.integers(len(pool))))
        blocks = np.array_split(turned, max(1, len(pool) // BLOCK))
        for number in random.permutation(len(blocks)).tolist():
            yield from blocks[number].tolist()
