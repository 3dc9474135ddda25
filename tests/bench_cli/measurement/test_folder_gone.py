"""A run whose folder is deleted, renamed or replaced while it is recorded."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench_cli import run
from bench_cli.measurement.run_folder import default_folder
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from tests.harness.scripted_server import ScriptedServer

_TRAFFIC = ["--isl", "4", "--osl", "5", "--vocab_size", "100", "--num_requests", "600", "--request_rate", "20"]


def _change(folder: Path, change: str) -> float:
    """Delete, rename or replace the folder once the first records are in it; returns when, by the monotonic clock, in s."""
    deadline_s = time.monotonic() + 60
    journal = folder / "journal-0.bin"
    while not (journal.exists() and journal.stat().st_size > 2000) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    if change == "deleted":
        while folder.exists():  # the run may add a file to it, or rename one, meanwhile
            shutil.rmtree(folder, ignore_errors=True)
    else:
        (folder.parent / "another").mkdir()
        folder.rename(folder.parent / "moved")
        if change == "replaced":
            (folder.parent / "another").rename(folder)
    return time.monotonic()


@pytest.mark.parametrize("change", ["deleted", "renamed", "replaced"])
def test_the_run_ends_soon_with_a_sentence_and_a_renamed_folder_can_be_recovered(
    server: ScriptedServer, tmp_path: Path, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, moved = tmp_path / "run", tmp_path / "moved"
    target = ["--url", server.address, "--model", "scripted", "--warmup_requests", "1", "--workers", "1"]
    with ThreadPoolExecutor(1) as pool:
        changed = pool.submit(_change, folder, change)
        status = run(["token_norm_dist", *target, "--run_dir", str(folder), *_TRAFFIC])
        assert time.monotonic() - changed.result() < 20  # of 30 s that the arrivals take
    assert status == ExitStatus.FAILED
    errors = capsys.readouterr().err
    *_, last = errors.splitlines()
    assert last.startswith(f"Error: {folder} was deleted or renamed while the run went on")
    assert "Errno" not in last
    assert "Traceback" not in errors
    left = {"deleted": set(), "renamed": {"moved", "another"}, "replaced": {"moved", "run"}}[change]
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == left
    assert not any((tmp_path / name).exists() and any((tmp_path / name).iterdir()) for name in ("run", "another"))
    if change != "deleted":
        assert run(["recover", str(moved)]) == ExitStatus.INVALID  # most requests are lost
        outcomes = Counter(RunFolder(moved).read_requests().column("outcome").to_pylist())
        assert outcomes.keys() == {"done", "lost"}
        assert outcomes.total() == 600


@pytest.mark.parametrize(("change", "left"), [("none", []), ("deleted", []), ("replaced", ["runs"])])
def test_a_default_folder_that_stays_empty_is_removed_and_another_in_its_place_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, left: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with default_folder("dataset") as path:
        if change != "none":
            (tmp_path / "other").mkdir()  # before the first is gone: a file system may use its inode again
            path.rmdir()
        if change == "replaced":
            (tmp_path / "other").rename(path)
        elif change == "deleted":
            (tmp_path / "other").rmdir()
    assert [each.name for each in tmp_path.iterdir()] == left
    assert path.exists() == bool(left)
