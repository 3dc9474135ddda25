"""``search.json``: what is written is read, and damaged or foreign files are errors with a sentence."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench_records.manifest import Manifest, Recovered, RunState
from bench_records.run_folder import RunFolderError
from bench_records.search import PlannedProbe, PlannedTier, RecordedControl, Search, SearchFolder

_SEARCH = Search(
    arguments=("token_norm_dist", "--url", "localhost:8001"),
    tiers=(PlannedTier(None, ("p99_ttft<=500ms",)), PlannedTier("chat", ("attainment>=95%",), ("ttft<=200ms",))),
    unit="requests/s",
    confidence=0.95,
    ratio=1.2,
    budget_s=900.0,
    most_load=None,
    seed=0,
    first_load=12.5,
    first_per_s=25.0,
    probes=(PlannedProbe(12.5, 400, 1, "001-12.5"),),
    model="0123abcd",
    controls={"001-12.5": (RecordedControl((3, 0), (2, 1), 0.01, 0.02),)},
)


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = SearchFolder(tmp_path)
    folder.write(_SEARCH)
    assert folder.read() == _SEARCH
    assert not folder.is_recorded(_SEARCH.probes[0])
    folder.run_folder(_SEARCH.probes[0]).path.mkdir()
    folder.run_folder(_SEARCH.probes[0]).requests.touch()
    folder.run_folder(_SEARCH.probes[0]).write_manifest(Manifest())
    assert folder.is_recorded(_SEARCH.probes[0])


@pytest.mark.parametrize(
    ("manifest", "whole"),
    [
        (Manifest(), True),
        (Manifest(problem="the disk is full"), False),
        (Manifest(interrupted=True), False),
        (Manifest(state=RunState.RUNNING), False),
        (Manifest(recovered=Recovered(scheduled=3, written_down=2, lost=1, not_sent=0, journals=1, torn_bytes=0)), False),
    ],
)
def test_a_probe_that_did_not_come_to_its_end_is_made_again(manifest: Manifest, whole: bool, tmp_path: Path) -> None:
    folder = SearchFolder(tmp_path).run_folder(_SEARCH.probes[0])
    folder.path.mkdir()
    folder.requests.touch()
    folder.write_manifest(manifest)
    assert SearchFolder(tmp_path).is_recorded(_SEARCH.probes[0]) is whole


def test_a_folder_without_a_plan_is_no_search(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is no search for capacity"):
        SearchFolder(tmp_path).read()


@pytest.mark.parametrize(
    "search",
    [
        replace(_SEARCH, arguments=()),
        replace(_SEARCH, tiers=()),
        replace(_SEARCH, tiers=(PlannedTier(None, ()),)),
        replace(_SEARCH, probes=(replace(_SEARCH.probes[0], folder="../elsewhere"),)),
        replace(_SEARCH, probes=(replace(_SEARCH.probes[0], folder="..", load=1.0),)),
    ],
)
def test_a_plan_that_names_nothing_or_another_place_is_damaged(search: Search, tmp_path: Path) -> None:
    SearchFolder(tmp_path).write(search)
    with pytest.raises(RunFolderError, match="cannot be read"):
        SearchFolder(tmp_path).read()


def test_a_plan_of_another_schema_is_refused(tmp_path: Path) -> None:
    SearchFolder(tmp_path).write(_SEARCH)
    plan = SearchFolder(tmp_path).plan
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"schema": 99}))
    with pytest.raises(RunFolderError, match="has schema 99"):
        SearchFolder(tmp_path).read()
