"""From the records of measured runs to a model: steps, the engine's structure and law, the front end, and what is not known."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from simulator.arrays import FloatArray
from simulator.deployed import one_deployment
from simulator.errors import SimulatorError
from simulator.front_end_fit import COSTS, FittedFrontEnd, fit_front_end, with_costs
from simulator.hull import hull_of
from simulator.launch_law import fit_launch_law
from simulator.logged import not_logged, unknown_context
from simulator.model import (
    MODEL_SCHEMA,
    MOST_HELD_OUT,
    MOST_SOURCES,
    MOST_SPREAD,
    UNFIT,
    BetweenRuns,
    Draw,
    Model,
    Parameter,
    Source,
)
from simulator.noise import BLOCK
from simulator.observed import Observed, check_measured
from simulator.server import Server, StepLaw
from simulator.speeds import Speeds, speeds_of
from simulator.step_law import (
    DRAWS_OF_A_RUN,
    FEWEST_ROWS,
    FittedLaw,
    Sample,
    choose_terms,
    fit_law,
    joined,
    rows_of_runs,
    undisturbed_sample_of,
    widened,
)
from simulator.steps import Steps, recover_steps, response_spacing_s
from simulator.structure import Structure, structure_of

DRAWS = 40
_INTERVAL = (2.5, 97.5)  # per cent
_INTERVAL_DRAWS = 400  # of the law, for its intervals
_MOST_RESIDUALS = 20_000
_MOSTLY = 0.5  # of the requests left out, from which on a run is refused
_LEFT_OUT = 0.05  # the share of requests that a note mentions
_MAY_BE_CACHED = 0.05  # of the tokens of the prompts
_OUTLIERS = 0.02
_PAUSED = 0.02  # of the time of all steps, which the law may miss of those that are left out
_UNFIT = 0.2  # the error of a latency, as a logarithm, on what was not fitted, from which on the model is called unfit
_SEVERAL_TOKENS = 0.2  # of the responses in steps that a client sees clearly, from which on a step gives several tokens
_LOAD_EFFECT = 0.05  # of a step, between the quarters of steps with the fewest and the most sequences
_WIDE = 10.0  # the ratio of an interval's ends from which a cost counts as not identified
_TINY_S = 1e-6
_ALIKE = 1.1  # times the tokens of the shortest prompts, up to which the longest ones show no other length
_RARE = 0.02  # of the prompts, at either end, that may be shorter or longer
_ONE_RUN = (
    "one run shows neither what another load adds nor how far the speed of the server moves between runs, so the ranges have "
    "neither: fit two runs or more, at different loads"
)


def fit(runs: Sequence[Observed], seed: int, progress: Callable[[str], None], logged: Sequence[Steps] | None = None) -> Model:
    """Fit one server to ``runs``, which are at least one. ``progress`` takes a line on what is done. ``logged`` are the steps
    of each run by the log of its engine, None where they are recovered from the arrivals of tokens.

    Raises SimulatorError where the runs show too few steps of the engine, measured different servers, or none.
    """
    check_fittable(runs)
    server = one_deployment([observed.name for observed in runs], [observed.deployed for observed in runs])
    recovered = [recover_steps(observed) for observed in runs]
    steps = recovered if logged is None else logged
    progress(f"{sum(map(len, steps)):,} steps {'recovered' if logged is None else 'in the step log'}")
    structure, law = fit_engine(steps, [observed.name for observed in runs], seed)
    seen = structure.steps if logged is None else recovered
    progress(f"the law of the step is fitted to {law.rows:,} steps")
    noise = tuple(_thinned(law.residuals_s).tolist())
    launch_noise = tuple(law.launch_residuals[:_MOST_RESIDUALS].tolist())
    engine = Server(law.law(law.coefficients), structure.admission, noise=noise, launch_noise=launch_noise)
    spacing = [found for each in seen if (found := response_spacing_s(each)) is not None]
    front_end = fit_front_end(engine, runs, float(np.median(spacing)) if spacing else None, DRAWS, seed, progress)
    parameters = (*_law_parameters(law), *_front_end_parameters(front_end))
    return Model(
        schema=MODEL_SCHEMA,
        server=front_end.server,
        parameters=parameters,
        draws=_draws(law, front_end),
        hull=hull_of(runs),
        sources=tuple(
            Source(observed.name, len(observed), observed.users, len(own), logged is not None)
            for observed, own in zip(runs, steps, strict=True)
        ),
        structure=(*structure.reasons, *_thresholds(law.base), front_end.reason),
        findings=(
            *unfit(front_end.held_out, seen),
            *doubts(runs, law),
            *(not_logged([observed.name for observed in runs], logged) if logged else ()),
            *unknown_context(logged or ()),
            *moved(law.speeds),
            *_unidentified(parameters),
        ),
        deployed=server,
        held_out={name: min(error, MOST_HELD_OUT) for name, error in front_end.held_out.items()},
        between_runs=_between_runs(law),
    )


def check_fittable(runs: Sequence[Observed]) -> None:
    """Raises SimulatorError for too many runs, for a run that was simulated or is one of several servers, or whose server did
    mostly what is not among its answers.
    """
    if len(runs) > MOST_SOURCES:
        raise SimulatorError(f"{len(runs):,} runs were given, and a model is fitted to at most {MOST_SOURCES:,}: give fewer")
    for observed in runs:
        check_measured(observed)
        if observed.servers > 1:
            raise SimulatorError(
                f"{observed.name} was measured on {observed.servers} servers, whose steps look like those of one: fit runs of "
                "one of them, and simulate them with --replicas"
            )
        sent = len(observed) + observed.left_out
        if observed.left_out > _MOSTLY * sent:
            raise SimulatorError(
                f"{observed.name}: {observed.left_out:,} of {sent:,} requests failed or have no known lengths, so "
                "what the server did is mostly not in its answers: measure again, at a load that it can take"
            )


def fit_engine(runs: Sequence[Steps], names: Sequence[str], seed: int) -> tuple[Structure, FittedLaw]:
    """The structure of the engine and the law of its step, from the steps of runs that have these names.

    Raises SimulatorError, as ``fit`` does.
    """
    structure = structure_of(runs)
    _check_steps(names, structure.sample, _with_several_tokens(runs))
    return structure, fit_structure(structure, seed)


def _check_steps(names: Sequence[str], sample: Sample, with_several_tokens: float) -> None:
    """Raises SimulatorError."""
    rows = len(sample)
    if rows >= FEWEST_ROWS:
        return
    if sample.is_logged:
        raise SimulatorError(
            f"{', '.join(names)}: only {rows:,} steps of the log have known contents and began without a wait for requests, "
            f"and a fit needs {FEWEST_ROWS}; measure more requests, with several in flight"
        )
    if with_several_tokens > _SEVERAL_TOKENS:
        raise SimulatorError(
            f"{', '.join(names)}: {with_several_tokens:.0%} of the responses hold several tokens although nothing else was to "
            "be written, as with speculative decoding, and the simulated engine gives each sequence one token a step: such a "
            "server cannot be fitted"
        )
    raise SimulatorError(
        f"{', '.join(names)}: only {rows:,} steps of the engine can be distinguished in the arrivals of tokens, and a fit "
        f"needs {FEWEST_ROWS}; measure more requests, with several in flight and below what the server's front end can take"
    )


def _with_several_tokens(runs: Sequence[Steps]) -> float:
    """The share of the responses of clear steps that hold several tokens; 0 without any."""
    clear = [steps.is_clear & steps.is_busy for steps in runs]
    responses = sum(float(steps.sequences[chosen].sum()) for steps, chosen in zip(runs, clear, strict=True))
    several = sum(float(steps.coalesced[chosen].sum()) for steps, chosen in zip(runs, clear, strict=True))
    return several / responses if responses else 0.0


def fit_structure(structure: Structure, seed: int) -> FittedLaw:
    """The law of the step of an engine with this structure."""
    if structure.admission.lookahead:
        return fit_launch_law(structure.steps, _INTERVAL_DRAWS, seed)
    samples = [undisturbed_sample_of(steps, structure.admission.token_budget) for steps in structure.steps]
    sample = joined(samples) if sum(map(len, samples)) >= FEWEST_ROWS else structure.sample
    law = fit_law(sample, choose_terms(sample), _INTERVAL_DRAWS, seed)
    alone = [each for each in samples if len(each) >= FEWEST_ROWS]
    speeds = speeds_of(rows_of_runs(law, alone), seed) if alone else None
    return replace(widened(law, [fit_law(each, law.terms, DRAWS_OF_A_RUN, seed) for each in alone]), speeds=speeds)


def _thinned(residuals_s: FloatArray) -> FloatArray:
    """_MOST_RESIDUALS of them at most, in blocks of consecutive ones from all runs alike."""
    if len(residuals_s) <= _MOST_RESIDUALS:
        return residuals_s
    begins = np.linspace(0, len(residuals_s) - BLOCK, _MOST_RESIDUALS // BLOCK).astype(np.int64)
    thinned: FloatArray = residuals_s[(begins[:, None] + np.arange(BLOCK)).ravel()]
    return thinned


def _thresholds(law: StepLaw) -> list[str]:
    found = []
    if law.free_prefill:
        found.append(
            f"the first {law.free_prefill:,} prompt tokens of a step cost no time: other work of the step takes as long"
        )
    if law.large_step is not None:
        found.append(f"a step of more than {law.large_step:,} tokens takes another time to launch")
    return found


def _law_parameters(law: FittedLaw) -> list[Parameter]:
    ranges = map(_range, law.coefficients.tolist(), law.draws.T)
    return [
        Parameter(term, value, low, high, low > 0)
        for term, value, (low, high) in zip(law.terms, law.coefficients.tolist(), ranges, strict=True)
    ]


def _front_end_parameters(fitted: FittedFrontEnd) -> list[Parameter]:
    values = [float(getattr(fitted.server.front_end, cost)) for cost in COSTS]
    return [
        Parameter(cost, value, low, high, high < _WIDE * max(low, _TINY_S))
        for cost, value, (low, high) in zip(COSTS, values, map(_range, values, fitted.draws.T), strict=True)
    ]


def _range(value: float, draws: FloatArray) -> tuple[float, float]:
    """95 % of the ``draws``, shape [draws], and the value itself, which can lie beyond them where the runs hardly show it."""
    low, high = np.percentile(draws, _INTERVAL).tolist()
    return min(low, value), max(high, value)


def _draws(law: FittedLaw, fitted: FittedFrontEnd) -> tuple[Draw, ...]:
    front_end = fitted.server.front_end
    return tuple(
        Draw(law.law(of_law), with_costs(front_end, of_front_end))
        for of_law, of_front_end in zip(law.draws, fitted.likely, strict=False)
    )


def _between_runs(law: FittedLaw) -> BetweenRuns:
    spread = None if law.speeds is None else law.speeds.spread()
    if law.speeds is None or spread is None:
        return BetweenRuns()
    return BetweenRuns(min(spread.deviation, MOST_SPREAD), len(law.speeds.logs), spread.degrees)


def moved(speeds: Speeds | None) -> list[str]:
    """Where the speed of the server moved between runs, what that does to the model, a sentence."""
    if speeds is None or speeds.spread() is None:
        return []
    apart = math.expm1(float(speeds.logs.max() - speeds.logs.min()))
    return [
        f"the speed of the server moved between the fitted runs, by up to {apart:.1%} for the same steps, as under a power cap "
        "or with other programs on the machine: ranges of predictions have what another run may differ by, and are narrower "
        "after a fit to more runs"
    ]


def unfit(held_out: Mapping[str, float], runs: Sequence[Steps]) -> list[str]:
    """What says that no server of the simulator's kind answers as the measured one."""
    found = []
    worst = max(held_out, key=lambda name: held_out[name])
    if held_out[worst] > _UNFIT:
        found.append(
            f"{UNFIT}: the {worst.upper()} of what was not fitted is wrong by a factor of "
            f"{math.exp(min(held_out[worst], MOST_HELD_OUT)):,.1f}, so the server has another structure, or changed during "
            "the runs"
        )
    share = _with_several_tokens(runs)
    if share > _SEVERAL_TOKENS:
        found.append(
            f"{share:.0%} of the responses hold several tokens although the front end had nothing else to write: where a step "
            f"gives a sequence several tokens, as with speculative decoding, {UNFIT}"
        )
    return found


def doubts(runs: Sequence[Observed], law: FittedLaw) -> list[str]:
    """What the fitted runs leave out or do not show, and where the law does not hold, a sentence each."""
    found = [] if len(runs) > 1 else [_ONE_RUN]
    found += [
        f"{observed.name}: {observed.left_out:,} requests failed or have no known lengths, and are left out"
        for observed in runs
        if observed.left_out > _LEFT_OUT * (len(observed) + observed.left_out)
    ]
    found += [
        f"{observed.name}: {observed.may_be_cached:.0%} of the prompts, by length, repeat earlier ones, and the server does not"
        " say what its prefix cache had of them: if it has one, a prompt token looks cheaper than it is"
        for observed in runs
        if observed.may_be_cached is not None and observed.may_be_cached > _MAY_BE_CACHED
    ]
    found += [
        f"{observed.name}: it is not known whether prompts repeat earlier ones, as those of sessions do, nor what a prefix "
        "cache had of them: if the server has one, a prompt token looks cheaper than it is"
        for observed in runs
        if observed.may_be_cached is None
    ]
    if (alike := _length_of_prompts(runs)) is not None:
        found.append(
            f"nearly all prompts have {alike}: what one costs beside its tokens is not known, so prompts of other lengths may "
            "take another time than the model gives them"
        )
    if law.outliers > _OUTLIERS * law.rows or law.outlier_share > _PAUSED:
        time = f", with {law.outlier_share:.1%} of the time more than it gives" if law.outlier_share > _PAUSED else ""
        found.append(
            f"{law.outliers:,} of {law.rows:,} steps lie far from the law and are left out of it{time}: pauses, "
            + ("which the simulation has as noise" if law.is_logged else "or steps that were not recovered")
        )
    if law.is_disturbed:
        found.append(
            "a request was on its way in beside nearly all steps with prompts, which delays their tokens: a prompt token and a "
            "launch may be shorter than these runs show; fit runs at a lower load, too"
        )
    fewest, most = np.percentile(law.residual_loads, (25, 75))
    residuals, loads = law.residuals_s, law.residual_loads
    if most > fewest:
        shift = float(residuals[loads >= most].mean() - residuals[loads <= fewest].mean())
        typical = float(law.coefficients[0]) or float(np.abs(residuals).mean())
        if abs(shift) > _LOAD_EFFECT * typical:
            few = f"{fewest:.0f} sequence{'s' * (round(fewest) != 1)}"
            found.append(
                f"the residuals depend on the load: {shift * 1e3:+.2f} ms from steps of at most {few} to those of at least "
                f"{most:.0f}, so another law holds there"
            )
    return found


def _length_of_prompts(runs: Sequence[Observed]) -> str | None:
    """The tokens that are computed of nearly each prompt, in words; None where prompts have several lengths."""
    if not runs:
        return None
    shortest, middle, longest = np.quantile(np.concatenate([run.prefill_tokens for run in runs]), (_RARE, 0.5, 1 - _RARE))
    return f"about {middle:,.0f} token{'s' * (round(middle) != 1)}" if longest <= _ALIKE * shortest else None


def _unidentified(parameters: Sequence[Parameter]) -> list[str]:
    return [f"{each.name} is not identified by these runs: {_known(each)}" for each in parameters if not each.identified]


def _known(parameter: Parameter) -> str:
    """What is known of a cost that is not identified."""
    if not parameter.has_range:
        return "no step that was compared took longer with it, so the model leaves it out"
    return f"between {parameter.low * 1e3:.4g} and {parameter.high * 1e3:.4g} ms"
