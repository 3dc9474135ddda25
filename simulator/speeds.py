"""How far the speed of a server moved between the runs of a fit.

A power cap, heat or another tenant of a machine makes all steps of a run longer or shorter alike, for a whole run. A bootstrap
within runs does not show it, nor do halves of the same runs. Two runs or more do: the law of a step is fitted to all of them
with a factor of each run, and what the factors differ by beyond their own error is how far another run's may lie.

Two runs show their own spread badly. Where the speed wanders within a run, too, its parts show more of it: the variance of a
part is that between runs and that within them, with the degrees of freedom of their sum (Satterthwaite, "An approximate
distribution of estimates of variance components", 1946). A run varies no more than its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reports.statistics.probability import chi_squared_tail
from simulator.arrays import FloatArray
from simulator.block_bootstrap import BLOCK_ROWS, block_products, drawn_products

_FEWEST_BLOCKS = 5  # of a run, or part, whose speed is known: fewer show no error of their own
_PARTS = 5  # of a run: shorter ones are further from the whole run that is predicted
_DRAWS = 100
_CHANCE = 0.05  # by which equal speeds may count as different
_EXACT = 1e-12
_LEAST = 0.003  # of a step: recovering steps from tokens is as wrong


@dataclass(frozen=True, eq=False)
class RunRows:
    """The steps of a run, in the order of time, at a law that was fitted to all runs.

    ``columns`` are the derivatives of a step's predicted duration, or arrival, by each constant, shape [rows, constants],
    ``by_speed`` those by the logarithm of the time that the engine takes, shape [rows], ``residuals_s`` what was measured less
    what is predicted, and ``weights`` those of the fit.
    """

    columns: FloatArray
    by_speed: FloatArray
    residuals_s: FloatArray
    weights: FloatArray


@dataclass(frozen=True)
class Spread:
    """The standard deviation of the logarithm of the time of a further run's steps, with its degrees of freedom."""

    deviation: float
    degrees: float


@dataclass(frozen=True, eq=False)
class Speeds:
    """The logarithms of the time that each run's steps take beside the mean of all runs, shape [runs], and their errors.
    Runs of few steps are none of them. ``within`` is the variance between the parts of a run beyond their own errors, the mean
    over the runs; 0 where the runs are too short for parts.
    """

    logs: FloatArray
    errors: FloatArray
    within: float = 0.0

    def spread(self) -> Spread | None:
        """What a further run may differ by; None where the runs do not show that there is anything beyond their errors."""
        runs = len(self.logs)
        if runs < 2:
            return None
        squares = ((self.logs / np.maximum(self.errors, _EXACT)) ** 2).sum() * (runs - 1) / runs
        chance = chi_squared_tail(float(squares), runs - 1)
        between = max(0.0, float(self.logs.var(ddof=1) - (self.errors**2).sum() / (runs - 1)))
        if chance >= _CHANCE or between <= _LEAST**2:
            return None
        within = self.within * (1 - 1 / _PARTS)
        degrees = (between + within) ** 2 / (between**2 / (runs - 1) + within**2 / (runs * (_PARTS - 1)))
        return Spread(float(np.sqrt(between + within)), max(degrees, runs - 1.0))


def speeds_of(runs: Sequence[RunRows], seed: int) -> Speeds:
    """By one Gauss-Newton step from the law of all runs, to a law with a factor of each; errors by a bootstrap of blocks. Runs
    of few steps are left out.
    """
    runs = [run for run in runs if len(run.by_speed) >= _FEWEST_BLOCKS * BLOCK_ROWS]
    if len(runs) < 2:
        return Speeds(np.zeros(len(runs)), np.zeros(len(runs)))
    logs, errors = _logs_and_errors(runs, seed)
    if min(len(run.by_speed) for run in runs) < _PARTS * _FEWEST_BLOCKS * BLOCK_ROWS:
        return Speeds(logs, errors)
    of_parts, their_errors = _logs_and_errors([part for run in runs for part in _parts(run)], seed)
    within = of_parts.reshape(-1, _PARTS).var(axis=1, ddof=1).mean() - (their_errors**2).mean()
    return Speeds(logs, errors, max(0.0, float(within)))


def _parts(run: RunRows) -> list[RunRows]:
    """_PARTS of a run, one after another, of equal numbers of steps."""
    fields = (run.columns, run.by_speed, run.residuals_s, run.weights)
    return [RunRows(*part) for part in zip(*(np.array_split(each, _PARTS) for each in fields), strict=True)]


def _logs_and_errors(runs: Sequence[RunRows], seed: int) -> tuple[FloatArray, FloatArray]:
    """The logarithm of the time of each of the ``runs``, or parts of runs, and its error; shape [runs] each."""
    blocks = [_products(run, number, len(runs)) for number, run in enumerate(runs)]
    logs = _solve(sum(each.sum(axis=0) for each in blocks), len(runs))
    drawn = drawn_products(blocks, _DRAWS, np.random.default_rng(seed))
    return logs, np.std([_solve(products, len(runs)) for products in drawn], axis=0)


def _products(run: RunRows, number: int, runs: int) -> FloatArray:
    """The products of each block of a run, with the constants as the first columns, and then the runs."""
    speeds = np.zeros((len(run.by_speed), runs))
    speeds[:, number] = run.by_speed
    columns = np.column_stack([run.columns, speeds])
    blocks = np.array_split(np.arange(len(columns)), len(columns) // BLOCK_ROWS)
    return block_products(columns, run.residuals_s, run.weights, blocks)


def _solve(products: FloatArray, runs: int) -> FloatArray:
    """The logarithms of the runs' speeds, whose sum is 0."""
    gram, right = products[:, :-1], products[:, -1]
    scale = np.sqrt(np.maximum(np.diag(gram), np.finfo(float).tiny))
    found = np.linalg.pinv(gram / np.outer(scale, scale), rcond=1e-10, hermitian=True) @ (right / scale) / scale
    logs: FloatArray = found[-runs:] - found[-runs:].mean()
    return logs
