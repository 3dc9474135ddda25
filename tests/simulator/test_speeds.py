"""A server whose speed moves between runs: found in their records, and in the ranges of what is predicted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats

from simulator.figures import drawn_server, speed_factor
from simulator.fit import fit_structure, moved
from simulator.model import MODEL_SCHEMA, BetweenRuns, Draw, Model
from simulator.observed import Observed
from simulator.recorded import simulated_run
from simulator.server import Admission, Server
from simulator.speeds import RunRows, Speeds, speeds_of
from simulator.steps import recover_steps
from simulator.structure import known_structure
from simulator.validation import coverage, validate
from tests.simulator.known import SERVER, poisson

_AHEAD = replace(SERVER, law=replace(SERVER.law, launch=9e-3), admission=Admission(lookahead=1))


def _run(server: Server, time: float, rate: float, seed: int) -> Observed:
    """A run in which the engine takes ``time`` times as long."""
    slower = replace(server, law=server.law.slower(time))
    return simulated_run(slower, poisson(rate, 500, seed), seed, f"at {rate}")


def _speeds(server: Server, times: Sequence[float], rates: Sequence[float] = (25, 40, 50)) -> Speeds:
    runs = [_run(server, time, rate, seed) for seed, (time, rate) in enumerate(zip(times, rates, strict=False), start=1)]
    found = fit_structure(known_structure([recover_steps(run) for run in runs], server.admission), 0).speeds
    assert found is not None
    return found


@pytest.mark.parametrize("server", [SERVER, _AHEAD], ids=["decided at the end", "launched ahead"])
def test_the_speed_of_each_run_is_found(server: Server) -> None:
    found = _speeds(server, (1.0, 1.05))
    assert found.logs == pytest.approx([-math.log(1.05) / 2, math.log(1.05) / 2], abs=0.004)
    spread = found.spread()
    assert spread is not None
    assert spread.deviation == pytest.approx(math.log(1.05) / math.sqrt(2), abs=0.004)
    assert spread.degrees == pytest.approx(1.0, abs=0.1)
    (said,) = moved(found)
    assert "by up to 5." in said or "by up to 4." in said


@pytest.mark.parametrize("server", [SERVER, _AHEAD], ids=["decided at the end", "launched ahead"])
def test_a_server_of_constant_speed_has_no_spread(server: Server) -> None:
    found = _speeds(server, (1.0, 1.0))
    assert found.spread() is None
    assert moved(found) == []


def test_one_run_shows_no_spread() -> None:
    assert _speeds(SERVER, (1.0,)).spread() is None
    assert moved(None) == []


def test_what_no_step_shows_is_no_spread() -> None:
    """A run of launches alone says nothing of the engine's speed."""
    rows = RunRows(np.ones((400, 1)), np.zeros(400), np.zeros(400), np.ones(400))
    assert speeds_of([rows, rows], 0).spread() is None


def _rows(random: np.random.Generator, of_run: float, of_parts: float, parts: int = 5) -> RunRows:
    """A run of 2,000 steps of 10 ms, whose time differs from the law's by a factor of the run and one of each part of it."""
    logs = of_run * random.standard_normal() + np.repeat(of_parts * random.standard_normal(parts), 2_000 // parts)
    times = np.full(2_000, 10e-3)
    residuals = times * (logs + 0.02 * random.standard_normal(2_000))
    return RunRows(random.uniform(0, 10e-3, (2_000, 1)), times, residuals, np.ones(2_000))


def test_a_speed_that_wanders_within_runs_shows_its_spread_with_more_degrees_of_freedom() -> None:
    random = np.random.default_rng(8)
    wandering = [speeds_of([_rows(random, 0.05, 0.05) for _ in range(2)], 0) for _ in range(30)]
    assert np.mean([each.within for each in wandering]) == pytest.approx(0.05**2, rel=0.2)
    spreads = [spread for each in wandering if (spread := each.spread()) is not None]
    assert len(spreads) > 15
    assert min(spread.degrees for spread in spreads) >= 1.0
    assert np.median([spread.degrees for spread in spreads]) > 1.5


def test_a_further_run_of_a_wandering_server_lies_in_the_range_as_often_as_it_should() -> None:
    """A third run, which the pair does not know, in 90 % of 60 pairs, less by chance."""
    random = np.random.default_rng(9)
    inside = []
    while len(inside) < 60:
        first, second, third = (_rows(random, 0.05, 0.05) for _ in range(3))
        spread = speeds_of([first, second], 0).spread()
        if spread is None:
            continue
        mean = np.mean([run.residuals_s.mean() for run in (first, second)]) / 10e-3
        apart = abs(third.residuals_s.mean() / 10e-3 - mean)
        inside.append(apart <= spread.deviation * scipy.stats.t.ppf(0.95, spread.degrees))
    assert np.mean(inside) > 0.83


def test_a_pair_of_runs_whose_speed_wanders_has_a_narrower_range_than_by_the_pair_alone() -> None:
    logs, errors = np.array([-0.05, 0.05]), np.array([0.005, 0.005])
    alone, wandering = Speeds(logs, errors).spread(), Speeds(logs, errors, within=0.003).spread()
    assert alone is not None
    assert wandering is not None
    assert alone.degrees == 1.0
    assert wandering.deviation > alone.deviation
    assert wandering.deviation * scipy.stats.t.ppf(0.95, wandering.degrees) < 0.7 * alone.deviation * scipy.stats.t.ppf(0.95, 1)


def test_runs_too_short_for_parts_show_nothing_within_them() -> None:
    short = [
        RunRows(*(field[:600] for field in (each.columns, each.by_speed, each.residuals_s, each.weights)))
        for each in (_rows(np.random.default_rng(seed), 0.05, 0.05) for seed in (1, 2))
    ]
    assert speeds_of(short, 0).within == 0.0


def _model(spread: float) -> Model:
    """A model of the true constants whose fit was wrong by 1 % on halves of its runs."""
    return Model(
        schema=MODEL_SCHEMA,
        server=SERVER,
        parameters=(),
        draws=(Draw(SERVER.law, SERVER.front_end),) * 10,
        hull=(),
        sources=(),
        structure=(),
        findings=(),
        held_out={"ttft": 0.01, "tpot": 0.01, "e2e": 0.01},
        between_runs=BetweenRuns(spread, 3),
    )


def test_ranges_hold_what_another_run_may_differ_by() -> None:
    others = [_run(SERVER, time, 40, seed) for seed, time in enumerate((0.96, 1.03, 1.05), start=7)]
    narrow, wide = (coverage([validate(_model(spread), run, draws=10, seed=1) for run in others]) for spread in (0.0, 0.035))
    assert narrow < 0.5
    assert wide > 0.8


def test_draws_have_the_speeds_of_student_t_and_the_first_of_them_are_spread_evenly() -> None:
    between = BetweenRuns(0.02, 3)
    logs = np.log([speed_factor(between, number) for number in range(200)]) / 0.02
    limit = scipy.stats.t.ppf(0.95, 2)
    assert np.abs(logs).max() == pytest.approx(limit)
    assert np.median(logs) == pytest.approx(0.0, abs=0.05)
    assert np.quantile(logs, 0.75) == pytest.approx(scipy.stats.t.ppf(0.75, 2), abs=0.05)
    assert logs[:10].min() < -2 < 2 < logs[:10].max()
    assert speed_factor(BetweenRuns(), 3) == 1.0


def test_draws_that_vote_on_a_confidence_have_the_unlikely_speeds_too() -> None:
    logs = np.log([speed_factor(BetweenRuns(0.02, 3), number, likely=1.0) for number in range(200)]) / 0.02
    assert np.quantile(np.abs(logs), 0.98) == pytest.approx(scipy.stats.t.ppf(0.99, 2), rel=0.1)


def test_a_run_of_few_steps_says_nothing_of_the_speed() -> None:
    short = simulated_run(_AHEAD, poisson(25, 5, 9), 9, "short")
    runs = [_run(_AHEAD, 1.0, 25, 1), _run(_AHEAD, 1.0, 40, 2), short]
    found = fit_structure(known_structure([recover_steps(run) for run in runs], _AHEAD.admission), 0).speeds
    assert found is not None
    assert len(found.logs) == 2


def test_a_drawn_server_has_another_speed_and_the_launches_of_its_host() -> None:
    law = replace(SERVER.law, launch=9e-3)
    model = replace(_model(0.02), draws=(Draw(law, SERVER.front_end),))
    found = drawn_server(model, 1).law
    factor = speed_factor(model.between_runs, 1)
    assert (found.step, found.prefill, found.launch) == (factor * law.step, factor * law.prefill, law.launch)
