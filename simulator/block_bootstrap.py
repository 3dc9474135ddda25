"""The bootstrap over blocks of consecutive rows, for least squares.

Neighbouring steps are alike, so blocks that do not overlap are drawn with replacement, not rows (Carlstein, "The use of
subseries values for estimating the variance of a general statistic from a stationary sequence", 1986). Normal equations are
sums over rows, so that a draw sums the products of its blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from simulator.arrays import FloatArray, IntArray

BLOCK_ROWS = 40


def block_products(columns: FloatArray, values: FloatArray, weights: FloatArray, blocks: Sequence[IntArray]) -> FloatArray:
    """AᵀWA beside AᵀWy of each of the ``blocks``, which are numbers of rows; shape [blocks, n, n + 1].

    A are the ``columns``, shape [rows, n], y the ``values`` and W the ``weights``, shape [rows] each.
    """
    weighted = columns.T * weights
    return np.stack([weighted[:, rows] @ np.column_stack([columns[rows], values[rows]]) for rows in blocks])


def drawn_products(groups: Sequence[FloatArray], draws: int, random: np.random.Generator) -> Iterator[FloatArray]:
    """``draws`` sums of blocks, shape [n, n + 1] each: of each group of blocks as many as it has, drawn with replacement."""
    for _ in range(draws):
        yield np.sum([group[random.integers(len(group), size=len(group))].sum(axis=0) for group in groups], axis=0)
