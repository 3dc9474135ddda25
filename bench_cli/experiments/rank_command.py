"""``bench capacity --over``: the capacities of several settings, searched in turns and ranked."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from bench_cli.experiments.capacity_options import Options
from bench_cli.experiments.grid import combinations
from bench_cli.experiments.held_folder import held_alone
from bench_cli.experiments.hidden_arguments import words_without_secrets
from bench_cli.experiments.plan import folder_name
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
from bench_cli.experiments.search_command import remove_unused, say_budget, say_stopped, status_of
from bench_cli.private_files import private_files
from bench_cli.searches import is_ranking
from bench_cli.signals import signals_as_interrupt
from bench_errors import ExitStatus
from bench_records.search import Search
from bench_records.settings import PlannedRanking, PlannedSetting, RankingFolder

if TYPE_CHECKING:
    from bench_records.experiment import PlannedArm
    from reports.capacity.ranking import Ranking

_MOST_SETTINGS = 20
_INSTEAD = "write each once"


@dataclass(frozen=True)
class _Asked:
    """The ranking that a command requests, with the search of each setting; ``given`` are its arguments with their secrets."""

    plan: PlannedRanking
    searches: tuple[Search, ...]
    given: tuple[tuple[str, ...], ...]


def rank(context: click.Context, options: Options, arguments: tuple[str, ...]) -> ExitStatus:
    """Search the capacity of each setting, and show their ranking. Raises UsageError, and KeyboardInterrupt with what is
    measured saved and shown.
    """
    from bench_cli.experiments.rank_run import rank_settings
    from bench_cli.experiments.search_run import TargetGoneError
    from serving.errors import ServingError

    effort = options.effort
    continues = not arguments and effort.experiment_dir is not None and is_ranking(effort.experiment_dir)
    asked = _recorded(options) if continues else _new(context, options, arguments)
    folder = RankingFolder(effort.experiment_dir or default_folder())
    share_s = None if asked.plan.budget_s is None else asked.plan.budget_s / len(asked.searches)
    say_budget([replace(search, budget_s=share_s) for search in asked.searches], folder.plan)
    if effort.dry_run:
        from bench_cli.experiments.dry_run import dry_run_of_settings

        if not continues:
            for search, given in zip(asked.searches, asked.given, strict=True):
                read_file(context, search, given)
        click.echo(dry_run_of_settings(asked.plan, asked.searches))
        return ExitStatus.VALID
    with private_files(shared=is_shared(asked.given[0])), signals_as_interrupt(), ExitStack() as held:
        held.enter_context(held_alone(folder.path))
        searches = _opened(folder, asked, held)
        runs = [search_runs(context, given) for given in asked.given]
        of_each = [folder.search_folder(setting) for setting in asked.plan.settings]
        try:
            ranking = rank_settings(
                folder,
                asked.plan,
                searches,
                lambda number: open_probes(runs[number], of_each[number], effort.before_each),
                lambda line: click.echo(line, err=True),
            )
        except KeyboardInterrupt:
            _show_interrupted(folder, searches[0])
            raise
        except (click.ClickException, TargetGoneError, ServingError) as error:
            if not _remove_unused(folder, asked.plan, with_server_log=isinstance(error, click.UsageError)):
                _show_interrupted(folder, searches[0])
            raise
        _show(ranking, folder)
    return _status(ranking)


def _new(context: click.Context, options: Options, arguments: tuple[str, ...]) -> _Asked:
    """The ranking of the settings of --over. Raises UsageError where one of them cannot be measured, or secrets would show."""
    from reports.capacity.ranking import confidence_of_each

    settings = combinations(options.ranking.over, _MOST_SETTINGS, _INSTEAD)
    if len(settings) < 2:
        raise click.UsageError(
            f"--over {settings[0].name}: one setting alone cannot be ranked; give two values or more, or leave --over out"
        )
    search_runs(context, arguments).check_arguments()
    of_each = [_checked(context, options, arguments, setting) for setting in settings]
    if len({conversations for _, conversations in of_each}) > 1:
        raise click.UsageError("--over: settings with conversations and without cannot be ranked: their loads have other units")
    limits = options.limits
    each = confidence_of_each(limits.confidence, len(settings))
    planned = [
        PlannedSetting(setting.name, setting.options, f"{number:02d}-{folder_name(setting.name)}")
        for number, setting in enumerate(settings, start=1)
    ]
    searches = [
        replace(new_search(options, given, conversations=conversations), confidence=each) for given, conversations in of_each
    ]
    return _Asked(
        PlannedRanking(tuple(planned), limits.confidence, options.effort.budget),
        tuple(searches),
        tuple(given for given, _ in of_each),
    )


def _checked(
    context: click.Context, options: Options, arguments: tuple[str, ...], setting: PlannedArm
) -> tuple[tuple[str, ...], bool]:
    """The arguments of a setting's probes, and whether they send whole conversations. Raises UsageError."""
    where = f"--over {setting.name}"
    runs = search_runs(context, (*arguments, *setting.options))
    runs.check_options(setting.options, where)
    if words_without_secrets(setting.options) != setting.options:
        raise click.UsageError("--over: its values name the settings in every file, so that a secret would show")
    try:
        return checked(runs, options)
    except click.UsageError as error:
        raise click.UsageError(f"{where}: {error.format_message()}") from error


def _recorded(options: Options) -> _Asked:
    """The ranking in the folder, with the confidence, precision and budget that the command gives. Raises UsageError."""
    from reports.capacity.ranking import confidence_of_each

    assert options.effort.experiment_dir is not None
    folder = RankingFolder(options.effort.experiment_dir)
    plan, limits = folder.read(), options.limits
    names = tuple(setting.name for setting in combinations(options.ranking.over, _MOST_SETTINGS, _INSTEAD))
    if options.ranking.over and names != tuple(setting.name for setting in plan.settings):
        raise click.UsageError(f"{folder.path} holds other settings than those of --over; name a new folder")
    plan = replace(
        plan,
        confidence=limits.confidence if options.given("confidence") else plan.confidence,
        budget_s=options.effort.budget if options.given("budget") else plan.budget_s,
    )
    each = confidence_of_each(plan.confidence, len(plan.settings))
    searches = (recorded_search(folder.search_folder(setting), options) for setting in plan.settings)
    found = tuple(replace(search, confidence=each) for search in searches)
    return _Asked(plan, found, tuple(search.arguments for search in found))


def _opened(folder: RankingFolder, asked: _Asked, held: ExitStack) -> Sequence[Search]:
    """The searches to carry out in ``folder``: new ones, or the rest of the recorded ones. Their folders are ``held``, since
    each could be searched alone. Raises BadParameter, and ClickException as ``held_alone``.
    """
    if not folder.plan.exists():
        new_folder(folder.path)
        for setting, search in zip(asked.plan.settings, asked.searches, strict=True):
            of_setting = folder.search_folder(setting)
            held.enter_context(held_alone(of_setting.path))
            of_setting.write(search)
        folder.write(asked.plan)
        return asked.searches
    if folder.read().settings != asked.plan.settings:
        raise _holds_another(folder)
    for setting in asked.plan.settings:
        held.enter_context(held_alone(folder.search_folder(setting).path))
    rest = []
    for setting, search in zip(asked.plan.settings, asked.searches, strict=True):
        continues = continued(folder.search_folder(setting).read(), search)
        if continues is None:
            raise _holds_another(folder)
        rest.append(continues)
    folder.write(asked.plan)
    return rest


def _holds_another(folder: RankingFolder) -> click.BadParameter:
    return click.BadParameter(
        f"{folder.path} holds another search; name a new folder, or give the settings, limits and options that it began with",
        param_hint="--experiment_dir",
    )


def _show(ranking: Ranking, folder: RankingFolder) -> None:
    from reports.capacity.ranking_page import RANKING, write_ranking

    click.echo(RANKING.terminal_text(ranking))
    click.echo(f"\nRanking: {write_ranking(ranking, folder.path)}")


def _show_interrupted(folder: RankingFolder, search: Search) -> None:
    """What is measured, and how to go on."""
    from reports.capacity.reading import read_ranking

    ranking = read_ranking(folder)
    if ranking.probes:
        _show(ranking, folder)
    say_stopped(folder.path, ranking.probes, search)


def _remove_unused(folder: RankingFolder, plan: PlannedRanking, with_server_log: bool) -> bool:
    """Remove the folder if no run could begin, so that the command can be given again, corrected; whether it was so."""
    if not remove_unused([folder.search_folder(setting) for setting in plan.settings], with_server_log):
        return False
    folder.plan.unlink()
    folder.path.rmdir()
    return True


def _status(ranking: Ranking) -> ExitStatus:
    """INVALID where the search of a setting ended without valid probes; VALID where a load is certified, and every target
    answered to the end.
    """
    from reports.capacity.result import Ended

    statuses = {status_of(setting.capacity) for setting in ranking.settings}
    if ExitStatus.INVALID in statuses:
        return ExitStatus.INVALID
    gone = any(setting.capacity.ended is Ended.TARGET_FAILED for setting in ranking.settings)
    return ExitStatus.VALID if ExitStatus.VALID in statuses and not gone else ExitStatus.FAILED
