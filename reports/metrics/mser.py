"""MSER-5, a rule for the ramp of a series.

White 1997, "An effective truncation heuristic for bias reduction in simulation output".
"""

from __future__ import annotations

import numpy as np

from reports.statistics.arrays import FloatArray

RULE = "MSER-5"
BATCH = 5


def mser5(series: FloatArray) -> int | None:
    """The number of leading values to leave out, a multiple of 5; None where that is half of them.

    ``series`` has shape [n], n ≥ 50.
    """
    batches = series[: series.size // BATCH * BATCH].reshape(-1, BATCH).mean(axis=1)
    m = batches.size
    left = np.arange(m, 0, -1)
    centred = batches - batches.mean()  # so that sums of squares lose no digits
    sums, squares = (np.cumsum(values[::-1])[::-1] for values in (centred, centred**2))
    error = np.maximum(0.0, squares - sums**2 / left) / left.astype(np.float64) ** 2
    tested = error[: m // 2 + 1]
    rounding = 1e-12 * (float(squares[0]) + float(batches.mean()) ** 2) / m
    cut = int(np.argmax(tested <= tested.min() + rounding))
    return None if cut >= m // 2 - 1 else cut * BATCH
