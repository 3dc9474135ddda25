"""The searches of several settings in turns, within one budget, so that what changes on the machine meets all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import click

from bench_cli.experiments.search_plan import SEARCH_IN_TURN
from bench_cli.experiments.search_run import Probes, RunningSearch, TargetGoneError
from bench_errors import BenchError
from bench_records.search import Search
from bench_records.settings import PlannedRanking, PlannedSetting, RankingFolder
from reports.capacity.ranking import Ranking
from reports.capacity.reading import ranking_of
from reports.capacity.result import Capacity, Ended
from serving.errors import ServingError

TURN = 4.0
"""Times what the start of a setting's server takes: the least that a turn lasts, so that at most a fifth goes to starts."""

_STARTS = 2.0  # times what the start took, which has to be left of the budget: the next one may take longer

OpenProbes = Callable[[int], AbstractContextManager[Probes]]


@dataclass
class _Setting:
    """The search of one setting. ``number`` is its place in the plan; ``start_s`` what its server took to start."""

    number: int
    running: RunningSearch
    ended: Ended | None = None
    start_s: float = 0.0


def rank_settings(
    folder: RankingFolder,
    plan: PlannedRanking,
    searches: Sequence[Search],
    open_probes: OpenProbes,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Ranking:
    """Carry out the ``searches`` of the settings of ``plan``, or what is left of them, and return their ranking.

    The next turn is always that of the setting which has had the least time. It opens the setting's probes, and makes at least
    one. Each setting may take an equal share of the budget, and of what is left by those that need no more.

    Raises KeyboardInterrupt when it was stopped, with what is measured saved, ClickException where the options of the probes
    cannot be used or --before_each fails, with what is measured saved, too, and the error of a target where none could be
    measured.
    """
    settings = [
        _Setting(
            number, RunningSearch(folder.search_folder(planned), search, _named(planned, say), clock, words=SEARCH_IN_TURN)
        )
        for number, (planned, search) in enumerate(zip(plan.settings, searches, strict=True))
    ]
    failures: list[BenchError] = []
    try:
        while (setting := _next(settings, plan.budget_s)) is not None:
            failure = _turn(setting, open_probes, clock)
            if failure is not None:
                _named(plan.settings[setting.number], say)(f"It cannot be measured: {failure}")
                failures.append(failure)
    except (KeyboardInterrupt, click.ClickException):
        _end(settings, Ended.INTERRUPTED)
        raise
    found = _end(settings, Ended.BUDGET)
    if len(failures) == len(settings) and not any(each.probes for each in found):
        raise failures[0]
    return ranking_of(plan, found)


def _next(settings: Sequence[_Setting], budget_s: float | None) -> _Setting | None:
    """The setting whose turn is next, with its share of the budget; None where none needs a probe, or has time for one."""
    while True:
        unfinished = [setting for setting in settings if setting.ended is None]
        share_s = _share_s(settings, budget_s)
        for setting in sorted(unfinished, key=lambda each: each.running.search.spent_s):
            running = setting.running
            running.search = replace(running.search, budget_s=share_s)
            running.resume()
            if running.needs_first_load:
                if share_s is None or running.search.spent_s + setting.start_s < share_s:
                    return setting
                continue
            step = running.next_step(reserved_s=_STARTS * setting.start_s)
            if not isinstance(step, Ended):
                return setting
            if step is not Ended.BUDGET:
                setting.ended = step
                break  # what it leaves is for the others
        else:
            return None


def _share_s(settings: Sequence[_Setting], budget_s: float | None) -> float | None:
    """What each setting that is not finished may take in all."""
    unfinished = sum(setting.ended is None for setting in settings)
    if budget_s is None or not unfinished:
        return None
    taken_s = sum(setting.running.search.spent_s for setting in settings if setting.ended is not None)
    return max(0.0, budget_s - taken_s) / unfinished


def _turn(setting: _Setting, open_probes: OpenProbes, clock: Callable[[], float]) -> BenchError | None:
    """Make probes of a setting. Returns the error of a target that failed before the first."""
    running, begin = setting.running, clock()
    running.resume()
    try:
        with open_probes(setting.number) as probes:
            setting.start_s = clock() - begin
            running.find_first_load(probes)
            _make_probes(setting, probes, lambda: clock() - begin >= (1.0 + TURN) * setting.start_s)
    except (TargetGoneError, ServingError) as error:
        setting.ended = Ended.TARGET_FAILED
        return error
    finally:
        running.save(running.search)  # with the time that the server took to end
    return None


def _make_probes(setting: _Setting, probes: Probes, is_over: Callable[[], bool]) -> None:
    """Make at least one probe, and further ones until the turn ``is_over``, or the search has ended."""
    running = setting.running
    step = running.next_step()
    while not isinstance(step, Ended):
        setting.ended = running.make(probes, step)
        if setting.ended is not None or is_over():
            return
        step = running.next_step()


def _end(settings: Sequence[_Setting], otherwise: Ended) -> list[Capacity]:
    """Write why each search ended, ``otherwise`` where it could go on; returns their results."""
    for setting in settings:
        setting.running.resume()  # no time was spent on it since its turn
        setting.running.end(setting.ended or otherwise)
    return [setting.running.capacity for setting in settings]


def _named(planned: PlannedSetting, say: Callable[[str], None]) -> Callable[[str], None]:
    """``say`` with the name of the setting before the line."""
    return lambda line: say(f"{planned.name}: {line}")
