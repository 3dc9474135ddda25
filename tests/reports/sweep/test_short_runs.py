"""A sweep whose runs are too short to show whether the queue grows: nothing is known to be held."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench_cli.experiments.plan import plan_runs
from bench_records.experiment import ExperimentFolder, PlannedArm
from bench_records.record import Record
from bench_records.run_folder import RunFolder
from reports.criteria import parse_held
from reports.gates.gate import Status
from reports.sweep.held import gates_of
from reports.sweep.points import Sweep, read_sweep
from reports.sweep.tables import answer
from tests.reports.manifests import asked_load

_RATES = (20, 400)  # of a server that answers 49 a second


@pytest.fixture
def short_sweep(
    tmp_path: Path, make_run: Callable[..., RunFolder], queued_run: Callable[..., list[Record]]
) -> Callable[[int], Sweep]:
    def make(requests: int) -> Sweep:
        arms = [PlannedArm(f"request_rate={rate}", ("--request_rate", str(rate))) for rate in _RATES]
        plan, folder = plan_runs("sweep", ["dataset"], arms, 1, 0), ExperimentFolder(tmp_path)
        folder.write(plan)
        for run in plan.runs:
            rate = float(_RATES[run.arm])
            made = make_run(queued_run(rate, 1, count=requests), load=asked_load(rate))
            made.path.rename(folder.run_folder(run).path)
        return read_sweep(folder, (parse_held("held<200"),))

    return make


def test_ten_requests_show_no_load_that_is_held(short_sweep: Callable[[int], Sweep]) -> None:
    sweep = short_sweep(10)
    assert [point.held for point in sweep.points] == [None, None]
    assert answer(sweep).startswith("Undecided at every request_rate (20, 400): the runs are too short")
    assert gates_of(sweep)[0].status is Status.UNDECIDED


def test_a_queue_that_grows_within_few_requests_is_seen(short_sweep: Callable[[int], Sweep]) -> None:
    assert [point.held for point in short_sweep(99).points] == [None, False]


def test_runs_that_last_for_several_answers_decide(short_sweep: Callable[[int], Sweep]) -> None:
    sweep = short_sweep(700)
    assert [point.held for point in sweep.points] == [True, False]
    assert gates_of(sweep)[0].status is Status.UNDECIDED  # between 20 and 400


@pytest.mark.parametrize("seed", range(4))
def test_a_hundred_requests_above_capacity_are_not_held(
    tmp_path: Path, make_run: Callable[..., RunFolder], queued_run: Callable[..., list[Record]], seed: int
) -> None:
    """60 a second, of a server that answers 49: the queue of 100 requests grows by less than chance might explain."""
    arms = [PlannedArm("request_rate=60", ("--request_rate", "60"))]
    plan, folder = plan_runs("sweep", ["dataset"], arms, 1, 0), ExperimentFolder(tmp_path)
    folder.write(plan)
    made = make_run(queued_run(60.0, seed, count=100), load=asked_load(60.0))
    made.path.rename(folder.run_folder(plan.runs[0]).path)
    sweep = read_sweep(folder, (parse_held("held<60"),))
    assert sweep.points[0].held is not True
    assert gates_of(sweep)[0].status is not Status.PASSED


@pytest.mark.parametrize(("slo", "held"), [({}, None), ({"criteria": {"slo": ["p50_ttft<=300ms"]}}, True)])
def test_users_hold_where_a_limit_says_what(
    tmp_path: Path,
    make_run: Callable[..., RunFolder],
    queued_run: Callable[..., list[Record]],
    slo: dict[str, dict[str, list[str]]],
    held: bool | None,
) -> None:
    """They wait for their answers, so no queue grows, however slow the target is."""
    arms = [PlannedArm("concurrency=2", ("--concurrency", "2"))]
    plan, folder = plan_runs("sweep", ["dataset"], arms, 1, 0), ExperimentFolder(tmp_path)
    folder.write(plan)
    closed = {"mode": "closed", "prepared": 700, "ran_out": False}
    make_run(queued_run(20.0, 1), load=closed, **slo).path.rename(folder.run_folder(plan.runs[0]).path)
    (point,) = read_sweep(folder).points
    assert len(point.gates) == len(slo)
    assert point.held is held
