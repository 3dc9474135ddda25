"""The law of an engine that launches a step while the one before it runs, fitted to the arrivals of the steps' first responses.

The host decides and launches step j when it has sent the tokens of step j - 2. It sends those of step j - 1 when that one has
ended and step j is launched. So a prompt, whose step takes the host long to launch, lengthens the interval before the step of
its first token, and shortens the next one. Arrivals are predicted one step ahead:

    end(j) = max(max(end(j - 1), at(j - 2)) + duration(j), at(j - 2) + launch(j))
    at(j) = max(end(j), at(j - 1) + launch(j + 1))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import least_squares

from simulator.arrays import BoolArray, FloatArray
from simulator.block_bootstrap import BLOCK_ROWS, block_products, drawn_products
from simulator.server import StepLaw
from simulator.speeds import RunRows, speeds_of
from simulator.step_law import DRAWS_OF_A_RUN, FEWEST_ROWS, FittedLaw, outlier_limit, usable_steps, widened
from simulator.steps import Steps

TERMS = ("step", "prefill", "sequence", "launch")
LARGE = "launch_large"
FREE_PREFILLS = (0, 64, 128, 256)
LARGE_STEPS = (256, 512, 1024, 2048)
_LEAST_GAIN = 0.01  # of the error, for another structure
_SCALE_S = 0.5e-3  # of the loss, beyond which residuals count less than by their squares
_LAUNCHES = (1.1, 1.5, 2.2)  # of the typical time between steps: where the search for a launch starts
_LEAST_START = 0.01  # of what is typical, so that a coefficient that was 0 can grow
_NONE = -0.1  # so that some of the draws of what is not shown are 0, and it counts as not identified
_EVALUATIONS = 60  # at most; with 12, fits of simulated servers had not converged
_TOKEN_START_S = 5e-6  # where the search for the front end's time for a token starts
_RESOLUTION = 1e-4  # relative, of the search for the coefficients
_FEWEST_PROMPTS = FEWEST_ROWS // 5  # compared steps with prompts of all runs, without which more are compared
_STEPS_AHEAD = 2
_PREDICTED = slice(_STEPS_AHEAD, -1)  # steps
_DERIVATIVE_STEP = 1e-3  # relative


@dataclass(frozen=True, eq=False)
class _Arrivals:
    """The steps of a run, of which the ends of the ``usable`` ones are known and those of ``compared`` are compared with the
    law; each of shape [steps].
    """

    at_s: FloatArray
    sequences: FloatArray
    prefill: FloatArray
    tokens: FloatArray
    usable: BoolArray
    compared: BoolArray


def fit_launch_law(runs: Sequence[Steps], draws: int, seed: int) -> FittedLaw:
    """The law, and ``draws`` of it by the bootstrap, as far apart as single runs differ.

    Its structure is chosen by all usable steps, its coefficients are those of the undisturbed ones.
    """
    of_all = [_arrivals(steps) for steps in runs]
    undisturbed = _if_enough([_undisturbed(steps, run) for steps, run in zip(runs, of_all, strict=True)], of_all)
    law, token_s = _solve_with_token(_structure(of_all), undisturbed)
    arrivals = _if_enough(_not_near_launch(law, token_s, undisturbed), undisturbed)
    law, token_s = _solve_with_token(law, arrivals)
    fitted = _resolved(_fitted(law, token_s, arrivals, draws, seed))
    alone = [run for run in arrivals if np.count_nonzero(run.compared) >= FEWEST_ROWS and _prompts([run]) >= _FEWEST_PROMPTS]
    each = [_fitted(*_solve_with_token(law, [run]), [run], DRAWS_OF_A_RUN, seed) for run in alone]
    speeds = speeds_of([_rows(law, _without_tokens(run, token_s)) for run in arrivals], seed)
    wide = widened(fitted, [_as_far_as_shown(run, fitted) for run in each])
    return replace(wide, speeds=speeds, is_disturbed=undisturbed is of_all)


def _resolved(law: FittedLaw) -> FittedLaw:
    """``law`` with draws at least as far apart as the search for its coefficients and their derivatives resolve."""
    spread = np.maximum(law.draws.std(axis=0), np.finfo(float).tiny)
    wider = np.maximum(1.0, _RESOLUTION * law.coefficients / spread)
    return replace(law, draws=np.maximum(law.coefficients + (law.draws - law.coefficients) * wider, 0.0))


def _as_far_as_shown(alone: FittedLaw, law: FittedLaw) -> FittedLaw:
    """The law of a run alone, with the coefficients of ``law`` for what the run does not hold, as large steps."""
    return replace(alone, coefficients=np.where(alone.draws.std(axis=0) > 0, alone.coefficients, law.coefficients))


def _fitted(law: StepLaw, token_s: float, runs: Sequence[_Arrivals], draws: int, seed: int) -> FittedLaw:
    """``law``, which was fitted to ``runs`` with this time for a token, with its residuals and draws."""
    arrivals = [_without_tokens(run, token_s) for run in runs]
    residuals, is_launch, launches = _residuals(law, arrivals)
    limit = outlier_limit(np.abs(residuals[~is_launch]))
    kept = ~is_launch & (np.abs(residuals) <= limit)
    own = residuals[kept]
    loads = np.concatenate([run.sequences[run.compared] for run in arrivals])
    relative = residuals[is_launch] / launches[is_launch]
    time_s = sum(float(np.diff(run.at_s)[run.compared[1:]].sum()) for run in arrivals)
    return FittedLaw(
        terms=_terms(law),
        base=law,
        coefficients=_coefficients(law),
        draws=_bootstrap(law, arrivals, draws, seed),
        residuals_s=own - own.mean(),
        residual_loads=loads[kept],
        launch_residuals=relative - relative.mean() if len(relative) else np.zeros(1),
        outliers=int(np.count_nonzero(~is_launch & ~kept)),
        outlier_share=float(np.maximum(residuals[~is_launch & ~kept], 0.0).sum() / time_s),
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
    return _Arrivals(steps.at_s, steps.sequences, steps.prefill, tokens, usable, usable)


def _undisturbed(steps: Steps, run: _Arrivals) -> _Arrivals:
    """``run``, of which a step is compared only where the engine did not wait around it, where the end of the step before is
    known if it holds a prompt, and, beside a prompt, where no request was on its way in.
    """
    has_prompt = run.prefill > 0
    compared = run.compared & np.append(steps.is_busy[1:], False) & np.append(False, steps.is_busy[:-1])
    compared &= _none_on_its_way(steps) | ~(has_prompt | np.append(has_prompt[1:], False))
    for number in np.flatnonzero(has_prompt[1:]) + 1:
        compared[number] &= compared[number - 1]
    return replace(run, compared=compared)


def _if_enough(chosen: Sequence[_Arrivals], otherwise: Sequence[_Arrivals]) -> Sequence[_Arrivals]:
    """``chosen`` where enough steps with prompts are compared in them, all runs together."""
    return chosen if _prompts(chosen) >= _FEWEST_PROMPTS else otherwise


def _prompts(runs: Sequence[_Arrivals]) -> int:
    """The compared steps of ``runs`` that hold prompts."""
    return sum(np.count_nonzero(run.compared & (run.prefill > 0)) for run in runs)


def _not_near_launch(law: StepLaw, token_s: float, runs: Sequence[_Arrivals]) -> list[_Arrivals]:
    """``runs``, of which no step is compared that is predicted to end within 3 standard deviations of the next one's launch,
    nor the one after it.

    Noise decides which comes last there. The arrival is that of the later one, so its mean is later than either, and where the
    launch comes last, the end is known only to be before it, so its mean is earlier than predicted.
    """
    arrivals = [_without_tokens(run, token_s) for run in runs]
    residuals, is_launch, _ = _residuals(law, arrivals)
    near_s = outlier_limit(np.abs(residuals[~is_launch])) / 2
    found = []
    for run, arrived in zip(runs, arrivals, strict=True):
        ended, launched, following = _predicted(law, arrived)
        is_near = np.zeros(len(run.at_s), bool)
        is_near[_PREDICTED] = (following > 0) & (np.abs(launched - ended) < near_s)
        is_near[1:] |= is_near[:-1]
        found.append(replace(run, compared=run.compared & ~is_near))
    return found


def _none_on_its_way(steps: Steps) -> BoolArray:
    """Whether no request was on its way in at the end of each step and of the two before; shape [steps].

    The way takes at most the shortest wait for a first token, less the two steps in it. Every request that waits may be on its
    way, one after the other: a burst is there for longer than a single request.
    """
    joins = (steps.prompts > 0) & steps.is_busy
    joins[1:] &= steps.is_busy[:-1]
    joins[: _STEPS_AHEAD + 1] = False
    [joining] = np.nonzero(joins)
    if not len(joining):
        return np.ones(len(steps), bool)
    way_in_s = float((steps.at_s[joining - _STEPS_AHEAD] - steps.first_sent_s[joining]).min())
    at_end = steps.since_sent_s > way_in_s * steps.waiting
    free = at_end.copy()
    for before in range(1, _STEPS_AHEAD + 1):
        free[before:] &= at_end[:-before]
    return free


def _without_tokens(run: _Arrivals, token_s: float) -> _Arrivals:
    """``run`` without the time that the front end needs for the tokens of a step before it writes the first response."""
    return replace(run, at_s=run.at_s - token_s * run.sequences)


def _structure(arrivals: Sequence[_Arrivals]) -> StepLaw:
    """The law: from where a launch takes longer, then how many prompt tokens are free, as far as that is clearly better.

    A launch that is shorter than all steps changes no residual, so a search that came there would end: the first one has
    several starts.
    """
    typical = float(np.median(np.concatenate([np.diff(run.at_s) for run in arrivals])))
    starts = [_law(StepLaw(step=0.0), np.array([0.9, 2e-3, 3e-3, launch]) * typical) for launch in _LAUNCHES]
    law = min((_solve(start, arrivals) for start in starts), key=lambda each: _cost(each, arrivals))
    most = max(float(run.tokens.max()) for run in arrivals)
    of_large = [replace(law, large_step=large, launch_large=2 * law.launch) for large in LARGE_STEPS if large < most]
    law = _best(law, of_large, arrivals)
    return _best(law, [replace(law, free_prefill=free) for free in FREE_PREFILLS[1:]], arrivals)


def _best(law: StepLaw, candidates: Sequence[StepLaw], arrivals: Sequence[_Arrivals]) -> StepLaw:
    error = _error(law, arrivals)
    for candidate in candidates:
        solved = _solve(candidate, arrivals)
        found = _error(solved, arrivals)
        if found < (1 - _LEAST_GAIN) * error:
            law, error = solved, found
    return law


def _error(law: StepLaw, arrivals: Sequence[_Arrivals]) -> float:
    errors = np.abs(_residuals(law, arrivals)[0])
    return float(np.minimum(errors, outlier_limit(errors)).mean())


def _cost(law: StepLaw, arrivals: Sequence[_Arrivals]) -> float:
    """What ``_solve`` makes least."""
    return float(np.sqrt(1 + (_residuals(law, arrivals)[0] / _SCALE_S) ** 2).sum())


def _held_out(law: StepLaw, arrivals: Sequence[_Arrivals]) -> FloatArray:
    errors = []
    for run in arrivals:
        is_early = np.arange(len(run.usable)) < len(run.usable) // 2
        early, late = (replace(run, usable=run.usable & part, compared=run.compared & part) for part in (is_early, ~is_early))
        for fitted, judged in ((late, early), (early, late)):
            errors.append(np.abs(_residuals(_solve(law, [fitted]), [judged])[0]))
    return np.concatenate(errors)


def _terms(base: StepLaw) -> tuple[str, ...]:
    return TERMS if base.large_step is None else (*TERMS, LARGE)


def _law(base: StepLaw, coefficients: FloatArray) -> StepLaw:
    return replace(base, **dict(zip(_terms(base), coefficients.tolist(), strict=True)))


def _coefficients(law: StepLaw) -> FloatArray:
    return np.array([getattr(law, term) for term in _terms(law)])


def _solve(start: StepLaw, arrivals: Sequence[_Arrivals]) -> StepLaw:
    """The law with the structure of ``start`` and the least squares of the residuals, found from there; its coefficients are
    not negative, and large residuals count by their size alone.
    """
    scale = _scale(start)
    return _law(start, scale * _least_squares(lambda scaled: _residuals(_law(start, scaled * scale), arrivals)[0], len(scale)))


def _solve_with_token(start: StepLaw, arrivals: Sequence[_Arrivals]) -> tuple[StepLaw, float]:
    """``_solve``, with the time of the front end for a token of a step, in s, beside the coefficients."""
    scale = _scale(start)

    def residuals(scaled: FloatArray) -> FloatArray:
        without = [_without_tokens(run, float(scaled[-1]) * _TOKEN_START_S) for run in arrivals]
        return _residuals(_law(start, scaled[:-1] * scale), without)[0]

    found = _least_squares(residuals, len(scale) + 1)
    return _law(start, found[:-1] * scale), float(found[-1]) * _TOKEN_START_S


def _scale(start: StepLaw) -> FloatArray:
    """What each coefficient is searched in units of."""
    least = _LEAST_START * np.array([1, 1e-3, 1e-3, 1, 1][: len(_terms(start))]) * start.step
    scale: FloatArray = np.maximum(_coefficients(start), least)
    return scale


def _least_squares(residuals: Callable[[FloatArray], FloatArray], terms: int) -> FloatArray:
    """The terms that make ``residuals`` least, from 1 each; shape [terms]."""
    found: FloatArray = least_squares(
        residuals,
        np.ones(terms),
        bounds=(0.0, np.inf),
        loss="soft_l1",
        f_scale=_SCALE_S,
        max_nfev=_EVALUATIONS,
        diff_step=np.full(terms, _DERIVATIVE_STEP),
    ).x
    return found


def _residuals(law: StepLaw, arrivals: Sequence[_Arrivals]) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Arrival less prediction of each compared step in s, whether a launch decides it, and that launch's time; shape [rows]."""
    residuals, is_launch, launches = zip(*(_residuals_of(law, run) for run in arrivals), strict=True)
    return np.concatenate(residuals), np.concatenate(is_launch), np.concatenate(launches)


def _residuals_of(law: StepLaw, run: _Arrivals) -> tuple[FloatArray, BoolArray, FloatArray]:
    ended, launched, following = _predicted(law, run)
    residuals, is_launch = run.at_s[_PREDICTED] - np.maximum(ended, launched), (following > 0) & (launched > ended)
    compared = run.compared[_PREDICTED]
    return residuals[compared], is_launch[compared], following[compared]


def _predicted(law: StepLaw, run: _Arrivals) -> tuple[FloatArray, FloatArray, FloatArray]:
    """When each of the _PREDICTED steps ends, when the next one is launched, and what that launch takes; shape [steps].

    Only what depends on the step before is a loop: a fit does this thousands of times.
    """
    durations = law.step + law.prefill * np.maximum(0.0, run.prefill - law.free_prefill) + law.sequence * run.sequences
    launches = _launches(law, run)
    at, usable, following = run.at_s[_PREDICTED], run.usable[_PREDICTED], launches[_STEPS_AHEAD + 1 :]
    decided = run.at_s[: len(at)]
    launched = run.at_s[1 : len(at) + 1] + following
    columns = (at, decided, durations[_PREDICTED], decided + launches[_PREDICTED], launched, usable)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    ends, end = [], float(run.at_s[1])
    for at_s, decided_s, duration_s, earliest_s, launched_s, is_usable in rows:
        end = (end if end > decided_s else decided_s) + duration_s
        if end < earliest_s:
            end = earliest_s
        ends.append(end)
        if end > at_s or end >= launched_s or not is_usable:
            end = at_s
    return np.array(ends), launched, following


def _launches(law: StepLaw, run: _Arrivals) -> FloatArray:
    """``StepLaw.launch_of`` for each step; shape [steps]."""
    large = np.inf if law.large_step is None else law.large_step
    launches: FloatArray = np.where(run.tokens <= large, law.launch, law.launch_large) * (run.prefill != 0)
    return launches


def _rows(law: StepLaw, run: _Arrivals) -> RunRows:
    """The steps of a run at ``law``. The speed is the accelerator's, and a launch the host's."""
    residuals, _, _ = _residuals(law, [run])
    columns = _derivatives(law, [run], residuals)
    of_engine = len(TERMS) - 1
    return RunRows(columns, columns[:, :of_engine] @ _coefficients(law)[:of_engine], residuals, _weights(residuals))


def _derivatives(law: StepLaw, arrivals: Sequence[_Arrivals], residuals: FloatArray) -> FloatArray:
    """The derivatives of the predictions by each coefficient, shape [rows, terms]."""
    found = _coefficients(law)
    columns = np.empty((len(residuals), len(found)))
    for number, value in enumerate(found):
        moved = found.copy()
        moved[number] += (change := max(abs(value) * _DERIVATIVE_STEP, 1e-9))
        columns[:, number] = (_residuals(_law(law, moved), arrivals)[0] - residuals) / -change
    return columns


def _token_derivative(law: StepLaw, arrivals: Sequence[_Arrivals], residuals: FloatArray) -> FloatArray:
    """The derivative of the predictions by the front end's time for a token, shape [rows]."""
    moved = [_without_tokens(run, _TOKEN_START_S) for run in arrivals]
    derivative: FloatArray = (_residuals(law, moved)[0] - residuals) / -_TOKEN_START_S
    return derivative


def _weights(residuals: FloatArray) -> FloatArray:
    """Those that soft_l1 gives squares."""
    weights: FloatArray = 1 / np.sqrt(1 + (residuals / _SCALE_S) ** 2)
    return weights


def _bootstrap(law: StepLaw, arrivals: Sequence[_Arrivals], draws: int, seed: int) -> FloatArray:
    """Coefficients of resampled blocks of steps, by one Newton step from the solution; shape [draws, terms].

    The time for a token is drawn with them, since they depend on it. The second derivative of the loss is less than its
    weights, the more so the larger the residual: with weights in its place the draws would be too near to each other (Huber,
    "The behavior of maximum likelihood estimates under nonstandard conditions", 1967).
    """
    found = _coefficients(law)
    residuals, _, _ = _residuals(law, arrivals)
    of_law = _derivatives(law, arrivals, residuals)
    columns = np.column_stack([of_law, _token_derivative(law, arrivals, residuals)])
    blocks = np.array_split(np.arange(len(residuals)), max(2, len(residuals) // BLOCK_ROWS))
    weights = _weights(residuals)
    products = block_products(columns, residuals / weights**2, weights**3, blocks)
    products[:, :, -1] -= products[:, :, -1].mean(axis=0)  # not 0 where a bound holds a coefficient
    random = np.random.default_rng(seed)
    moves = np.array([np.linalg.pinv(summed[:, :-1]) @ summed[:, -1] for summed in drawn_products([products], draws, random)])
    drawn = found + moves[:, :-1]
    centred: FloatArray = drawn - drawn.mean(axis=0) + found  # the derivatives show the spread, and no better centre
    is_shown = of_law.any(axis=0)  # else a shorter launch would change nothing, nor would none
    return np.maximum(np.where(is_shown, centred, found * random.uniform(_NONE, 1.0, centred.shape)), 0.0)
