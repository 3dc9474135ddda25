"""Model files that were edited by hand: refused with the field, or said to be other than what was fitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulator.model import MODEL_SCHEMA, BetweenRuns, Draw, Extent, Model, Parameter, Source
from simulator.plausible import edits, implausible
from simulator.server import FrontEnd, StepLaw
from tests.simulator.known import LAW, SERVER

_STEP = Parameter("step", LAW.step, 5.9e-3, 6.1e-3, True)
_MODEL = Model(
    schema=MODEL_SCHEMA,
    server=SERVER,
    parameters=(_STEP, Parameter("intake", SERVER.front_end.intake, 0.5e-3, 2e-3, True)),
    draws=(Draw(LAW, SERVER.front_end),),
    hull=(Extent("requests in flight", 40.0), Extent("requests a second", 60.0)),
    sources=(Source("run", 700, None, 4_000),),
    structure=(),
    findings=(),
)
_SHORT = StepLaw(step=1e-12)


def test_what_was_fitted_is_plausible() -> None:
    assert implausible(_MODEL) is None
    assert edits(_MODEL) == ()


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (
            replace(_MODEL, server=replace(SERVER, law=_SHORT)),
            "server.law.step of 1e-12 s, with the other costs, makes steps of 1e-12 s, and no engine is as fast",
        ),
        (
            replace(_MODEL, draws=(Draw(LAW, FrontEnd()), Draw(_SHORT, FrontEnd()))),
            "draws[1].law.step of 1e-12 s, with the other costs, makes steps of 1e-12 s, and no engine is as fast",
        ),
        (
            replace(_MODEL, parameters=(replace(_STEP, low=1.0),)),
            "parameters: the range of step ends at 0.0061 s, and begins at 1 s",
        ),
        (
            replace(_MODEL, hull=(Extent("requests in flight", 1e9),)),
            "hull: 1,000,000,000 requests in flight, in runs of at most 700 requests",
        ),
        (
            replace(_MODEL, between_runs=BetweenRuns(0.03, 1)),
            f"between_runs: a spread of the speed from 1 of {len(_MODEL.sources)} runs, and it takes two to show one",
        ),
        (
            replace(_MODEL, sources=_MODEL.sources * 2, between_runs=BetweenRuns(10.0, 2)),
            "between_runs.spread of 10: no server's speed moves as much between runs",
        ),
    ],
    ids=["step", "draw", "range", "hull", "one speed", "speeds"],
)
def test_what_no_fit_gives_is_named(model: Model, problem: str) -> None:
    assert implausible(model) == problem


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            replace(_MODEL, server=replace(SERVER, law=replace(LAW, step=1e-12))),
            "server.law.step of 1e-12 s in its file, which was fitted as 0.006 s (0.0059 to 0.0061)",
        ),
        (
            replace(_MODEL, server=replace(SERVER, front_end=replace(SERVER.front_end, intake=9.0))),
            "server.front_end.intake of 9 s in its file, which was fitted as 0.001 s (0.0005 to 0.002)",
        ),
        (
            replace(_MODEL, server=replace(SERVER, law=replace(LAW, step=90.0)), parameters=(replace(_STEP, value=90.0),)),
            "step of 90 s, far from its own range",
        ),
    ],
    ids=["a step", "a cost", "with its parameter"],
)
def test_a_constant_that_was_not_fitted_is_said(model: Model, said: str) -> None:
    assert implausible(model) is None
    assert edits(model) == (said,)
