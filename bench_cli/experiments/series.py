"""A series of runs: every arm in the planned order, one ``bench`` process per run, into one folder that can be continued."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import click

from bench_cli.experiments.hidden_arguments import without_secrets
from bench_cli.experiments.options import SeriesOptions
from bench_cli.experiments.plan import block_seed, continued, plan_runs
from bench_cli.private_files import files_as_private_as, private_files
from bench_cli.suggestions import with_near_names
from bench_errors import ExitStatus
from bench_records.experiment import Experiment, ExperimentFolder, PlannedArm

MEASURING_VERBS = ("dataset", "token_norm_dist", "token_from_histogram", "trace")
_SET_BY_THE_SERIES = {
    "--seed": "give --seed before the verb, and the traffic of each block follows from it",
    "--run_dir": "--experiment_dir before the verb names the folder of all runs",
}


@dataclass(frozen=True)
class Series:
    """A series of runs of ``kind`` "experiment" or "sweep", whose arms the option ``arm_option`` defines.

    ``arguments`` are the measuring verb and the options of every run; ``context`` is that of the command, with all verbs.
    """

    kind: str
    arm_option: str
    options: SeriesOptions
    arguments: tuple[str, ...]
    context: click.Context


def run_series(series: Series, arms: Sequence[PlannedArm]) -> ExperimentFolder:
    """Plan and make the runs of ``arms``.

    Returns the folder with every run recorded. Raises UsageError before the first run, ClickException when a run fails, and
    KeyboardInterrupt when it was stopped.
    """
    options, arguments = series.options, series.arguments
    _check_arguments(series)
    for arm in arms:
        _check_options(series, arm.options, f"{series.arm_option} {arm.name}")
        if options.experiment_dir is None or not ExperimentFolder(options.experiment_dir).plan.exists():
            _check_command(series, arm)
    experiment = plan_runs(series.kind, arguments, arms, options.repeats, options.seed)
    with private_files(shared=not {"--shared_results", "--shared-results"}.isdisjoint(arguments)):
        folder = open_folder(options.experiment_dir, without_secrets(experiment))
    given = replace(folder.read(), arguments=experiment.arguments, arms=experiment.arms)
    make_runs(given, folder, options.before_each)
    return folder


def _check_arguments(series: Series) -> None:
    """Raises UsageError unless the arguments are a measuring verb and options that the series leaves to its runs."""
    if not series.arguments or series.arguments[0].replace("-", "_") not in MEASURING_VERBS:
        raise click.UsageError(f"after the options comes what to run: {' or '.join(MEASURING_VERBS)}, and its options")
    _check_options(series, series.arguments[1:], "the run's options")


def _check_options(series: Series, options: tuple[str, ...], where: str) -> None:
    """Raises UsageError for an option that the series itself sets for every run."""
    for option in options:
        name = option.split("=", 1)[0].replace("-", "_").replace("__", "--", 1)
        if name in _SET_BY_THE_SERIES:
            raise click.UsageError(
                f"{name} cannot be one of {where}: the {series.kind} sets it for every run; {_SET_BY_THE_SERIES[name]}"
            )


def _check_command(series: Series, arm: PlannedArm) -> None:
    """Raises UsageError for options of an arm that the measuring verb does not take, before any folder is made."""
    root, arguments = series.context.find_root(), series.arguments
    verb = root.command.get_command(series.context, arguments[0]) if isinstance(root.command, click.Group) else None
    if verb is None:  # the series is run without the command line
        return
    try:
        verb.make_context(arguments[0], [*arguments[1:], *arm.options], parent=root)
    except click.UsageError as error:
        raise click.UsageError(f"{series.arm_option} {arm.name}: {with_near_names(error).format_message()}") from error


def open_folder(path: Path | None, experiment: Experiment) -> ExperimentFolder:
    """The folder of the experiment: a new one, or one with the same plan, to continue it; one with fewer repeats gets the
    others. Raises BadParameter.
    """
    folder = ExperimentFolder(path or Path("runs") / f"{datetime.now():%Y-%m-%d-%H%M%S}-{experiment.kind}")
    if folder.plan.exists():
        recorded = folder.read()
        extended = continued(recorded, experiment)
        if extended is None:
            raise click.BadParameter(
                f"{folder.path} holds another plan; name a new folder, or give the options that it was started with, and at "
                "least as many --repeats",
                param_hint="--experiment_dir",
            )
        if extended != recorded:
            click.echo(f"{folder.path}: {len(extended.runs) - len(recorded.runs)} runs are added to its plan.", err=True)
            folder.write(extended)
        return folder
    if folder.path.exists() and any(folder.path.iterdir()):
        raise click.BadParameter(f"{folder.path} is not empty; name a new folder", param_hint="--experiment_dir")
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.write(experiment)
    return folder


def make_runs(experiment: Experiment, folder: ExperimentFolder, before_each: str | None) -> None:
    """Make every run that is not recorded yet. Raises ClickException when one fails, KeyboardInterrupt when it was stopped."""
    for number, run in enumerate(experiment.runs, start=1):
        arm = experiment.arms[run.arm]
        label = f"Run {number} of {len(experiment.runs)}, block {run.block + 1}: {arm.name}"
        if folder.is_recorded(run):
            click.echo(f"{label}: recorded before", err=True)
            continue
        click.echo(label, err=True)
        _run_command(before_each)
        _make_run(experiment, folder, number - 1)


def _run_command(before_each: str | None) -> None:
    if before_each is not None and (status := subprocess.run(shlex.split(before_each), check=False).returncode):
        raise click.ClickException(f"--before_each: {before_each!r} ended with status {status}")


def _make_run(experiment: Experiment, folder: ExperimentFolder, number: int) -> None:
    run = experiment.runs[number]
    path = folder.run_folder(run).path
    _put_aside(path)
    command = [
        *(sys.executable, "-m", "bench_cli"),
        *experiment.arguments,
        *experiment.arms[run.arm].options,
        *("--seed", str(block_seed(experiment, run)), "--run_dir", str(path)),
    ]
    with files_as_private_as(folder.path):
        log = (folder.path / "output.log").open("ab")
    with log as output:
        status = subprocess.run(command, stdout=output, check=False).returncode
    if status == ExitStatus.INTERRUPTED:
        raise KeyboardInterrupt
    if status == ExitStatus.INVALID:  # the comparison decides whether it counts
        click.echo(f"the run is not valid; {path / 'report.html'} has the findings", err=True)
    if status in (ExitStatus.VALID, ExitStatus.INVALID):
        return
    if folder.is_recorded(run):  # failed requests are a result, too
        click.echo(f"the run ended with status {status}; its failures are part of the result", err=True)
        return
    raise click.ClickException(f"the run in {path} ended with status {status}, for the reason above. Call again to continue.")


def _put_aside(path: Path) -> None:
    """Rename the folder of a run that was cut short, so that it is kept."""
    if path.exists() and any(path.iterdir()):
        path.rename(path.with_name(f"{path.name}-cut-{datetime.now():%H%M%S%f}"))
