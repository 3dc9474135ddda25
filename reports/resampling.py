"""Resampling a series whose neighbours are alike: what intervals of means, rates and percentiles rest on.

Requests that come one after the other wait in the same queue, so n of them tell less than n independent ones. The series
is cut into BLOCKS runs of neighbours, long enough that one block tells little of the next, and blocks are drawn instead
of values (circular block bootstrap: Politis and Romano 1992; ``arch.bootstrap``). With so few blocks the spread is itself
uncertain; as Hesterberg (2015, "What Teachers Should Know About the Bootstrap") advises, intervals are widened as
Student's t is wider than the normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Interval = tuple[float, float]
Ratio = tuple[NDArray[Any], NDArray[Any] | None]  # numerator, denominator

BLOCKS = 20
FEWEST_VALUES = 5 * BLOCKS  # below, nothing can be told of how alike neighbours are
_MOST_BINS = 50 * BLOCKS  # longer series are summed to this many bins, which changes no block's sum
_RESAMPLES = 1_000
_SEED = 0  # the same run has the same intervals at every reading
_LARGEST_BLOCK_CORRELATION = 0.5  # 20 independent blocks exceed it once in a hundred times


@dataclass(frozen=True, slots=True)
class Resampled:
    """What ratios of sums over a series might have been in other runs like this one."""

    replicates: FloatArray  # shape [resamples, ratios]
    blocks_alike: bool  # neighbouring blocks are correlated: the series is too short, or it drifts

    def interval(self, ratio: int, confidence: float) -> Interval:
        """Percentile interval of one ratio, widened for the number of blocks."""
        tail = _widened_tail(confidence)
        low, high = np.quantile(self.replicates[:, ratio], [tail, 1.0 - tail])
        return float(low), float(high)

    def variance(self, ratio: int) -> float:
        """Variance of one ratio over runs like this one."""
        return float(self.replicates[:, ratio].var() * BLOCKS / (BLOCKS - 1))


def resample_ratios(ratios: Sequence[Ratio]) -> Resampled:
    """Resample Σ numerator / Σ denominator of each ratio; without a denominator it is the mean of the numerator.

    All columns have the same shape [n], n ≥ BLOCKS, in the order in which the values came. No Σ denominator may be 0.
    """
    size = ratios[0][0].size
    bins = min(_MOST_BINS, size) // BLOCKS * BLOCKS
    starts = np.arange(bins) * size // bins
    counts = np.diff(starts, append=size).astype(np.float64)

    def binned(column: NDArray[Any] | None) -> FloatArray:
        return counts if column is None else np.add.reduceat(column, starts, dtype=np.float64)

    sums = np.stack([binned(column) for ratio in ratios for column in ratio], axis=1)
    return Resampled(_replicates(sums), _blocks_alike(sums))


def student_to_normal(confidence: float) -> float:
    """How much wider Student's t with BLOCKS − 1 degrees of freedom is than the normal distribution."""
    from scipy.stats import norm, t

    upper = (1.0 + confidence) / 2.0
    return float(t.ppf(upper, BLOCKS - 1) / norm.ppf(upper))


def _replicates(sums: FloatArray) -> FloatArray:
    """Ratios of resampled columns; ``sums`` has shape [bins, 2 · ratios], numerators and denominators in turn."""
    from arch.bootstrap import CircularBlockBootstrap

    totals: FloatArray = CircularBlockBootstrap(len(sums) // BLOCKS, sums, seed=_SEED).apply(_totals, _RESAMPLES)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: FloatArray = totals[:, ::2] / totals[:, 1::2]
    finite: FloatArray = ratios[np.isfinite(ratios).all(axis=1)]
    return finite


def _totals(sums: FloatArray) -> FloatArray:
    totals: FloatArray = sums.sum(axis=0)
    return totals


def _blocks_alike(sums: FloatArray) -> bool:
    """Whether blocks of the first ratio follow each other more closely than independent ones would."""
    numerators, denominators = sums.reshape(BLOCKS, -1, sums.shape[1]).sum(axis=1)[:, :2].T
    deviations = numerators - denominators * numerators.sum() / denominators.sum()
    spread = float((deviations**2).sum())
    if spread <= 1e-12 * float((numerators**2).sum()):
        return False  # rounding, not spread
    return float((deviations[1:] * deviations[:-1]).sum()) / spread > _LARGEST_BLOCK_CORRELATION


@lru_cache
def _widened_tail(confidence: float) -> float:
    from scipy.stats import norm, t

    quantile = t.ppf((1.0 + confidence) / 2.0, BLOCKS - 1) * math.sqrt(BLOCKS / (BLOCKS - 1))
    return float(norm.cdf(-quantile))
