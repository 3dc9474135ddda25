"""The law of an engine that launches a step while the one before it runs, fitted to the arrivals of the steps' first responses.

The host decides and launches step j when it has sent the tokens of step j - 2. It sends those of step j - 1 when that one has
ended and step j is launched. So a prompt, whose step takes the host long to launch, lengthens the interval before the step of
its first token, and shortens the next one. Arrivals are predicted one step ahead:

    end(j) = max(max(end(j - 1), at(j - 2)) + duration(j), at(j - 2) + launch(j))
    at(j) = max(end(j), at(j - 1) + launch(j + 1))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from simulator.arrays import BoolArray, FloatArray
from simulator.server import StepLaw
from simulator.step_law import DRAWS_OF_A_RUN, FEWEST_ROWS, FittedLaw, outlier_limit, usable_steps, widened
from simulator.steps import Steps

TERMS = ("step", "prefill", "sequence", "launch")
LARGE = "launch_large"
FREE_PREFILLS = (0, 64, 128, 256)
LARGE_STEPS = (256, 512, 1024, 2048)
_LEAST_GAIN = 0.01  # of the error, for another structure
_SCALE_S = 0.5e-3  # of the loss, beyond which residuals count less than by their squares
_BLOCK_STEPS = 40
_EVALUATIONS = 60  # at most; with 12, fits of simulated servers had not converged
_STEPS_AHEAD = 2
_DERIVATIVE_STEP = 1e-3  # relative


@dataclass(frozen=True, eq=False)
class _Arrivals:
    """The steps of a run as lists, for the recursion, and which of them are compared."""

    at_s: list[float]
    sequences: list[float]
    prefill: list[float]
    tokens: list[float]
    usable: BoolArray


def fit_launch_law(runs: Sequence[Steps], draws: int, seed: int) -> FittedLaw:
    """The law, and ``draws`` of it by the bootstrap, as far apart as single runs differ."""
    arrivals = [_arrivals(steps) for steps in runs]
    base = _structure(arrivals)
    law = _fit(base, arrivals, draws, seed)
    alone = [[run] for run in arrivals if np.count_nonzero(run.usable) >= FEWEST_ROWS]
    return widened(law, [_as_far_as_shown(_fit(base, run, DRAWS_OF_A_RUN, seed), law) for run in alone])


def _as_far_as_shown(alone: FittedLaw, law: FittedLaw) -> FittedLaw:
    """The law of a run alone, with the coefficients of ``law`` for what the run does not hold, as large steps."""
    return replace(alone, coefficients=np.where(alone.draws.std(axis=0) > 0, alone.coefficients, law.coefficients))


def _fit(base: StepLaw, arrivals: Sequence[_Arrivals], draws: int, seed: int) -> FittedLaw:
    terms = _terms(base)
    found = _solve(base, arrivals)
    law = _law(base, found)
    residuals, is_launch, launches = _residuals(law, arrivals)
    limit = outlier_limit(np.abs(residuals[~is_launch]))
    kept = ~is_launch & (np.abs(residuals) <= limit)
    own = residuals[kept]
    loads = np.concatenate([np.array(run.sequences)[run.usable] for run in arrivals])
    relative = residuals[is_launch] / launches[is_launch]
    return FittedLaw(
        terms=terms,
        base=base,
        coefficients=found,
        draws=_bootstrap(base, found, arrivals, draws, seed),
        residuals_s=own - own.mean(),
        residual_loads=loads[kept],
        launch_residuals=relative - relative.mean() if len(relative) else np.zeros(1),
        outliers=int(np.count_nonzero(~is_launch & ~kept)),
        rows=len(residuals),
    )


def held_out_launch_errors_s(runs: Sequence[Steps]) -> FloatArray:
    """The absolute error of each usable step, by the law of the other half of its run; shape [rows]."""
    arrivals = [_arrivals(steps) for steps in runs]
    return _held_out(_structure(arrivals), arrivals)


def _arrivals(steps: Steps) -> _Arrivals:
    usable = usable_steps(steps)
    usable[: _STEPS_AHEAD + 1] = False
    usable[-1:] = False
    tokens = steps.prefill + steps.decoding
    return _Arrivals(steps.at_s.tolist(), steps.sequences.tolist(), steps.prefill.tolist(), tokens.tolist(), usable)


def _structure(arrivals: Sequence[_Arrivals]) -> StepLaw:
    """From where a launch takes longer, then how many prompt tokens are free: what is clearly better than none."""
    base = StepLaw(step=0.0)
    most = max(max(run.tokens) for run in arrivals)
    base = _best(base, [replace(base, large_step=large) for large in LARGE_STEPS if large < most], arrivals)
    return _best(base, [replace(base, free_prefill=free) for free in FREE_PREFILLS[1:]], arrivals)


def _best(base: StepLaw, candidates: Sequence[StepLaw], arrivals: Sequence[_Arrivals]) -> StepLaw:
    error = _error(base, arrivals)
    for candidate in candidates:
        found = _error(candidate, arrivals)
        if found < (1 - _LEAST_GAIN) * error:
            base, error = candidate, found
    return base


def _error(base: StepLaw, arrivals: Sequence[_Arrivals]) -> float:
    residuals, _, _ = _residuals(_law(base, _solve(base, arrivals)), arrivals)
    errors = np.abs(residuals)
    return float(np.minimum(errors, outlier_limit(errors)).mean())


def _held_out(base: StepLaw, arrivals: Sequence[_Arrivals]) -> FloatArray:
    errors = []
    for run in arrivals:
        is_early = np.arange(len(run.usable)) < len(run.usable) // 2
        early, late = replace(run, usable=run.usable & is_early), replace(run, usable=run.usable & ~is_early)
        for fitted, judged in ((late, early), (early, late)):
            residuals, _, _ = _residuals(_law(base, _solve(base, [fitted])), [judged])
            errors.append(np.abs(residuals))
    return np.concatenate(errors)


def _terms(base: StepLaw) -> tuple[str, ...]:
    return TERMS if base.large_step is None else (*TERMS, LARGE)


def _law(base: StepLaw, coefficients: FloatArray) -> StepLaw:
    return replace(base, **dict(zip(_terms(base), coefficients.tolist(), strict=True)))


def _solve(base: StepLaw, arrivals: Sequence[_Arrivals]) -> FloatArray:
    """The coefficients, not negative, with the least squares of the residuals; large ones count by their size alone."""
    typical = float(np.median(np.concatenate([np.diff(run.at_s) for run in arrivals])))
    start = np.array([0.9, 2e-3, 3e-3, 1.5, 3.0][: len(_terms(base))]) * typical

    def residuals(scaled: FloatArray) -> FloatArray:
        return _residuals(_law(base, scaled * start), arrivals)[0]

    found = least_squares(
        residuals,
        np.ones(len(start)),
        bounds=(0.0, np.inf),
        loss="soft_l1",
        f_scale=_SCALE_S,
        max_nfev=_EVALUATIONS,
        diff_step=np.full(len(start), _DERIVATIVE_STEP),
    )
    coefficients: FloatArray = found.x * start
    return coefficients


def _residuals(law: StepLaw, arrivals: Sequence[_Arrivals]) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Arrival less prediction of each usable step in s, whether a launch decides it, and that launch's time; shape [rows]."""
    residuals, is_launch, launches = zip(*(_residuals_of(law, run) for run in arrivals), strict=True)
    return np.concatenate(residuals), np.concatenate(is_launch), np.concatenate(launches)


def _residuals_of(law: StepLaw, run: _Arrivals) -> tuple[FloatArray, BoolArray, FloatArray]:
    at, usable = run.at_s, run.usable.tolist()
    step, cost, sequence, free = law.step, law.prefill, law.sequence, law.free_prefill
    launches = [law.launch_of(prefill, tokens) for prefill, tokens in zip(run.prefill, run.tokens, strict=True)]
    durations = [
        step + cost * max(0.0, prefill - free) + sequence * sequences
        for prefill, sequences in zip(run.prefill, run.sequences, strict=True)
    ]
    found, is_launch, launch = [], [], []
    end = at[1]
    for number in range(_STEPS_AHEAD, len(at) - 1):
        decided = at[number - 2]
        end = max(max(end, decided) + durations[number], decided + launches[number])
        launched = at[number - 1] + launches[number + 1]
        if usable[number]:
            found.append(at[number] - max(end, launched))
            is_launch.append(launches[number + 1] > 0 and launched > end)
            launch.append(launches[number + 1])
        end = at[number] if end >= launched or not usable[number] else min(end, at[number])
    return np.array(found), np.array(is_launch, bool), np.array(launch)


def _bootstrap(base: StepLaw, found: FloatArray, arrivals: Sequence[_Arrivals], draws: int, seed: int) -> FloatArray:
    """Coefficients of resampled blocks of steps, by one Gauss-Newton step from the solution; shape [draws, terms]."""
    residuals, _, _ = _residuals(_law(base, found), arrivals)
    columns = np.empty((len(residuals), len(found)))
    for number, value in enumerate(found):
        moved = found.copy()
        moved[number] += (change := max(abs(value) * _DERIVATIVE_STEP, 1e-9))
        columns[:, number] = (_residuals(_law(base, moved), arrivals)[0] - residuals) / -change
    weights = 1 / np.sqrt(1 + (residuals / _SCALE_S) ** 2)  # of soft_l1
    blocks = np.array_split(np.arange(len(residuals)), max(2, len(residuals) // _BLOCK_STEPS))
    gram = np.stack([(columns[rows].T * weights[rows]) @ columns[rows] for rows in blocks])
    right = np.stack([columns[rows].T @ (weights[rows] * residuals[rows]) for rows in blocks])
    centre = right.sum(axis=0) / len(blocks)  # not 0 where a bound holds a coefficient
    random = np.random.default_rng(seed)
    drawn = np.empty((draws, len(found)))
    for draw in range(draws):
        chosen = random.integers(len(blocks), size=len(blocks))
        drawn[draw] = found + np.linalg.pinv(gram[chosen].sum(axis=0)) @ (right[chosen] - centre).sum(axis=0)
    centred: FloatArray = drawn - drawn.mean(axis=0) + found  # the derivatives show the spread, and no better centre
    return np.maximum(centred, 0.0)
