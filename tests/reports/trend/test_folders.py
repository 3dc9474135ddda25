"""Finding the runs of a trend: below folders, in the order of time, each once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench_records.run_folder import RunFolder, RunFolderError
from bench_records.whole_file import write_json
from reports.trend.folders import find_runs
from tests.reports.manifests import run_manifest


@pytest.fixture
def run_at() -> Callable[..., Path]:
    """A run's folder with a manifest alone."""

    def make(path: Path, started_at: Any = "2026-11-01T00:00:00+00:00", **manifest: Any) -> Path:
        path.mkdir(parents=True)
        write_json(run_manifest(started_at=started_at, **manifest), RunFolder(path).manifest)
        return path

    return make


def test_runs_below_a_folder_come_in_the_order_of_time_whatever_they_are_called(run_at: Any, tmp_path: Path) -> None:
    run_at(tmp_path / "b" / "deep" / "x", "2026-11-03T00:00:00+00:00")
    run_at(tmp_path / "c", "2026-11-01T00:00:00+00:00")
    run_at(tmp_path / "a", "2026-11-02T00:00:00")  # without a zone: UTC
    run_at(tmp_path / "d", "2026-11-02T01:00:00+02:00")
    run_at(tmp_path / "a" / "within", "2026-11-09T00:00:00+00:00")  # what lies within a run is none
    found, left_out = find_runs([tmp_path])
    assert [run.name for run in found] == ["c", "d", "a", "b/deep/x"]
    assert left_out == ()


def test_a_run_that_is_named_twice_is_there_once(run_at: Any, tmp_path: Path) -> None:
    run = run_at(tmp_path / "runs" / "a")
    found, _ = find_runs([tmp_path / "runs", run])
    assert [run.name for run in found] == ["runs/a"]


def test_a_copy_of_a_run_is_no_further_run(run_at: Any, tmp_path: Path) -> None:
    for name, run_id in (("a", "1"), ("b", "2"), ("c", "1"), ("old", None), ("older", None)):
        run_at(tmp_path / name, run_id=run_id)
    found, (copy,) = find_runs([tmp_path])
    assert [run.name for run in found] == ["a", "b", "old", "older"]
    assert (copy.name, copy.why) == ("c", "holds the same run as a, of which it is a copy")


@pytest.mark.parametrize(
    ("manifest", "why"),
    [
        ({"started_at": None}, "has no valid start time"),
        ({"started_at": "yesterday"}, "has no valid start time"),
        ({"started_at": 7}, "Expected `str | null`, got `int` - at `started_at`"),
        ({"state": "running"}, "was cut"),
        ({"state": "not_started"}, "ended before its first request"),
        ({"schema": 99}, "not a manifest"),
    ],
)
def test_runs_without_a_place_are_left_out_with_the_reason(
    run_at: Any, tmp_path: Path, manifest: dict[str, Any], why: str
) -> None:
    run_at(tmp_path / "good")
    run_at(tmp_path / "bad", **manifest)
    found, (left_out,) = find_runs([tmp_path])
    assert [run.name for run in found] == ["good"]
    assert left_out.name == "bad"
    assert why in left_out.why


def test_a_folder_without_a_run_and_a_path_that_is_no_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"no folder there has a run\.json"):
        find_runs([tmp_path])
    with pytest.raises(RunFolderError, match="is not a folder"):
        find_runs([tmp_path / "absent"])
