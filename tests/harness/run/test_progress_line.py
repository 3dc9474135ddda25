from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest

from harness.run.live_statistics import Snapshot
from harness.run.progress_line import ProgressLine, format_snapshot


def _at(elapsed_s: float, done: int = 0, ttft_ms: float | None = None) -> Snapshot:
    return Snapshot(
        elapsed_s=elapsed_s,
        scheduled=300,
        sent=done + 5,
        done=done,
        failed=2,
        requests_per_s=9.96,
        tokens_per_s=204.4,
        latency="TTFT",
        latency_p99_ms=None if ttft_ms is None else ttft_ms * 2,
    )


def _shown(*snapshots: Snapshot) -> list[str]:
    output = io.StringIO()
    with ProgressLine(output) as progress:
        for snapshot in snapshots:
            progress(snapshot)
    return output.getvalue().splitlines()


def test_line_shows_the_state_of_the_run() -> None:
    line = "01:01  14%  06:20 left  TTFT p99 24.7 ms  failed 2  sent 45/300  in flight 3  10.0 req/s  204 tok/s"
    assert format_snapshot(_at(61.9, done=40, ttft_ms=12.34)) == line
    assert line in Path("docs/reference/metrics.md").read_text(encoding="utf-8"), "the page explains this line"


def test_the_line_names_the_latency_that_it_shows() -> None:
    line = format_snapshot(dataclasses.replace(_at(61.9, done=40, ttft_ms=12.34), latency="E2E"))
    assert "  E2E p99 24.7 ms  " in line
    assert "TTFT" not in line


def test_a_run_of_unknown_length_has_no_share_and_no_time_left() -> None:
    line = format_snapshot(dataclasses.replace(_at(61.9, done=40, ttft_ms=12.34), scheduled=None))
    assert line == "01:01  TTFT p99 24.7 ms  failed 2  sent 45  in flight 3  10.0 req/s  204 tok/s"


def test_what_decides_stands_before_what_a_narrow_terminal_cuts_off() -> None:
    line = format_snapshot(dataclasses.replace(_at(3_661.0, done=40, ttft_ms=12_345.6), stopping=True))
    assert line[:60].startswith("61:01  14%  TTFT p99 24691.2 ms  failed 2  stopping")


def test_number_that_does_not_exist_is_a_dash() -> None:
    assert format_snapshot(_at(0.0)).startswith("00:00  1%  00:00 left  TTFT p99 –  failed 2")


def test_outside_a_terminal_a_line_comes_every_ten_seconds_and_at_the_end() -> None:
    lines = _shown(*(_at(tenth / 10, done=tenth) for tenth in range(255)))
    assert [line[:5] for line in lines] == ["00:00", "00:10", "00:20", "00:25"]
    assert "sent 259/300" in lines[-1]


def test_outside_a_terminal_there_are_no_control_characters() -> None:
    text = "\n".join(_shown(_at(0.0), _at(12.0), _at(13.0)))
    assert "\x1b" not in text
    assert "\r" not in text


def test_nothing_is_shown_of_a_run_that_did_not_begin() -> None:
    assert _shown() == []


def test_last_snapshot_is_shown_when_the_run_fails() -> None:
    output = io.StringIO()

    def fail() -> None:
        with ProgressLine(output) as progress:
            progress(_at(0.0))
            progress(_at(3.0, done=17))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert "sent 22/300" in output.getvalue().splitlines()[-1]


def test_no_snapshot_is_shown_twice() -> None:
    assert len(_shown(_at(0.0), _at(10.0))) == 2
