"""Excerpts of a server's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.launch.log import explain_end, last_lines


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_last_lines_begin_where_the_servers_part_begins(log: Path) -> None:
    log.write_text("earlier\none\n\ntwo\nthree\n")
    assert last_lines(log, len("earlier\n"), 2) == ["two", "three"]
    assert last_lines(log, len("earlier\n"), 9) == ["one", "two", "three"]


def test_a_log_that_is_gone_has_no_lines(log: Path) -> None:
    assert last_lines(log, 0, 5) == []
    assert explain_end(log, 0) == f"See its log, {log}.\nLast lines:"


def test_lines_are_cut_and_cannot_steer_the_terminal(log: Path) -> None:
    log.write_bytes(b"\x1b[31mred \xff\n" + b"x" * 100_000 + b"\nlast\n")
    red, long, last = explain_end(log, 0).splitlines()[2:]
    assert red == "\ufffd[31mred \ufffd"
    assert (len(long), last) == (400, "last")


def test_only_the_end_of_a_large_log_is_read_for_its_last_lines(log: Path) -> None:
    log.write_text("first\n" + "more\n" * 1_000_000 + "last\n")
    assert "first" not in last_lines(log, 0, 2_000_000)
    assert last_lines(log, 0, 1) == ["last"]


def test_an_end_is_explained_by_the_first_errors_and_the_last_lines(log: Path) -> None:
    errors = [f"E1123 error {number}" for number in range(9)]
    log.write_text("\n".join(["E1123 of an earlier server", "I1123 start", *errors, *(f"I1123 {n}" for n in range(12))]) + "\n")
    assert explain_end(log, len("E1123 of an earlier server\n")).splitlines() == [
        f"See its log, {log}.",
        "First errors:",
        *errors[:5],
        "…",
        "Last lines:",
        *(f"I1123 {n}" for n in range(12)),
    ]


def test_a_crash_is_shown_before_errors_of_the_start(log: Path) -> None:
    noise = [f"E1123 12:00 pinned_memory_manager.cc: CUDA driver version is insufficient {number}" for number in range(9)]
    frames = [f" {number}# 0x00007f in /lib/libc.so" for number in range(30)]
    log.write_text("\n".join([*noise, "I1123 serving", "Signal (11) received.", *frames]) + "\n")
    shown = explain_end(log, 0).splitlines()
    assert shown[1:4] == ["It crashed:", "Signal (11) received.", "First errors:"]
