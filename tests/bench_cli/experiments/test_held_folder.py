"""A folder in which one process measures at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench_cli import run as bench
from bench_cli.experiments import rank_run
from bench_records.folder_lock import exclusive_lock

_TRAFFIC = ["token_norm_dist", "--url", "127.0.0.1:1"]  # no server listens there
_LIMIT = ["--slo", "p99_ttft<=1s"]


@pytest.mark.parametrize(
    "command",
    [
        ["experiment", "--arm", "a=", "--arm", "b=--workers 2"],
        ["sweep", "--over", "request_rate=2,4"],
        ["capacity", *_LIMIT],
        ["capacity", *_LIMIT, "--over", "workers=1,2"],
    ],
    ids=["experiment", "sweep", "search", "ranking"],
)
def test_a_second_process_does_not_measure_in_the_folder_of_the_first(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [command[0], "--experiment_dir", str(tmp_path / "folder"), *command[1:], *_TRAFFIC]
    (tmp_path / "folder").mkdir()
    with exclusive_lock(tmp_path / "folder"):
        assert bench(given) == 1
    assert f"another bench process measures in {tmp_path / 'folder'}; wait until it ends" in capsys.readouterr().err
    assert not [*(tmp_path / "folder").iterdir()]


def test_the_search_of_a_setting_is_not_measured_into_beside_its_ranking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranking, of_setting = tmp_path / "folder", tmp_path / "folder" / "01-workers=1"
    command = ["capacity", *_LIMIT, "--over", "workers=1,2", "--experiment_dir", str(ranking), *_TRAFFIC]

    def stopped(*_: object) -> None:
        with pytest.raises(BlockingIOError), exclusive_lock(of_setting):
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(rank_run, "rank_settings", stopped)
    for _ in ("new", "continued"):
        assert bench(command) == 130
    with exclusive_lock(of_setting):
        assert bench(command) == 1
    assert f"another bench process measures in {of_setting}; wait until it ends" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(["capacity", "--experiment_dir", "/proc/folder", *_LIMIT, *_TRAFFIC]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "--experiment_dir: /proc/folder cannot be made (No such file or directory); name a folder" in said
