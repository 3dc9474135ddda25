"""How many runs, of how many requests, would show a small change: the recommendation beside a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reports.compare.difference import Difference
from reports.compare.looks import PREFERRED
from reports.compare.spread import Evidence, detectable_errors

CHANGE = 0.05
_SIGNIFICANCE = 0.05
_FEWEST_REPEATS = 5  # fewer hardly show the variation between starts
_MOST_REPEATS = 100
_CHANGES = (0.05, 0.1, 0.2, 0.5, 1.0)
_AFFORDABLE_REPEATS, _AFFORDABLE_GROWTH = 12, 10


@dataclass(frozen=True, slots=True)
class Recommendation:
    """``repeats`` runs of each side, of ``requests`` each, show a change of ``change`` in ``title`` in four of five cases."""

    title: str
    change: float
    repeats: int
    requests: int

    @property
    def text(self) -> str:
        return (
            f"To show {self.change:.0%} of {self.title} in four of five cases: {self.repeats} repeats of "
            f"about {self.requests:,} requests each."
        )


@dataclass(frozen=True, slots=True)
class _Goal:
    """A change to be shown at a level of significance: that of Holm's first step, by which verdicts are given."""

    change: float
    significance: float


def preferred(differences: Sequence[Difference]) -> Difference | None:
    """The latency that a recommendation is about: the first of those in question that has an error; None where none has."""
    by_name = {d.measure.name: d for d in differences}
    known = (by_name[name] for name in PREFERRED if name in by_name)
    return next((d for d in known if d.spread is not None and 0.0 < d.spread.error < math.inf), None)


def affordable(differences: Sequence[Difference], runs: float, requests: int) -> Recommendation | None:
    """The recommendation for the smallest of _CHANGES that takes at most _AFFORDABLE_REPEATS repeats, of at most
    _AFFORDABLE_GROWTH times the requests; None where none does.
    """
    found = (recommend(differences, runs, requests, change) for change in _CHANGES)
    return next(
        (
            recommendation
            for recommendation in found
            if recommendation is not None
            and recommendation.repeats <= _AFFORDABLE_REPEATS
            and recommendation.requests <= _AFFORDABLE_GROWTH * requests
        ),
        None,
    )


def recommend(differences: Sequence[Difference], runs: float, requests: int, change: float = CHANGE) -> Recommendation | None:
    """The recommendation from the errors of a comparison of ``runs`` a side, with ``requests`` each; None where no latency has
    an error, or where no affordable number would do. Sides of other numbers of runs have the error of their harmonic mean.

    The error of repeated runs falls with the root of their number, that within single runs with the root of the requests. For
    single runs the variation between starts is unknown, and not in the number. Repeats of a schedule that the other side lacks
    do not reduce the difference between the schedules.
    """
    d = preferred(differences)
    if d is None or d.spread is None or d.spread.evidence is Evidence.SCHEDULES:
        return None
    single = d.spread.evidence.single_starts
    goal = _Goal(change, _SIGNIFICANCE / sum(difference.spread is not None for difference in differences))
    numbers = _longer_runs(d.spread.error, requests, goal) if single else _repeats(d, runs, requests, goal)
    return None if numbers is None else Recommendation(d.measure.title, change, *numbers)


def _repeats(d: Difference, runs: float, requests: int, goal: _Goal) -> tuple[int, int] | None:
    assert d.spread is not None
    of_one = d.spread.error * math.sqrt(runs)
    for repeats in range(2, _MOST_REPEATS + 1):
        freedom = repeats - 1 if d.evidence is Evidence.RUN_PAIRS else 2 * repeats - 2
        if _detected(of_one / math.sqrt(repeats), freedom, goal):
            return repeats, requests
    return None


def _longer_runs(error: float, requests: int, goal: _Goal) -> tuple[int, int]:
    """So many requests a run that five repeats show it, to two digits; no fewer than the runs have."""
    errors = detectable_errors(goal.significance, 2 * _FEWEST_REPEATS - 2)
    needed = max(1.0, (errors * error / math.log1p(goal.change)) ** 2 / _FEWEST_REPEATS) * requests
    unit = 10.0 ** max(0, math.floor(math.log10(needed)) - 1)
    return _FEWEST_REPEATS, math.ceil(round(needed / unit, 6)) * int(unit)


def _detected(error: float, freedom: float, goal: _Goal) -> bool:
    return detectable_errors(goal.significance, freedom) * error <= math.log1p(goal.change)
