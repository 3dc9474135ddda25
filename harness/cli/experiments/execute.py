"""Carrying out a planned experiment or sweep: one ``bench`` process a run, in the planned order."""

from __future__ import annotations

import shlex
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import click

from bench_errors import ExitStatus
from harness.cli.experiments.plan import block_seed
from harness.records.experiment import Experiment, ExperimentFolder

MEASURING_VERBS = ("dataset", "token_norm_dist")
_OWNED = ("--seed", "--run_dir")


def check_arguments(arguments: tuple[str, ...]) -> None:
    """Raise UsageError unless ``arguments`` are a measuring verb and options that an experiment leaves to its runs."""
    if not arguments or arguments[0].replace("-", "_") not in MEASURING_VERBS:
        raise click.UsageError(f"after the options comes what to run: {' or '.join(MEASURING_VERBS)}, and its options")
    check_options(arguments[1:], "the run's options")


def check_options(options: tuple[str, ...], where: str) -> None:
    """Raise UsageError for an option that the experiment itself sets for every run."""
    for option in options:
        name = option.split("=", 1)[0].replace("-", "_").replace("__", "--", 1)
        if name in _OWNED:
            raise click.UsageError(f"{name} cannot stand in {where}: the experiment sets it for every run")


def open_folder(path: Path | None, experiment: Experiment) -> ExperimentFolder:
    """The folder of the experiment: new, or one that holds the same plan, to go on with it. Raises BadParameter."""
    folder = ExperimentFolder(path or Path("runs") / f"{datetime.now():%Y-%m-%d-%H%M%S}-{experiment.kind}")
    if folder.plan.exists():
        if folder.read() != experiment:
            raise click.BadParameter(
                f"{folder.path} holds another plan; name a new folder, or give the options it was begun with",
                param_hint="--experiment_dir",
            )
        return folder
    if folder.path.exists() and any(folder.path.iterdir()):
        raise click.BadParameter(f"{folder.path} is not empty; name a new folder", param_hint="--experiment_dir")
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.write(experiment)
    return folder


def carry_out(experiment: Experiment, folder: ExperimentFolder, before_each: str | None) -> None:
    """Make every run that is not recorded yet. Raises ClickException when one fails, KeyboardInterrupt when it was stopped."""
    for number, run in enumerate(experiment.runs, start=1):
        arm = experiment.arms[run.arm]
        where = f"Run {number} of {len(experiment.runs)}, block {run.block + 1}: {arm.name}"
        if folder.is_recorded(run):
            click.echo(f"{where}: recorded before", err=True)
            continue
        click.echo(f"{where}", err=True)
        _between_runs(before_each)
        _make_run(experiment, folder, number - 1)


def _between_runs(before_each: str | None) -> None:
    if before_each is not None and (status := subprocess.run(shlex.split(before_each), check=False).returncode):
        raise click.ClickException(f"--before_each: {before_each!r} ended with status {status}")


def _make_run(experiment: Experiment, folder: ExperimentFolder, number: int) -> None:
    run = experiment.runs[number]
    path = folder.run_folder(run).path
    _put_aside(path)
    command = [
        *(sys.executable, "-m", "harness.cli"),
        *experiment.arguments,
        *experiment.arms[run.arm].options,
        *("--seed", str(block_seed(experiment, run)), "--run_dir", str(path)),
    ]
    with (folder.path / "output.log").open("ab") as output:
        status = subprocess.run(command, stdout=output, check=False).returncode
    if status == ExitStatus.INTERRUPTED:
        raise KeyboardInterrupt
    if status == ExitStatus.INVALID:  # whether it counts, the comparison decides
        click.echo(f"the run is not valid: {path / 'report.html'} says why", err=True)
    if status in (ExitStatus.VALID, ExitStatus.INVALID):
        return
    if folder.is_recorded(run):  # requests failed: that is a result, too
        click.echo(f"the run ended with status {status}; its failures are part of the result", err=True)
        return
    raise click.ClickException(f"the run in {path} ended with status {status}; 'bench' said why above. Call again to go on.")


def _put_aside(path: Path) -> None:
    """A run that was cut short leaves a folder behind; it stays, under another name."""
    if path.exists() and any(path.iterdir()):
        path.rename(path.with_name(f"{path.name}-cut-{datetime.now():%H%M%S%f}"))
