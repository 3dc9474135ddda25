"""What the rest of a search is expected to reach, beside what it reaches."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench_cli.experiments.forecast import forecast
from bench_cli.experiments.search_plan import SEARCH_IN_TURN, Spent, progress
from bench_cli.experiments.search_run import search_capacity
from bench_records.search import PlannedProbe, PlannedTier, RecordedForecast, Search, SearchFolder
from reports.capacity.answer import details
from reports.capacity.json_file import document
from reports.capacity.probe import Violations
from reports.capacity.result import Capacity, Ended, LoadUnit
from reports.metrics.in_flight import QueueCourse
from tests.bench_cli.experiments.searches import OVERHEAD_S, SEARCH, FakeQueue, measured, searched


@pytest.fixture
def folder(tmp_path: Path) -> SearchFolder:
    return SearchFolder(tmp_path)


def _search(folder: SearchFolder, search: Search = SEARCH) -> tuple[Capacity, Search, list[str]]:
    queue, said = FakeQueue(folder), list[str]()
    capacity = search_capacity(folder, search, queue.open, said.append, queue.clock)
    return capacity, folder.read(), said


@pytest.mark.parametrize("budget_s", [400.0, 700.0, 1_800.0, None])
def test_the_forecast_of_a_calm_server_is_the_width_and_the_time_that_the_search_ends_with(
    folder: SearchFolder, budget_s: float | None
) -> None:
    capacity, recorded, _ = _search(folder, replace(SEARCH, budget_s=budget_s))
    ratio = capacity.tiers[0].bracket.ratio
    assert ratio is not None
    last = recorded.forecasts[capacity.probes[-2].folder]
    assert last.ratios[0] == pytest.approx(ratio, rel=0.05)
    assert last.seconds == pytest.approx(capacity.probes[-1].seconds + OVERHEAD_S, rel=0.1)
    at_end = recorded.forecasts[capacity.probes[-1].folder]
    assert at_end == RecordedForecast((ratio,), 0.0)


def test_forecasts_begin_with_the_first_load_that_is_too_high_and_are_in_every_document(folder: SearchFolder) -> None:
    capacity, recorded, said = _search(folder)
    exceeded = [run.probe.overloaded or (run.probe.violations[0].share or 0.0) > 0.01 for run in capacity.probes]
    first = exceeded.index(True)
    assert first > 0
    assert list(recorded.forecasts) == [run.folder for run in capacity.probes[first:]]
    shown = document(capacity)["probes"]
    assert isinstance(shown, list)
    assert [each["forecast"] is None for each in shown] == [k < first for k in range(len(shown))]
    assert shown[-2]["forecast"]["ratios"] == list(recorded.forecasts[capacity.probes[-2].folder].ratios)
    assert "the search is expected to end with a bracket of ±" in said[-3]
    assert "expected" not in said[-1]
    assert any(text.startswith("Before the last probe a bracket of ±") for text in details(capacity, capacity.tiers[0]))


def test_the_last_probe_of_a_search_that_ends_as_not_valid_has_no_forecast(folder: SearchFolder) -> None:
    queue, said = FakeQueue(folder), list[str]()

    def say(line: str) -> None:
        said.append(line)
        queue.believed = queue.believed and "the search is expected to end" not in line

    capacity = search_capacity(folder, SEARCH, queue.open, say, queue.clock)
    assert capacity.ended is Ended.NOT_VALID
    last = [run.folder for run in capacity.probes[-4:]]
    assert [name in folder.read().forecasts for name in last] == [True, True, True, False]
    results = [line for line in said if " probes, " in line][-4:]
    assert ["the search is expected to end" in line for line in results] == [True, True, True, False]


def test_a_forecast_depends_on_its_arguments_alone_and_changes_none_of_them() -> None:
    probes = [PlannedProbe(load, 6_000, 1, f"{load:g}") for load in (50.0, 60.0, 66.0, 70.0, 74.0)]
    shown = [measured(planned, above) for planned, above in zip(probes, (2, 20, 40, 70, 120), strict=True)]
    search = replace(searched(SEARCH, shown), first_load=50.0)
    found = [forecast(search, shown, Spent(900.0)) for _ in range(2)]
    assert found[0] == found[1]
    assert found[0] is not None
    assert found[0].ratios[0] is not None
    assert len(shown) == len(search.probes) == 5


def test_more_time_is_expected_to_bring_a_narrower_bracket_and_too_little_none() -> None:
    probes = [PlannedProbe(load, 3_000, 1, f"{load:g}") for load in (55.0, 66.0, 72.0, 80.0)]
    shown = [measured(planned, above) for planned, above in zip(probes, (4, 20, 40, 110), strict=True)]
    search = replace(searched(SEARCH, shown), first_load=50.0, ratio=1.02)
    widths = []
    for left_s in (1.0, 300.0, 1_200.0, 4_800.0):
        found = forecast(search, shown, Spent(left_s))
        assert found is not None
        assert found.seconds <= left_s
        widths.append((found.ratios[0] or math.inf) - 1.0)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.5 * widths[0]
    assert forecast(searched(search, shown[-1:]), shown[-1:], Spent(1.0)) == RecordedForecast((None,), 0.0)


def test_a_forecast_of_several_sets_names_them(folder: SearchFolder) -> None:
    sets = (PlannedTier("chat", ("p99_ttft<=150ms",)), PlannedTier("batch", ("p90_ttft<=150ms",)))
    capacity, recorded, _ = _search(folder)
    name = capacity.probes[-1].folder
    tiers = tuple(replace(capacity.tiers[0], name=each.name) for each in sets)
    said = [
        progress(
            replace(capacity, tiers=tiers),
            replace(recorded, tiers=sets, forecasts={name: RecordedForecast(ratios, 90.0)}),
            OVERHEAD_S,
        )
        for ratios in ((1.3, None), (None, None))
    ]
    assert said[0].endswith(
        "; the search is expected to end with a bracket of ±15 % for chat, no bracket for batch after 90 s more"
    )
    assert said[1].endswith("; the search is expected to end without a bracket after 90 s more")
    in_turn = progress(
        capacity, replace(recorded, forecasts={name: RecordedForecast((1.3,), 90.0)}), OVERHEAD_S, SEARCH_IN_TURN
    )
    assert in_turn.endswith(
        "; the search of this setting is expected to end with a bracket of ±15 % after 90 s more of its own probes"
    )
    assert capacity.ended is Ended.PRECISE


@pytest.mark.parametrize("unit", list(LoadUnit))
def test_a_forecast_of_any_probes_ends(unit: LoadUnit) -> None:
    """Random targets, whose probes may be short, not valid, unanswered, or without a queue."""
    sets = (PlannedTier("a", ("p99_ttft<=150ms",)), PlannedTier("b", ("p95_ttft<=150ms",)))
    made = 0
    for seed in range(12):
        rng = np.random.default_rng([seed])
        shown = []
        for number, load in enumerate(np.round(40.0 * rng.lognormal(0.0, 0.5, rng.integers(1, 12)))):
            planned = PlannedProbe(max(1.0, float(load)), int(rng.integers(100, 4_000)), 1, f"{number:03d}")
            each = measured(planned, 0, overloaded=bool(rng.random() < 0.1), counts=bool(rng.random() < 0.9))
            n = int(planned.requests * rng.uniform()) if rng.random() < 0.9 else 0
            share = min(1.0, 0.01 * (planned.load / 40.0) ** rng.uniform(0.0, 20.0))
            found = tuple(Violations(n, round(k * share * n / 3), None if rng.random() < 0.2 else 9.0) for k in (2, 3))
            queue = None if rng.random() < 0.3 else QueueCourse(float(rng.normal()), float(rng.gamma(2.0)), 50.0)
            probe = replace(each.run.probe, violations=found, queue=queue, needs=int(rng.integers(0, 3)) * 500)
            rates = {"request_throughput": None, "e2e_mean_ms": None} if rng.random() < 0.2 else {}
            shown.append(replace(each, run=replace(each.run, probe=probe, **rates)))
        plan = replace(searched(SEARCH, shown), tiers=sets, unit=unit.value, first_load=20.0, first_per_s=60.0, most_load=300.0)
        result = forecast(plan, shown, Spent(None if rng.random() < 0.2 else float(rng.uniform(0.0, 1_500.0))))
        made += result is not None
        assert result is None or (len(result.ratios) == 2 and result.seconds >= 0.0)
    assert made > 3
