"""``settings.json``: what is written is read, and damaged or foreign files are errors with a sentence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench_records.run_folder import RunFolderError
from bench_records.settings import PlannedRanking, PlannedSetting, RankingFolder

_PLAN = PlannedRanking(
    tuple(PlannedSetting(f"max_num_tokens={n}", ("--max_num_tokens", str(n)), f"{n}") for n in (512, 2048)), 0.95, None
)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = RankingFolder(tmp_path)
    folder.write(_PLAN)
    assert folder.read() == _PLAN
    assert folder.search_folder(_PLAN.settings[1]).path == tmp_path / "2048"


def test_a_folder_without_a_plan_is_no_ranking(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is no search for the capacities of settings"):
        RankingFolder(tmp_path).read()


@pytest.mark.parametrize(
    "plan",
    [
        replace(_PLAN, settings=_PLAN.settings[:1]),
        replace(_PLAN, settings=(_PLAN.settings[0], replace(_PLAN.settings[1], folder="../elsewhere"))),
        replace(_PLAN, settings=(_PLAN.settings[0], replace(_PLAN.settings[1], folder=".."))),
    ],
)
def test_a_plan_that_ranks_nothing_or_names_another_place_is_damaged(plan: PlannedRanking, tmp_path: Path) -> None:
    RankingFolder(tmp_path).write(plan)
    with pytest.raises(RunFolderError, match="cannot be read"):
        RankingFolder(tmp_path).read()
