"""The searches of several settings in turns, over probes that are computed: their ranking, their time, and going on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bench_cli.experiments import search_run
from bench_cli.experiments.rank_run import rank_settings
from bench_cli.experiments.search_run import TargetGoneError
from bench_records.search import PlannedProbe, Search
from bench_records.settings import PlannedRanking, PlannedSetting, RankingFolder
from reports.capacity.ranking import Ranking, confidence_of_each, places, ranking_answer
from reports.capacity.reading import MeasuredProbe
from reports.capacity.result import Ended
from tests.bench_cli.experiments.searches import LIMIT_S, SEARCH, FakeQueue

_BELOW_S = math.log(100.0) / LIMIT_S  # requests/s below what a queue serves: its capacity


@dataclass
class _Queues:
    """A queue for each setting "served=…", on one clock, and the settings of their probes in order."""

    folder: RankingFolder
    queues: list[FakeQueue] = field(default_factory=list)
    budget_s: float | None = 1_800.0

    @classmethod
    def of(cls, path: Path, served: Sequence[float], budget_s: float | None = 1_800.0) -> _Queues:
        made = cls(RankingFolder(path), budget_s=budget_s)
        for setting, per_s in zip(_settings(served), served, strict=True):
            folder = made.folder.search_folder(setting)
            folder.path.mkdir(exist_ok=True)
            made.queues.append(FakeQueue(folder, served_per_s=per_s))
        return made

    @property
    def plan(self) -> PlannedRanking:
        return PlannedRanking(_settings([queue.served_per_s for queue in self.queues]), 0.95, self.budget_s)

    def clock(self) -> float:
        return sum(queue.now_s for queue in self.queues)

    def rank(self, searches: Sequence[Search] = (), say: Callable[[str], None] = lambda line: None) -> Ranking:
        each = replace(SEARCH, confidence=confidence_of_each(0.95, len(self.queues)))
        plans = searches or [each] * len(self.queues)
        return rank_settings(self.folder, self.plan, plans, lambda number: self.queues[number].open(), say, self.clock)

    def recorded(self) -> list[Search]:
        return [queue.folder.read() for queue in self.queues]


def _settings(served: Sequence[float]) -> tuple[PlannedSetting, ...]:
    return tuple(PlannedSetting(f"served={per_s:g}", (), f"{number}-{per_s:g}") for number, per_s in enumerate(served))


def test_settings_are_searched_in_turns_and_ranked(tmp_path: Path) -> None:
    queues, said = _Queues.of(tmp_path, [100.0, 150.0, 103.0]), list[str]()
    ranking = queues.rank(say=said.append)
    assert ranking_answer(ranking).startswith(
        "served=150 holds more than served=103 and served=100 with p99 TTFT of at most 150 ms"
    )
    assert [place.setting.name for place in places(ranking, 0)] == ["served=150", "served=103", "served=100"]
    for setting, queue in zip(ranking.settings, queues.queues, strict=True):
        found = setting.capacity.tiers[0].bracket
        assert setting.capacity.ended is Ended.PRECISE
        assert found.certified is not None
        assert found.refused is not None
        assert found.certified <= queue.served_per_s - _BELOW_S <= found.refused
        assert setting.capacity.tiers[0].goal.confidence == pytest.approx(1.0 - 0.05 / 3)
    turns = [line.split(":")[0] for line in said if ": Probe " in line]
    expected = [line for line in said if "is expected to end" in line]
    assert expected
    assert all("the search of this setting is expected to end" in line for line in expected)
    assert all(line.endswith(" more of its own probes") for line in expected)
    first = turns[: 3 * 5]
    assert all(len(set(first[k : k + 3])) >= 2 for k in range(0, len(first), 3))  # no setting has all of its probes first
    assert all(first.count(name) >= 3 for name in set(turns))


def test_no_setting_has_much_more_time_than_another_before_it_is_finished(tmp_path: Path) -> None:
    queues = _Queues.of(tmp_path, [100.0, 150.0], budget_s=400.0)
    spent: list[list[float]] = []
    queues.rank(say=lambda line: spent.append([queue.now_s for queue in queues.queues]))
    longest = 60.0 + 5.0 + 10.0  # a probe, what is beside it, and the closed loop
    assert all(abs(a - b) <= longest for a, b in spent)


def test_one_budget_is_kept_by_all_together(tmp_path: Path) -> None:
    queues = _Queues.of(tmp_path, [100.0, 150.0, 103.0], budget_s=180.0)
    ranking = queues.rank()
    assert queues.clock() <= 180.0
    assert ranking.budget_s == 180.0
    assert {setting.capacity.ended for setting in ranking.settings} == {Ended.BUDGET}
    assert ranking.spent_s == pytest.approx(queues.clock())
    assert [search.budget_s for search in queues.recorded()] == [60.0] * 3


def test_servers_that_take_long_to_start_are_kept_for_several_probes(tmp_path: Path) -> None:
    queues = _Queues.of(tmp_path, [100.0, 150.0], budget_s=1_200.0)
    for queue in queues.queues:
        queue.start_s = 12.0
    queues.rank()
    for queue in queues.queues:
        assert queue.opened < len(queue.made)
        assert queue.start_s * queue.opened <= 0.25 * queue.now_s
    assert queues.clock() <= 1_200.0


def test_a_setting_whose_target_fails_leaves_its_time_to_the_others(tmp_path: Path) -> None:
    queues, said = _Queues.of(tmp_path, [100.0, 150.0], budget_s=300.0), list[str]()
    queues.queues[0].ends_after = 0
    ranking = queues.rank(say=said.append)
    assert ranking.settings[0].capacity.ended is Ended.TARGET_FAILED
    assert "served=100: It cannot be measured: it is gone" in said
    assert ranking_answer(ranking).endswith(" served=100: The target did not answer.")
    assert queues.recorded()[1].budget_s == pytest.approx(300.0 - queues.queues[0].now_s)


def test_targets_that_all_fail_are_an_error(tmp_path: Path) -> None:
    queues = _Queues.of(tmp_path, [100.0, 150.0])
    for queue in queues.queues:
        queue.ends_after = 0
    with pytest.raises(TargetGoneError, match="it is gone"):
        queues.rank()


@pytest.mark.parametrize("saved", [True, False], ids=["Ctrl-C", "kill -9"])
def test_searches_that_were_cut_go_on_with_the_probe_that_was_cut(
    tmp_path: Path, saved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: dict[str, MeasuredProbe] = {}
    probe = FakeQueue.probe

    def remembered(self: FakeQueue, search: Search, planned: PlannedProbe, *, is_warm: bool) -> MeasuredProbe:
        found = probe(self, search, planned, is_warm=is_warm)
        known[str(self.folder.run_folder(planned).path)] = found
        return found

    monkeypatch.setattr(FakeQueue, "probe", remembered)
    monkeypatch.setattr(
        search_run,
        "read_probes",
        lambda folder, search: [known[str(folder.run_folder(p).path)] for p in search.probes if folder.is_recorded(p)],
    )
    cut = _Queues.of(tmp_path, [100.0, 150.0])
    cut.queues[1].ends_after, cut.queues[1].end = 3, KeyboardInterrupt() if saved else SystemExit()
    with pytest.raises(type(cut.queues[1].end)):
        cut.rank()
    recorded = cut.recorded()
    assert {search.ended for search in recorded} == ({Ended.INTERRUPTED.value} if saved else {None})
    assert len(recorded[1].probes) == 4
    assert recorded[0].spent_s == pytest.approx(cut.queues[0].now_s)

    rest = _Queues.of(tmp_path, [100.0, 150.0])
    ranking = rest.rank(recorded)
    assert rest.queues[1].made[0] == recorded[1].probes[3]
    assert sum(queue.closed_loops for queue in rest.queues) == 0
    assert {setting.capacity.ended for setting in ranking.settings} == {Ended.PRECISE}
    made = [len(a.made) + len(b.made) for a, b in zip(cut.queues, rest.queues, strict=True)]
    assert [len(setting.capacity.probes) for setting in ranking.settings] == made

    again = _Queues.of(tmp_path, [100.0, 150.0])  # nothing is left to do, so nothing is deployed
    again.rank(rest.recorded())
    assert sum(queue.opened for queue in again.queues) == 0
