"""What all runs of a sweep show together of the load that the target holds, as a search for capacity would say it."""

from __future__ import annotations

import math

from reports.capacity.answer import Searched, tier_answer
from reports.capacity.result import LoadUnit
from reports.capacity.search import Goal, bracket
from reports.sweep.held import held_of
from reports.sweep.points import Sweep

_SAME = 0.005  # of a load: an end that differs by less is shown as the same


def searched_together(sweep: Sweep) -> Searched | None:
    """The bracket of all runs; None where the sweep is not over a rate or users, has no limit, or shows no end of a bracket."""
    runs = [run for point in sweep.points for run in point.at_loads]
    if not runs or any((run.unit, run.limits) != (runs[0].unit, runs[0].limits) for run in runs):
        return None
    limits = runs[0].limits
    probes = tuple(run.probe for run in runs)
    goal = Goal(tuple(range(len(limits))), tuple(limit.allowed for limit in limits))
    found = bracket(probes, goal)
    if found.certified is None and found.refused is None:
        return None
    return Searched(runs[0].unit, tuple(limit.requirement for limit in limits), goal, found, probes)


def together_sentence(sweep: Sweep) -> str:
    """The sentence; "" where there is none, or it says no more than each point alone."""
    search = searched_together(sweep)
    if search is None or _says_no_more(sweep, search):
        return ""
    text = tier_answer(search)
    loads = "All rates together" if search.unit is LoadUnit.REQUESTS_PER_S else "All numbers of users together"
    return f"{loads}: {text[0].lower()}{text[1:]}"


def _says_no_more(sweep: Sweep, search: Searched) -> bool:
    held = held_of(sweep)
    if held is None:
        return False
    return _same(search.bracket.certified, held.highest) and _same(search.bracket.refused, held.failed)


def _same(load: float | None, other: float | None) -> bool:
    if load is None or other is None:
        return load is other
    return math.isclose(load, other, rel_tol=_SAME)
