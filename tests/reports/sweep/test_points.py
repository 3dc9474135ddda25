"""Sweeps: the Pareto front as a law, and reading what is recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_cli import run as bench
from bench_cli.experiments.plan import plan_runs
from bench_records.experiment import ExperimentFolder, PlannedArm
from bench_records.record import Record
from bench_records.run_folder import RunFolderError
from reports.run_report import RunReport
from reports.statistics.estimate import Estimate
from reports.sweep.formats import SWEEP
from reports.sweep.json_file import document
from reports.sweep.points import SweepPoint, SweepRun, pareto_front, read_sweep


def _point(tokens_per_s: float | None, p99_ms: float | None, valid: bool = True) -> SweepPoint:
    return SweepPoint(
        name="p",
        settings=(),
        runs=(SweepRun("p", has_page=False, valid=valid, command="bench"),),
        offered_rate=1.0,
        request_throughput=Estimate(1.0),
        output_token_throughput=Estimate(tokens_per_s),
        latency_p50_ms=Estimate(1.0),
        latency_p99_ms=Estimate(p99_ms),
        e2e_p99_ms=Estimate(1.0),
        goodput=Estimate(None),
        attainment=None,
        gates=(),
        failed=0,
        findings=(),
    )


@given(st.lists(st.builds(_point, st.none() | st.integers(1, 9), st.none() | st.integers(1, 9), st.booleans()), max_size=12))
def test_no_point_of_the_front_is_beaten_and_every_other_one_is(points: list[SweepPoint]) -> None:
    front = pareto_front(points)
    known = {
        k: (p.output_token_throughput.value, p.latency_p99_ms.value)
        for k, p in enumerate(points)
        if p.valid and p.output_token_throughput.value is not None and p.latency_p99_ms.value is not None
    }

    def beaten(k: int) -> bool:
        return any(
            other[0] >= known[k][0] and other[1] <= known[k][1] and (other != known[k] or j in front) and j != k
            for j, other in known.items()
        )

    assert set(front) <= set(known)
    assert not any(
        known[j][0] >= known[k][0] and known[j][1] <= known[k][1] and known[j] != known[k] for k in front for j in known
    )
    assert all(beaten(k) for k in known if k not in front)


def test_a_sweep_is_read_with_its_points_in_the_order_asked_for(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]], tmp_path: Path
) -> None:
    arms = [PlannedArm(f"request_rate={rate}", ("--request_rate", str(rate))) for rate in (1, 2, 3)]
    plan = plan_runs("sweep", ["dataset"], arms, 1, 0)
    folder = ExperimentFolder(tmp_path)
    folder.write(plan)
    with pytest.raises(RunFolderError, match="no run of the sweep is recorded"):
        read_sweep(folder)
    for run in plan.runs:
        if run.arm != 1:  # one was never made
            make_report(steady_run()).folder.path.rename(folder.run_folder(run).path)
    sweep = read_sweep(folder)
    assert [point.name for point in sweep.points] == ["request_rate=1", "request_rate=3"]
    assert sweep.points[0].latency_p99_ms.value == 100.0
    assert "request_rate=3" in SWEEP.terminal_text(sweep)
    assert json.loads(json.dumps(document(sweep), allow_nan=False))["points"][0]["valid"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--over", "request_rate", "dataset"], "OPTION=V1,V2"),
        (["--over", "request_rate=1,1", "dataset"], "a value is given twice"),
        (["--over", "seed=1,2", "dataset"], "--seed cannot be one of --over"),
        (["--over", "request_rate=1,2", "dataset", "--run-dir=x"], "--run_dir cannot be one of"),
        (["--over", "request_rate=1,2", "serve"], "dataset or token_norm_dist"),
        (["--over", "request_rate=1,2"], "dataset or token_norm_dist"),
        (["dataset"], "--over"),
    ],
)
def test_usage_errors_are_reported(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(["sweep", *arguments]) == 2
    assert message in capsys.readouterr().err
