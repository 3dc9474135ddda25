"""The step log of an engine as a file."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from serving.engines.step_log import COLUMNS, StepLog, check_step_log
from serving.errors import StepLogError

_ROW = (1_000, 20, "batch", 3, None, 64, 2, 1, 77, 9)
_LINE = "1000,20,batch,3,,64,2,1,77,9"


def test_a_log_has_a_head_the_columns_and_a_row_for_each_step(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "steps.csv", {"engine": "openvino"})
    log.add(_ROW)
    log.flush()
    head, columns, row = (tmp_path / "steps.csv").read_text().splitlines()
    found = json.loads(head.removeprefix("#"))
    assert (found["step_log"], found["engine"], found["clock"]) == (1, "openvino", "CLOCK_MONOTONIC")
    assert columns == ",".join(COLUMNS)
    assert row == _LINE


def test_rows_are_written_in_batches(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "steps.csv", {})
    written = (tmp_path / "steps.csv").stat().st_size
    log.add(_ROW)
    assert (tmp_path / "steps.csv").stat().st_size == written
    for _ in range(1_000):
        log.add(_ROW)
    assert (tmp_path / "steps.csv").stat().st_size > written


def test_another_start_is_appended_also_after_a_line_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    first = StepLog(path, {"start": 1})
    first.close()
    with path.open("a") as file:
        file.write("1000,2")
    StepLog(path, {"start": 2}).close()
    heads = [json.loads(line[1:])["start"] for line in path.read_text().splitlines() if line.startswith("#")]
    assert heads == [1, 2]
    assert "\n1000,2,cut\n" in path.read_text()


def test_a_start_whose_head_was_cut_is_marked_and_the_next_start_is_whole(tmp_path: Path) -> None:
    """Wherever the disk was full: within the head or the names of the columns, of the first start and of a later one."""
    path = tmp_path / "steps.csv"
    StepLog(path, {"start": 0}).close()
    whole = path.read_bytes()
    for before in (b"", whole):
        for length in range(1, len(whole)):
            found = before + whole[:length]
            path.write_bytes(found)
            check_step_log(path)
            assert path.read_bytes() == found
            kept = found if found.endswith(b"\n") else found + b",cut\n"
            if len(found) < len(b'#{"step_log'):  # by its first bytes alone a log is known
                kept = b""
            StepLog(path, {"start": 1}).close()
            StepLog(path, {"start": 2}).close()
            content = path.read_bytes()
            assert content.startswith(kept)
            head, names, last_head, last_names = content.removeprefix(kept).decode().splitlines()
            assert [json.loads(line[1:])["start"] for line in (head, last_head)] == [1, 2]
            assert names == last_names == ",".join(COLUMNS)


def test_a_full_disk_at_a_start_leaves_a_log_that_the_next_start_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "steps.csv"
    StepLog(path, {"start": 1}).close()
    real, room = os.write, [40]

    def nearly_full(descriptor: int, content: bytes) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        written = real(descriptor, content[: room[0]])
        room[0] -= written
        return written

    with monkeypatch.context() as changes, caplog.at_level(logging.ERROR):
        changes.setattr(os, "write", nearly_full)
        assert not StepLog(path, {"start": 2}).is_open
    assert "the engine goes on without its step log" in caplog.text
    log = StepLog(path, {"start": 3})
    log.add(_ROW)
    log.close()
    lines = path.read_text().splitlines()
    assert lines[2].endswith(",cut")
    assert json.loads(lines[3][1:])["start"] == 3


@pytest.mark.parametrize("name", ["missing/steps.csv", ".", "pipe"])
def test_a_path_that_cannot_be_written_is_named(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StepLogError, match=r"--step_log .*; name another file"):
        check_step_log(tmp_path / name)


def test_a_file_that_is_no_step_log_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear reader")
    with pytest.raises(StepLogError, match="the file is no step log"):
        StepLog(path, {})
    assert path.read_text() == "Dear reader"


def test_two_engines_do_not_write_to_one_log(tmp_path: Path) -> None:
    first = StepLog(tmp_path / "steps.csv", {})
    for open_again in (check_step_log, lambda path: StepLog(path, {})):
        with pytest.raises(StepLogError, match=r"--step_log .*/steps.csv: another engine writes to it; name another file"):
            open_again(tmp_path / "steps.csv")
    first.close()
    check_step_log(tmp_path / "steps.csv")
    StepLog(tmp_path / "steps.csv", {}).close()


def test_a_full_disk_ends_the_log_and_not_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = StepLog(tmp_path / "steps.csv", {})
    written = (tmp_path / "steps.csv").read_bytes()

    def full(descriptor: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as changes, caplog.at_level(logging.ERROR):
        changes.setattr(os, "write", full)
        log.add(_ROW)
        log.flush()
    log.add(_ROW)
    log.flush()
    assert [record.getMessage() for record in caplog.records] == [
        f"--step_log {tmp_path / 'steps.csv'}: No space left on device; the engine goes on without its step log"
    ]
    assert (tmp_path / "steps.csv").read_bytes() == written
