"""Experiments and sweeps from the command line: usage errors, continuation, and failing runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import pytest

from bench_cli import run as bench
from bench_cli.experiments.plan import plan_runs
from bench_cli.experiments.series import Series, make_runs, open_folder
from bench_errors import ExitStatus
from bench_records.experiment import ExperimentFolder, PlannedArm
from bench_records.manifest import Manifest
from bench_records.run_folder import RunFolder

_ARMS = (PlannedArm("a", ()), PlannedArm("b", ("--workers", "2")))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arm", "a=", "dataset"], "at least two"),
        (["--arm", "a=", "--arm", "a=--workers 2", "dataset"], "different names"),
        (["--arm", "--workers=2", "--arm", "b=", "dataset"], "NAME=OPTIONS"),
        (["--arm", "a=--x 'open", "--arm", "b=", "dataset"], "No closing quotation"),
        (["--arm", "a=--seed 1", "--arm", "b=", "dataset"], "--seed cannot be one of --arm a"),
        (
            ["--arm", "a=", "--arm", "b=", "dataset", "--max-repeats=3"],
            "No such option '--max-repeats'. It is an option of bench experiment: give it before the verb.",
        ),
        (["--arm", "a=", "--arm", "b="], "dataset or token_norm_dist"),
        (["--arm", "a=", "--arm", "b=", "--until", "precise", "dataset"], "write decided, or a measure before it"),
        (["--arm", "a=", "--arm", "b=", "--until", "mean_ttft decided", "dataset"], "p99_ttft"),
        (["--arm", "a=", "--arm", "b=", "--until", "decided", "--repeats", "5", "dataset"], "give --max_repeats"),
        (["--arm", "a=", "--arm", "b=", "--max_repeats", "5", "dataset"], "give --repeats"),
    ],
)
def test_wrong_arguments_are_usage_errors(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(["experiment", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--over", "request_rate", "dataset"], "OPTION=V1,V2"),
        (["--over", "request_rate=2,2", "dataset"], "a value is given twice"),
        (
            ["--over", "isl=uniform:min=1,max=9", "dataset"],
            "'max=9' is a part of a value; separate values that have commas by ';'",
        ),
        (["--over", "seed=1,2", "dataset"], "--seed cannot be one of --over seed=1"),
        (["--over", "request_rate=2,4", "serve"], "dataset or token_norm_dist"),
        (["--over", "request_rate=2,4", "dataset", "--run-dir", "r"], "--run_dir cannot be one of the run's options"),
    ],
)
def test_wrong_arguments_of_a_sweep_are_usage_errors(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(["sweep", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_values_with_commas_are_parted_by_semicolons(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[PlannedArm] = []

    def plan(series: Series, points: list[PlannedArm]) -> None:
        planned.extend(points)
        raise click.UsageError("planned")

    monkeypatch.setattr("bench_cli.experiments.series.run_series", plan)
    assert bench(["sweep", "--over", "isl=uniform:min=1,max=9; 7±2", "--over", "request_rate=2,4", "token_norm_dist"]) == 2
    assert [arm.options for arm in planned] == [
        ("--isl", law, "--request_rate", rate) for law in ("uniform:min=1,max=9", "7±2") for rate in ("2", "4")
    ]


def test_a_folder_with_another_plan_is_refused_and_the_same_plan_is_continued(tmp_path: Path) -> None:
    plan = plan_runs("experiment", ["dataset"], _ARMS, 2, 0)
    open_folder(tmp_path / "e", plan)
    assert open_folder(tmp_path / "e", plan).read() == plan
    for other in (
        plan_runs("experiment", ["dataset"], _ARMS, 1, 0),
        plan_runs("experiment", ["dataset"], _ARMS, 2, 1),
        plan_runs("experiment", ["dataset", "--workers", "3"], _ARMS, 3, 0),
        plan_runs("experiment", ["dataset"], (_ARMS[0], PlannedArm("c", ())), 3, 0),
    ):
        with pytest.raises(click.BadParameter, match="another plan"):
            open_folder(tmp_path / "e", other)


@pytest.mark.parametrize(
    ("recorded", "asked", "message"), [(True, False, "give it again"), (False, True, "leave it out"), (None, True, None)]
)
def test_a_command_before_each_run_is_not_left_out_or_added_between(
    tmp_path: Path, recorded: bool | None, asked: bool, message: str | None
) -> None:
    """A server that was restarted before the first runs alone is another one. An older folder does not say what it was."""
    plan = plan_runs("experiment", ["dataset"], _ARMS, 2, 0)
    open_folder(tmp_path / "e", replace(plan, before_each=recorded))
    again = replace(plan, before_each=asked)
    if message is None:
        assert open_folder(tmp_path / "e", again).read().before_each is None
        return
    with pytest.raises(click.BadParameter, match=message):
        open_folder(tmp_path / "e", again)
    assert open_folder(tmp_path / "e", replace(again, before_each=recorded)).read().before_each is recorded


def test_more_repeats_are_added_to_the_plan_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    three = plan_runs("experiment", ["dataset"], _ARMS, 3, 0)
    open_folder(tmp_path / "e", three)
    extended = open_folder(tmp_path / "e", plan_runs("experiment", ["dataset"], _ARMS, 5, 0)).read()
    assert extended.runs[:6] == three.runs  # what is recorded stays where it is
    assert [run.block for run in extended.runs[6:]] == [3, 3, 4, 4]
    assert [run.folder[:3] for run in extended.runs] == [f"{number:03d}" for number in range(1, 11)]
    assert all({run.arm for run in extended.runs if run.block == block} == {0, 1} for block in range(5))
    assert "4 runs are added to its plan." in capsys.readouterr().err


def test_a_run_that_fails_ends_the_experiment_and_what_was_recorded_is_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_runs("experiment", ["dataset", "--url", "127.0.0.1:1"], _ARMS, 1, 0)  # no server listens there
    folder = open_folder(tmp_path / "e", plan)
    first = folder.run_folder(plan.runs[0])
    first.path.mkdir()
    first.requests.write_bytes(b"")
    first.write_manifest(Manifest())
    with pytest.raises(click.ClickException, match="ended with status 1") as error:
        make_runs(plan, folder, None)
    assert error.value.message.endswith(f"To go on, give the same command with --experiment_dir {tmp_path / 'e'}")
    progress = capsys.readouterr().err
    assert "Run 1 of 2, block 1" in progress
    assert "recorded before" in progress


def test_an_arm_that_its_target_refuses_is_named_before_the_first_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = ["--arm", "a=", "--arm", "b=--max_num_sequences 2", "token_norm_dist", "--url", "localhost:8001"]
    assert bench(["experiment", "--experiment_dir", str(tmp_path / "e"), *arms]) == ExitStatus.USAGE
    error = " ".join(capsys.readouterr().err.split())
    assert "--arm b: --max_num_sequences configures the embedded pipeline; it cannot be combined with --url" in error
    assert not (tmp_path / "e").exists()


def test_a_series_that_is_stopped_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second run was stopped, though it has records, so that it is made again."""
    endings = [(ExitStatus.VALID, False), (ExitStatus.INTERRUPTED, True)]

    def make_run(arguments: Sequence[str], path: Path, log: Path) -> int:
        status, interrupted = endings.pop(0)
        path.mkdir()
        RunFolder(path).requests.touch()
        RunFolder(path).write_manifest(Manifest(interrupted=interrupted))
        return status

    monkeypatch.setattr("bench_cli.experiments.series.make_run", make_run)
    arms = ["--repeats", "1", "--arm", "a=", "--arm", "b=--workers 2", "token_norm_dist", "--url", "localhost:8001"]
    assert bench(["experiment", "--experiment_dir", str(tmp_path / "e"), *arms]) == ExitStatus.INTERRUPTED
    again = f"Stopped; recorded: 1 of 2 runs. To go on, give the same command with --experiment_dir {tmp_path / 'e'}"
    assert again in capsys.readouterr().err


@pytest.mark.parametrize(
    ("validity", "said"),
    [
        ("valid", "the run ended with status 1; its failures are part of the result"),
        ("invalid", "the run is not valid; {report} has the findings"),
    ],
)
def test_a_run_with_failed_requests_is_part_of_the_result_only_if_it_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], validity: str, said: str
) -> None:
    """The exit status of both is 1; a comparison leaves a block with an invalid run out."""

    def make_run(arguments: Sequence[str], path: Path, log: Path) -> int:
        path.mkdir()
        RunFolder(path).requests.touch()
        RunFolder(path).write_manifest(Manifest())
        RunFolder(path).summary.write_text(f'{{"validity": "{validity}"}}')
        return ExitStatus.FAILED

    monkeypatch.setattr("bench_cli.experiments.series.make_run", make_run)
    plan = plan_runs("experiment", ["dataset"], _ARMS, 1, 0)
    folder = open_folder(tmp_path / "e", plan)
    make_runs(plan, folder, None)
    report = folder.run_folder(plan.runs[0]).html
    assert capsys.readouterr().err.splitlines()[1] == said.format(report=report)


def test_a_run_whose_client_failed_ends_the_experiment_and_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has records, of a part of its schedule."""
    endings = [(ExitStatus.VALID, None), (ExitStatus.FAILED, "the disk is full"), (ExitStatus.VALID, None)]
    made = list[str]()

    def make_run(arguments: Sequence[str], path: Path, log: Path) -> int:
        status, problem = endings.pop(0)
        made.append(path.name)
        path.mkdir(exist_ok=True)
        RunFolder(path).requests.touch()
        RunFolder(path).write_manifest(Manifest(problem=problem))
        return status

    monkeypatch.setattr("bench_cli.experiments.series.make_run", make_run)
    plan = plan_runs("experiment", ["dataset"], _ARMS, 1, 0)
    folder = open_folder(tmp_path / "e", plan)
    with pytest.raises(click.ClickException, match="ended with status 1, for the reason above"):
        make_runs(plan, folder, None)
    capsys.readouterr()
    make_runs(plan, folder, None)
    assert made == [plan.runs[0].folder, plan.runs[1].folder, plan.runs[1].folder]
    assert capsys.readouterr().err.splitlines() == [
        f"Run 1 of 2, block 1: {_ARMS[plan.runs[0].arm].name}: recorded before",
        f"Run 2 of 2, block 1: {_ARMS[plan.runs[1].arm].name}, again: it did not come to its end before",
    ]


def test_blocks_that_are_recorded_are_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look sees all blocks: after the first of two recorded ones it would show the numbers of both as those after one."""

    def make_run(arguments: Sequence[str], path: Path, log: Path) -> int:
        path.mkdir()
        RunFolder(path).requests.touch()
        RunFolder(path).write_manifest(Manifest())
        return ExitStatus.VALID

    def look(folder: ExperimentFolder) -> bool:
        looks.append(sum(map(folder.is_recorded, plan.runs)))
        return False

    monkeypatch.setattr("bench_cli.experiments.series.make_run", make_run)
    looks = list[int]()
    plan = plan_runs("experiment", ["dataset"], _ARMS, 4, 0)
    folder = open_folder(tmp_path / "e", plan)
    make_runs(replace(plan, runs=plan.runs[:4]), folder, None)
    make_runs(plan, folder, None, look)
    assert looks == [4, 6, 8]
    make_runs(plan, folder, None, look)
    assert looks == [4, 6, 8, 8]


def test_a_command_before_each_run_that_fails_ends_the_experiment(tmp_path: Path) -> None:
    plan = plan_runs("experiment", ["dataset"], _ARMS, 1, 0)
    folder = open_folder(tmp_path / "e", plan)
    with pytest.raises(click.ClickException, match="ended with status 5: no route"):
        make_runs(plan, folder, "echo flushing; echo no route >&2 && exit 5")
    assert (folder.path / "output.log").read_text() == "flushing\nno route\n"
    with pytest.raises(click.ClickException, match=r"ended with status 127: .*nosuchprogram"):
        make_runs(plan, folder, "nosuchprogram")
    with pytest.raises(click.ClickException, match="ended with status 2: "):
        make_runs(plan, folder, "curl 'x")
