"""The law of the step's duration, by non-negative least squares over the steps that a client sees clearly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from simulator.arrays import BoolArray, FloatArray
from simulator.block_bootstrap import BLOCK_ROWS, block_products, drawn_products
from simulator.prompt_chunks import prefill_by_step
from simulator.server import StepLaw
from simulator.speeds import RunRows, Speeds
from simulator.steps import Steps

BASE = ("step", "prefill", "sequence")  # terms of every law
FURTHER = ("prefill_step", "context", "prefill_context")  # those that must lower the held-out error
_LEAST_GAIN = 0.01  # by at least this share
_OUTLIER = 6.0  # standard deviations, by the median absolute deviation
_NORMAL = 1.4826  # standard deviations of a normal law in its median absolute deviation
_EXACT_S = 1e-9
FEWEST_ROWS = 100  # steps, for a fit
_FOLDS, _FOLD_ROWS = 5, 50  # at least two folds of the fewest rows
DRAWS_OF_A_RUN = 60
_LEAST_UNDISTURBED = 0.5  # of the steps with prompts


@dataclass(frozen=True, eq=False)
class Sample:
    """Steps of which the duration is known, in the order of time: shape [rows], and [rows, BASE + FURTHER] for ``features``.

    ``loads`` are the sequences of each step, ``growth`` how many more they are than those of the step before, 0 of steps by a
    log. ``is_logged``: all are, so one that is far from the law is a pause, and no mistake of recovering it.
    """

    durations_s: FloatArray
    features: FloatArray
    loads: FloatArray
    growth: FloatArray
    is_logged: bool = False

    def __len__(self) -> int:
        return len(self.durations_s)


@dataclass(frozen=True, eq=False)
class FittedLaw:
    """A law: ``base`` with ``coefficients`` in s per unit for ``terms``, shape [terms], and ``draws`` of them by the bootstrap,
    shape [draws, terms].

    ``residuals_s`` are those of the rows that are no outliers, with the sequences of each in ``residual_loads``; ``outliers``
    counts the other rows, and ``outlier_share`` is what the law misses of them over the time of all. With rows of a log
    (``is_logged``), outliers are left out of the coefficients alone: the residuals hold them, and their mean is not 0.
    ``launch_residuals`` are relative to the time of a launch. ``speeds`` are those of the runs, None where they are not known.
    ``is_disturbed``: steps are launched ahead, and the law is fitted to steps beside which requests were on their way in, since
    there were hardly any others.
    """

    terms: tuple[str, ...]
    base: StepLaw
    coefficients: FloatArray
    draws: FloatArray
    residuals_s: FloatArray
    residual_loads: FloatArray
    launch_residuals: FloatArray
    outliers: int
    outlier_share: float
    rows: int
    speeds: Speeds | None = None
    is_logged: bool = False
    is_disturbed: bool = False

    def law(self, coefficients: FloatArray) -> StepLaw:
        """The law with these coefficients."""
        return replace(self.base, **dict(zip(self.terms, coefficients.tolist(), strict=True)))


def sample_of(steps: Steps, budget: int | None) -> Sample:
    """The steps of a run that begin and end clearly, and whose work is accounted for."""
    laid = prefill_by_step(steps, budget)
    prefill = laid.prefill
    columns = [np.ones(len(steps)), prefill, steps.sequences, prefill > 0, steps.context, laid.with_context]
    features = np.column_stack(columns).astype(np.float64)
    return _rows(steps, features, usable_steps(steps) & laid.is_known)


def undisturbed_sample_of(steps: Steps, budget: int | None) -> Sample:
    """``sample_of`` without the steps that ``undisturbed`` leaves out, none of a log. It does not show whether steps are
    launched ahead.
    """
    if steps.is_logged:
        return sample_of(steps, budget)
    return sample_of(replace(steps, is_whole=steps.is_whole & undisturbed(steps, usable_steps(steps))), budget)


def _rows(steps: Steps, features: FloatArray, usable: BoolArray) -> Sample:
    durations = np.diff(steps.at_s, prepend=steps.at_s[:1])
    growth = np.zeros(len(steps)) if steps.is_logged else np.diff(steps.sequences, prepend=steps.sequences[:1])
    return Sample(durations[usable], features[usable], steps.sequences[usable], growth[usable], steps.is_logged)


def undisturbed(steps: Steps, usable: BoolArray) -> BoolArray:
    """The ``usable`` steps before whose begin and end no request was on its way in.

    The front end may write the tokens of a step late while it takes in a request, which makes that step longer and the next one
    shorter. In a burst it has handed over another request before, so the shorter ones are those that hold prompts.
    All are returned where this would leave less than half of those with prompts.
    """
    has_prompt = steps.prompts > 0
    if not has_prompt.any():
        return usable
    at_most = (steps.at_s - steps.first_sent_s)[has_prompt].min() - np.diff(steps.at_s)[usable[1:]].min(initial=np.inf)
    is_free = steps.since_sent_s > at_most
    is_free[1:] &= is_free[:-1]
    kept: BoolArray = usable & is_free
    enough = np.count_nonzero(kept & has_prompt) >= _LEAST_UNDISTURBED * np.count_nonzero(usable & has_prompt)
    return kept if enough else usable


def usable_steps(steps: Steps) -> BoolArray:
    """Which steps began and ended clearly, without a wait for requests, and with all sequences accounted for; shape [steps]."""
    usable = steps.is_whole & steps.is_busy & steps.is_clear
    usable[1:] &= steps.is_clear[:-1]
    usable[:1] = False
    return usable


def joined(samples: Sequence[Sample]) -> Sample:
    """The rows of several runs."""
    return Sample(
        np.concatenate([sample.durations_s for sample in samples]),
        np.concatenate([sample.features for sample in samples]),
        np.concatenate([sample.loads for sample in samples]),
        np.concatenate([sample.growth for sample in samples]),
        all(sample.is_logged for sample in samples),
    )


def choose_terms(sample: Sample) -> tuple[str, ...]:
    """BASE, and those of FURTHER that lower the held-out error, one after the other."""
    chosen: tuple[str, ...] = BASE
    error = held_out_error_s(sample, chosen)
    for term in FURTHER:
        with_term = held_out_error_s(sample, (*chosen, term))
        if with_term < (1 - _LEAST_GAIN) * error:
            chosen, error = (*chosen, term), with_term
    return chosen


def held_out_error_s(sample: Sample, terms: Sequence[str]) -> float:
    """The mean absolute error of rows that the law was not fitted to, in turns; outliers count as the limit for them."""
    errors = held_out_errors_s(sample, terms)
    return float(np.minimum(errors, outlier_limit(errors)).mean())


def held_out_errors_s(sample: Sample, terms: Sequence[str]) -> FloatArray:
    """The absolute error of each row, when its fold is left out of the fit; shape [rows], at least FEWEST_ROWS."""
    columns = _columns(sample, terms)
    fold = np.arange(len(sample)) // _FOLD_ROWS % _FOLDS
    errors = np.empty(len(sample))
    for held_out in range(_FOLDS):
        is_out = fold == held_out
        if is_out.any():
            coefficients, _ = _solve_without_outliers(columns[~is_out], sample.durations_s[~is_out])
            errors[is_out] = np.abs(sample.durations_s[is_out] - columns[is_out] @ coefficients)
    return errors


def outlier_limit(errors: FloatArray) -> float:
    """The absolute error beyond which a row is an outlier."""
    return _OUTLIER * _NORMAL * float(np.median(errors))


def fit_law(sample: Sample, terms: tuple[str, ...], draws: int, seed: int) -> FittedLaw:
    """The law with ``terms``, and ``draws`` of it from a bootstrap of blocks of consecutive rows."""
    columns = _columns(sample, terms)
    coefficients, kept = _solve_without_outliers(columns, sample.durations_s)
    missed = sample.durations_s - columns @ coefficients
    residuals = missed if sample.is_logged else missed[kept] - missed[kept].mean()
    return FittedLaw(
        terms=terms,
        base=StepLaw(step=0.0),
        coefficients=coefficients[: len(terms)],
        draws=_bootstrap(columns[kept], sample.durations_s[kept], draws, seed)[:, : len(terms)],
        residuals_s=residuals,
        residual_loads=sample.loads if sample.is_logged else sample.loads[kept],
        launch_residuals=np.zeros(1),
        outliers=int(np.count_nonzero(~kept)),
        outlier_share=float(np.maximum(missed[~kept], 0.0).sum() / sample.durations_s.sum()),
        rows=len(sample),
        is_logged=sample.is_logged,
    )


def widened(law: FittedLaw, runs: Sequence[FittedLaw]) -> FittedLaw:
    """``law`` with draws as far apart as the same law fitted to single ``runs`` differs, where that is more than their noise.

    What recovering steps gets wrong depends on the load, so it differs between runs, and no bootstrap within them shows it. The
    variance between the fits of single runs beyond that of their own draws is added, over the number of runs.
    """
    if len(runs) < 2:
        return law
    between = np.var([run.coefficients for run in runs], axis=0, ddof=1)
    within = np.mean([run.draws.var(axis=0) for run in runs], axis=0)
    own = np.maximum(law.draws.var(axis=0), np.finfo(float).tiny)
    wider = np.sqrt(1 + np.maximum(between - within, 0.0) / len(runs) / own)
    return replace(law, draws=np.maximum(law.coefficients + (law.draws - law.coefficients) * wider, 0.0))


def rows_of_runs(law: FittedLaw, runs: Sequence[Sample]) -> list[RunRows]:
    """The rows of each run that are no outliers of ``law``, which was fitted to all of them."""
    columns = [_columns(run, law.terms) for run in runs]
    durations = np.concatenate([run.durations_s for run in runs])
    _, is_kept = _solve_without_outliers(np.concatenate(columns), durations)
    kept = np.split(is_kept, np.cumsum([len(run) for run in runs])[:-1])
    found = []
    for run, own, chosen in zip(runs, columns, kept, strict=True):
        predicted = own[:, : len(law.terms)] @ law.coefficients
        residuals = run.durations_s - predicted
        found.append(RunRows(own[chosen], predicted[chosen], residuals[chosen], np.ones(np.count_nonzero(chosen))))
    return found


def _columns(sample: Sample, terms: Sequence[str]) -> FloatArray:
    """The terms' features, and after them the growth, shape [rows, terms + 1].

    The first response of a step waits until the front end has taken in the tokens of all its sequences. So the time since the
    first response of the step before holds the cost of a token for each sequence more, which is not the engine's.
    """
    names = (*BASE, *FURTHER)
    return np.column_stack([sample.features[:, [names.index(term) for term in terms]], sample.growth])


def _solve(columns: FloatArray, durations: FloatArray) -> FloatArray:
    scale = np.sqrt((columns**2).mean(axis=0))
    scale[scale == 0] = 1.0
    coefficients: FloatArray = nnls(columns / scale, durations)[0] / scale
    return coefficients


def _solve_without_outliers(columns: FloatArray, durations: FloatArray) -> tuple[FloatArray, BoolArray]:
    """The coefficients, and which rows are no outliers."""
    kept = np.ones(len(durations), bool)
    coefficients = _solve(columns, durations)
    for _ in range(3):
        residuals = durations - columns @ coefficients
        centre = np.median(residuals[kept])
        limit = _OUTLIER * _NORMAL * np.median(np.abs(residuals[kept] - centre)) + _EXACT_S
        kept = np.abs(residuals - centre) <= limit
        coefficients = _solve(columns[kept], durations[kept])
    return coefficients, kept


def _bootstrap(columns: FloatArray, durations: FloatArray, draws: int, seed: int) -> FloatArray:
    """Coefficients of resampled blocks, from the blocks' cross products; shape [draws, terms]."""
    scale = np.sqrt((columns**2).mean(axis=0))
    scale[scale == 0] = 1.0
    blocks = np.split(np.arange(len(durations)), range(BLOCK_ROWS, len(durations), BLOCK_ROWS))
    products = block_products(columns / scale, durations, np.ones(len(durations)), blocks)
    drawn = drawn_products([products], draws, np.random.default_rng(seed))
    return np.array([_solve_normal(summed[:, :-1], summed[:, -1]) / scale for summed in drawn])


def _solve_normal(gram: FloatArray, right: FloatArray) -> FloatArray:
    """Non-negative least squares from AᵀA and Aᵀy: with AᵀA = R·Rᵀ, the problem of Rᵀ and R⁻¹Aᵀy is the same."""
    ridge = 1e-10 * np.trace(gram) / len(gram)
    lower = np.linalg.cholesky(gram + ridge * np.eye(len(gram)))
    coefficients: FloatArray = nnls(lower.T, np.linalg.solve(lower, right))[0]
    return coefficients
