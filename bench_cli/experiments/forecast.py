"""How narrow the bracket of a search for capacity will be when it ends: the rest of the search, played with expected probes.

The loads, the lengths and the end of those probes are what the search itself would choose (``next_step``), so that a forecast
has its stopping rule and its budget. Pure: no clock, no process. benchmarks/forecast_honesty.py compares forecasts with ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bench_cli.experiments.search_plan import Spent, next_step, seconds_of
from bench_records.search import PlannedProbe, RecordedForecast, Search
from reports.capacity.expected import Expectation, expectation
from reports.capacity.probe import Probe
from reports.capacity.reading import MeasuredProbe, evidence, goals_of, sets_of
from reports.capacity.result import Ended
from reports.capacity.search import bracket

_MOST_FITS = 60  # of the curve of one limit, each some 10 ms


def forecast(search: Search, measured: Sequence[MeasuredProbe], spent: Spent) -> RecordedForecast | None:
    """What the rest of ``search``, which knows its first load, is expected to reach. None where the probes show too little
    (reports/capacity/expected.py), and where the end is too many probes away, as without a budget or with many limits.
    """
    goals, probes = goals_of(search, sets_of(search)), evidence(measured)
    expected = expectation(probes, goals)
    if expected is None:
        return None
    played, seconds = _without_controls(measured, probes), 0.0
    for _ in range(_MOST_FITS // sum(len(goal.limits) for goal in goals)):
        step = next_step(search, played, spent)
        if isinstance(step, Ended):
            shown = evidence(played)
            return RecordedForecast(tuple(bracket(shown, goal).ratio for goal in goals), seconds)
        sending_s = seconds_of(search, played, step)
        played.append(_expected(expected, step, sending_s, played))
        search = replace(search, probes=(*search.probes, step))
        seconds += sending_s + spent.overhead_s
        spent = replace(spent, left_s=None if spent.left_s is None else spent.left_s - sending_s - spent.overhead_s)
    return None


def _without_controls(measured: Sequence[MeasuredProbe], probes: Sequence[Probe]) -> list[MeasuredProbe]:
    """The probes that decide, with what controls explain taken off for good."""
    believed = [each for each in measured if each.counts]
    return [
        replace(each, run=replace(each.run, probe=replace(probe, controls=())))
        for each, probe in zip(believed, probes, strict=True)
    ]


def _expected(expected: Expectation, planned: PlannedProbe, sending_s: float, played: Sequence[MeasuredProbe]) -> MeasuredProbe:
    """The probe ``planned`` as it is expected, with answers as long as those at the nearest load."""
    probe = expected.probe(planned.load, planned.requests)
    near = min(played, key=lambda each: abs(each.run.probe.load - planned.load))
    throughput = planned.requests / (sending_s - planned.ramp_up_s)
    run = replace(near.run, probe=probe, seconds=sending_s, request_throughput=throughput)
    return replace(near, run=run)
