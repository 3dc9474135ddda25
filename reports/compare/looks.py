"""Looks at an experiment after each block, and what they cost, so that it may end when it is decided.

Who looks after each block, and stops at the first difference that a 5 % test shows, calls equal servers different in far more
than 5 % of experiments. Here the 5 % are spent over the looks (Lan and DeMets 1983): by the k-th of at most K blocks
5 % · √(k / K). Early looks get more than their share, since a test of 3 blocks has 2 degrees of freedom and finds large
differences alone. The level of a look's own t-test follows from simulated blocks without a difference, whose variance is as
unknown as that of an experiment's. Interval and p-value are the repeated ones (Jennison and Turnbull 1989): with 95 %
probability the intervals of all looks contain the difference, so they hold whatever made the experiment end.

The measure that decides has most of the 5 %, and the others share the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from reports.compare.spread import Interval, Spread
from reports.statistics.arrays import FloatArray
from reports.statistics.probability import student_tail_of

FIRST_LOOK = 3
"""Blocks before the first look: of two the test has one degree of freedom, and shows nothing."""

PREFERRED = ("p99_ttft", "p99_e2e", "p50_ttft", "p50_e2e")
"""The latency that a comparison is about: the first of these that has an error."""

DECIDING_SHARE = 0.8

_SIMULATED, _SEED = 100_000, 1983
_LEVELS = (0.5, 0.2, 0.1, 0.05, 0.04, 0.02, 0.01)  # of all looks together; below the last the looks' levels are added up


@dataclass(frozen=True, slots=True)
class Looks:
    """An experiment of at most ``most`` blocks, which ends when the measure of the name ``measure`` is decided; None: the first
    of PREFERRED that has an error.
    """

    most: int
    measure: str | None = None

    def level(self, block: int, together: float) -> float:
        """The significance of the test after ``block`` blocks where all looks have ``together``; 0 where none is made."""
        if not FIRST_LOOK <= block <= self.most:
            return 0.0
        own = _levels(self.most)[:, block - FIRST_LOOK]
        if together < _LEVELS[-1]:
            return together * self._share(block)
        return float(np.exp(np.interp(math.log(together), np.log(_LEVELS)[::-1], np.log(own)[::-1])))

    def together(self, block: int, own: float) -> float:
        """The significance of all looks at which the test after ``block`` blocks has ``own``: the repeated p-value."""
        if not FIRST_LOOK <= block <= self.most:
            return 1.0
        levels = _levels(self.most)[:, block - FIRST_LOOK]
        if own >= levels[0]:
            return max(own, _LEVELS[0])
        if own < levels[-1]:
            return min(own / self._share(block), _LEVELS[-1])
        return float(np.exp(np.interp(math.log(own), np.log(levels)[::-1], np.log(_LEVELS)[::-1])))

    def at(self, spread: Spread, blocks: int) -> Spread:
        """The spread of paired blocks, with what the looks cost."""
        return SpreadAtLook(spread.estimate, spread.error, spread.freedom, spread.evidence, self, blocks)

    def weights(self, errors: Mapping[str, float]) -> dict[str, float]:
        """The parts of the significance that measures have, by name; ``errors`` are those of their differences."""
        chosen = self.deciding(errors)
        if chosen is None or len(errors) == 1:
            return {name: 1.0 / len(errors) for name in errors}
        rest = (1.0 - DECIDING_SHARE) / (len(errors) - 1)
        return {name: DECIDING_SHARE if name == chosen else rest for name in errors}

    def deciding(self, errors: Mapping[str, float]) -> str | None:
        """The name of the measure that decides; None where it has no error."""
        names = PREFERRED if self.measure is None else (self.measure,)
        return next((name for name in names if name in errors and 0.0 < errors[name] < math.inf), None)

    def _share(self, block: int) -> float:
        """The part of the significance that the look after ``block`` blocks adds to that of the looks before it."""
        return _spent(block, self.most) - (0.0 if block == FIRST_LOOK else _spent(block - 1, self.most))


@dataclass(frozen=True)
class SpreadAtLook(Spread):
    """The spread of ``blocks`` paired blocks, whose p-value and intervals hold at all looks together."""

    looks: Looks
    blocks: int

    @property
    def p_value(self) -> float:
        return self.looks.together(self.blocks, super().p_value)

    def interval(self, confidence: float) -> Interval:
        return super().interval(1.0 - self.looks.level(self.blocks, 1.0 - confidence))

    def smallest_shown(self, significance: float) -> float:
        return super().smallest_shown(self.looks.level(self.blocks, significance))


def weighted_holm(p_values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Adjusted p-values, in the order given: at most 5 % of families of equal measures have one below 0.05 (Holm 1979)."""
    adjusted = [0.0] * len(p_values)
    largest, left = 0.0, sum(weights)
    for index in sorted(range(len(p_values)), key=lambda k: p_values[k] / weights[k]):
        largest = max(largest, min(1.0, p_values[index] / weights[index] * left))
        adjusted[index] = largest
        left -= weights[index]
    return adjusted


def _spent(block: int, most: int) -> float:
    return math.sqrt(block / most)


@lru_cache(maxsize=4)
def _levels(most: int) -> FloatArray:
    """The levels of the looks' own tests, shape [_LEVELS, looks], from blocks without a difference."""
    p_values = _p_values(most)
    found = np.empty((len(_LEVELS), most - FIRST_LOOK + 1))
    for row, together in zip(found, _LEVELS, strict=True):
        left = np.ones(_SIMULATED, dtype=np.bool_)
        for look, of_look in enumerate(p_values):
            open_p = of_look[left]
            to_stop = round(together * _spent(look + FIRST_LOOK, most) * _SIMULATED) - (_SIMULATED - open_p.size)
            row[look] = np.partition(open_p, to_stop)[to_stop] if to_stop < open_p.size else 1.0
            left &= of_look >= row[look]
    return found


def _p_values(most: int) -> FloatArray:
    """Two-sided p-values of t-tests of growing numbers of blocks, shape [looks, _SIMULATED]."""
    rng = np.random.default_rng(_SEED)
    total, squares = np.zeros(_SIMULATED), np.zeros(_SIMULATED)
    found = []
    for block in range(1, most + 1):
        difference = rng.standard_normal(_SIMULATED)
        total += difference
        squares += difference**2
        if block >= FIRST_LOOK:
            error = np.sqrt((squares - total**2 / block) / (block - 1) / block)
            found.append(2.0 * student_tail_of(np.abs(total) / block / error, block - 1.0))
    return np.array(found)
