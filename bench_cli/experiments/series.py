"""A series of runs: every arm in the planned order, one ``bench`` process per run, into one folder that can be continued."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

import click

from bench_cli.experiments.child_runs import RunOptions, make_run, run_command
from bench_cli.experiments.held_folder import held_alone
from bench_cli.experiments.hidden_arguments import without_secrets
from bench_cli.experiments.options import SeriesOptions
from bench_cli.experiments.plan import block_seed, continued, plan_runs
from bench_cli.private_files import private_files
from bench_cli.signals import signals_as_interrupt
from bench_errors import ExitStatus
from bench_records.experiment import Experiment, ExperimentFolder, PlannedArm, UntilDecided
from bench_records.run_folder import RunFolder
from reports.render.counts import counted

_SET_BY_THE_SERIES = {
    "--seed": "give --seed before the verb, and the traffic of each block follows from it",
    "--run_dir": "--experiment_dir before the verb names the folder of all runs",
}


@dataclass(frozen=True)
class Series:
    """A series of runs of ``kind`` "experiment" or "sweep", whose arms the option ``arm_option`` defines.

    ``arguments`` are the measuring verb and the options of every run; ``context`` is that of the command, with all verbs.
    ``until`` may end it before its repeats.
    """

    kind: str
    arm_option: str
    options: SeriesOptions
    arguments: tuple[str, ...]
    context: click.Context
    until: UntilDecided | None = None


IsDecided = Callable[[ExperimentFolder], bool]


def run_series(series: Series, arms: Sequence[PlannedArm], is_decided: IsDecided | None = None) -> ExperimentFolder:
    """Plan and make the runs of ``arms``; ``is_decided`` is called after each block, and may end the series.

    Returns the folder with every run recorded. Raises UsageError before the first run, ClickException when a run fails, and
    KeyboardInterrupt when it was stopped.
    """
    options, arguments = series.options, series.arguments
    runs = RunOptions(series.kind, arguments, _SET_BY_THE_SERIES, series.context)
    runs.check_arguments()
    for arm in arms:
        where = f"{series.arm_option} {arm.name}"
        runs.check_options(arm.options, where)
        if options.experiment_dir is None or not ExperimentFolder(options.experiment_dir).plan.exists():
            _check_command(runs, arm, where)
    planned = plan_runs(series.kind, arguments, arms, options.repeats, options.seed, series.until)
    experiment = replace(planned, before_each=options.before_each is not None)
    path = options.experiment_dir or Path("runs") / f"{datetime.now():%Y-%m-%d-%H%M%S}-{series.kind}"
    with signals_as_interrupt(), ExitStack() as held:
        with private_files(shared=not {"--shared_results", "--shared-results"}.isdisjoint(arguments)):
            held.enter_context(held_alone(path))
            folder = open_folder(path, without_secrets(experiment))
        given = replace(folder.read(), arguments=experiment.arguments, arms=experiment.arms)
        try:
            make_runs(given, folder, options.before_each, is_decided)
        except KeyboardInterrupt:
            _say_stopped(given, folder)
            raise
    return folder


def _say_stopped(experiment: Experiment, folder: ExperimentFolder) -> None:
    recorded = sum(map(folder.is_recorded, experiment.runs))
    click.echo(f"Stopped; recorded: {recorded} of {counted(len(experiment.runs), 'run')}. {_how_to_go_on(folder)}", err=True)


def _how_to_go_on(folder: ExperimentFolder) -> str:
    """The command alone would begin a new experiment, in a folder of its own."""
    return f"To go on, give the same command with --experiment_dir {folder.path}"


def _check_command(runs: RunOptions, arm: PlannedArm, where: str) -> None:
    """Raises UsageError for options of an arm that the measuring verb does not take, before any folder is made."""
    try:
        runs.parsed(arm.options)
    except click.UsageError as error:
        raise click.UsageError(f"{where}: {error.format_message()}") from error


def open_folder(path: Path, experiment: Experiment) -> ExperimentFolder:
    """The folder of the experiment: a new one, or one with the same plan, to continue it; one with fewer repeats gets the
    others. Raises BadParameter.
    """
    folder = ExperimentFolder(path)
    if folder.plan.exists():
        recorded = folder.read()
        extended = continued(recorded, experiment)
        if extended is None:
            raise click.BadParameter(
                f"{folder.path} holds another plan; name a new folder, or give the options that it was started with, and at "
                "least as many --repeats",
                param_hint="--experiment_dir",
            )
        if recorded.before_each is not None and recorded.before_each is not experiment.before_each:
            raise click.BadParameter(
                f"a command ran before each run in {folder.path}, and is not kept: give it again"
                if recorded.before_each
                else f"no command ran before the runs in {folder.path}; name a new folder, or leave it out",
                param_hint="--before_each",
            )
        if extended != recorded:
            added = counted(len(extended.runs) - len(recorded.runs), "run is", "runs are")
            click.echo(f"{folder.path}: {added} added to its plan.", err=True)
            folder.write(extended)
        return folder
    if folder.path.exists() and any(folder.path.iterdir()):
        raise click.BadParameter(f"{folder.path} is not empty; name a new folder", param_hint="--experiment_dir")
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.write(experiment)
    return folder


def make_runs(
    experiment: Experiment, folder: ExperimentFolder, before_each: str | None, is_decided: IsDecided | None = None
) -> None:
    """Make every run that is not recorded yet, until ``is_decided`` after a block. It sees all blocks, so that those which are
    recorded are looked at together, after the last of them. Raises ClickException when a run fails, KeyboardInterrupt when it
    was stopped.
    """
    runs = f"{'' if is_decided is None else 'at most '}{len(experiment.runs)}"
    for number, run in enumerate(experiment.runs, start=1):
        arm = experiment.arms[run.arm]
        label = f"Run {number} of {runs}, block {run.block + 1}: {arm.name}"
        if folder.is_recorded(run):
            click.echo(f"{label}: recorded before", err=True)
        else:
            again = ", again: it did not come to its end before" if folder.run_folder(run).requests.exists() else ""
            click.echo(f"{label}{again}", err=True)
            run_command(before_each, folder.path / "output.log")
            _make_run(experiment, folder, number - 1)
        ends_block = number % len(experiment.arms) == 0
        if is_decided is not None and ends_block and not _is_next_recorded(experiment, folder, number) and is_decided(folder):
            return


def _is_next_recorded(experiment: Experiment, folder: ExperimentFolder, made: int) -> bool:
    return made < len(experiment.runs) and folder.is_recorded(experiment.runs[made])


def _make_run(experiment: Experiment, folder: ExperimentFolder, number: int) -> None:
    run = experiment.runs[number]
    path = folder.run_folder(run).path
    seed = ("--seed", str(block_seed(experiment, run)))
    arguments = [*experiment.arguments, *experiment.arms[run.arm].options, *seed]
    status = make_run(arguments, path, folder.path / "output.log")
    if status == ExitStatus.INTERRUPTED:
        raise KeyboardInterrupt
    is_failed = status == ExitStatus.FAILED and folder.is_recorded(run)
    if status == ExitStatus.INVALID or (is_failed and _is_called_invalid(folder.run_folder(run))):
        click.echo(f"the run is not valid; {path / 'report.html'} has the findings", err=True)  # the comparison leaves it out
        return
    if status == ExitStatus.VALID:
        return
    if is_failed:  # failed requests are a result, too
        click.echo(f"the run ended with status {status}; its failures are part of the result", err=True)
        return
    raise click.ClickException(f"the run in {path} ended with status {status}, for the reason above. {_how_to_go_on(folder)}")


def _is_called_invalid(folder: RunFolder) -> bool:
    """Whether its summary calls the run invalid: the exit status of one with failed requests does not say."""
    try:
        return bool(json.loads(folder.summary.read_bytes())["validity"] == "invalid")
    except (OSError, ValueError, KeyError, TypeError):
        return False
