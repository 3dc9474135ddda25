"""``bench capacity`` of one target: its search in a folder that can be continued."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench_cli.experiments.capacity_options import EffortOptions, Options
from bench_cli.experiments.held_folder import held_alone
from bench_cli.experiments.search_arguments import (
    checked,
    continued,
    default_folder,
    is_shared,
    new_folder,
    new_search,
    open_probes,
    read_file,
    recorded_search,
    search_runs,
)
from bench_cli.private_files import private_files
from bench_cli.signals import signals_as_interrupt
from bench_errors import ExitStatus
from bench_records.search import Search, SearchFolder
from simulator.errors import SimulatorError
from simulator.model import copy_model

if TYPE_CHECKING:
    from bench_cli.experiments.model_control import Simulation
    from reports.capacity.result import Capacity


def search(context: click.Context, options: Options, arguments: tuple[str, ...]) -> ExitStatus:
    """Carry out the search that the command requests, and show its result. Raises UsageError, and KeyboardInterrupt with what
    is measured saved and shown.
    """
    from bench_cli.experiments.search_run import TargetGoneError, search_capacity

    effort = options.effort
    asked, given = _asked(context, options, arguments)
    say_budget([asked], SearchFolder(effort.experiment_dir or default_folder()).plan)
    if effort.dry_run:
        from bench_cli.experiments.dry_run import dry_run

        if arguments:
            read_file(context, asked, given)
        _simulation(context, SearchFolder(effort.experiment_dir or default_folder()), asked, given, effort)
        click.echo(dry_run(asked))
        return ExitStatus.VALID
    folder = SearchFolder(effort.experiment_dir or default_folder())
    with private_files(shared=is_shared(given)), signals_as_interrupt(), held_alone(folder.path):
        plan = _opened(folder, asked)
        if effort.model is not None and not folder.model.exists():
            copy_model(effort.model, folder.model)
        runs = search_runs(context, given)
        try:
            capacity = search_capacity(
                folder,
                plan,
                lambda: open_probes(runs, folder, effort.before_each),
                lambda line: click.echo(line, err=True),
                simulation=_simulation(context, folder, plan, given, effort),
            )
        except KeyboardInterrupt:
            _show_interrupted(folder, plan)
            raise
        except (click.ClickException, TargetGoneError, SimulatorError) as error:
            if not remove_unused([folder], with_server_log=isinstance(error, click.UsageError | SimulatorError)):
                _show_interrupted(folder, plan)
            raise
        _show(capacity, folder)
    return status_of(capacity)


def _simulation(
    context: click.Context, folder: SearchFolder, plan: Search, given: tuple[str, ...], effort: EffortOptions
) -> Simulation | None:
    """What simulates the probes: the model of the command, or the folder's copy. Raises UsageError and SimulatorError."""
    if plan.model is None:
        return None
    from bench_cli.experiments.model_control import model_control

    return model_control(context, folder, plan, given, effort.model or folder.model)


def say_budget(searches: Sequence[Search], plan: Path) -> None:
    """Say on stderr where the budget of new searches is short; raises UsageError where it holds nothing. What ``plan`` holds
    goes on in any case, and ends with what is measured.
    """
    from bench_cli.experiments.budget import check_budget

    short = None if plan.exists() else check_budget(searches)
    if short is not None:
        click.echo(short, err=True)


def remove_unused(folders: Sequence[SearchFolder], with_server_log: bool) -> bool:
    """Remove the folders of searches none of whose runs could begin, so that the command can be given again, corrected; whether
    all were such. A server's log, which may say why, counts as a file of its own unless ``with_server_log``.
    """
    files = {folder: set(folder.path.iterdir()) for folder in folders}
    for folder, found in files.items():
        if not found <= {
            folder.plan,
            folder.model,
            folder.path / "output.log",
            *((folder.server_log,) if with_server_log else ()),
        }:
            return False
    for folder, found in files.items():
        for file in found:
            file.unlink()
        folder.path.rmdir()
    return True


def say_stopped(path: Path, probes: int, search: Search) -> None:
    """How many probes are kept in the folder, and how to go on."""
    count = f"{probes} {'probe is' if probes == 1 else 'probes are'}"
    again = " --before_each …" if search.before_each else ""
    click.echo(f"Stopped; {count} saved. To go on: bench capacity --experiment_dir {path}{again}", err=True)


def status_of(capacity: Capacity) -> ExitStatus:
    """The exit status of a search with this result."""
    from reports.capacity.result import Ended

    if capacity.ended is Ended.TARGET_FAILED:
        return ExitStatus.FAILED
    if capacity.ended is Ended.NOT_VALID or (capacity.probes and not any(run.valid for run in capacity.probes)):
        return ExitStatus.INVALID
    certified = all(tier.bracket.certified is not None for tier in capacity.tiers)
    return ExitStatus.VALID if certified else ExitStatus.FAILED


def _asked(context: click.Context, options: Options, arguments: tuple[str, ...]) -> tuple[Search, tuple[str, ...]]:
    """The search that the command requests, without secrets, and its arguments with them. Raises UsageError."""
    if not arguments and options.effort.experiment_dir is not None:
        recorded = recorded_search(SearchFolder(options.effort.experiment_dir), options)
        return recorded, recorded.arguments
    given, conversations = checked(search_runs(context, arguments), options)
    return new_search(options, given, conversations=conversations), given


def _opened(folder: SearchFolder, asked: Search) -> Search:
    """The search to carry out in ``folder``: a new one, or the rest of the recorded one. Raises BadParameter."""
    if folder.plan.exists():
        rest = continued(folder.read(), asked)
        if rest is None:
            raise click.BadParameter(
                f"{folder.path} holds another search; name a new folder, or give the limits and options that it began with",
                param_hint="--experiment_dir",
            )
        return rest
    new_folder(folder.path)
    folder.write(asked)
    return asked


def _show(capacity: Capacity, folder: SearchFolder) -> None:
    from reports.capacity.formats import CAPACITY

    click.echo(CAPACITY.terminal_text(capacity))
    click.echo(f"\nCapacity: {CAPACITY.write_all(capacity, folder.path)}")


def _show_interrupted(folder: SearchFolder, search: Search) -> None:
    """What is measured, and how to go on."""
    from reports.capacity.reading import read_capacity

    capacity = read_capacity(folder)
    if capacity.probes:
        _show(capacity, folder)
    say_stopped(folder.path, len(capacity.probes), search)
