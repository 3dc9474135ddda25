"""``perfetto.json``: a Chrome trace whose rows can be drawn."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench_records.record import Outcome, Record
from reports.run.perfetto import write_perfetto
from reports.run_report import RunReport

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]


def _events(report: RunReport, path: Path) -> list[dict[str, Any]]:
    write_perfetto(report, path)

    def no_constants(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    document = json.loads(path.read_text(encoding="utf-8"), parse_constant=no_constants)
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def test_golden(make_report: MakeReport, answered: Make, failed: Make, tmp_path: Path) -> None:
    records = [
        answered(0, 0, 1, [(11, 1), (21, 1)], done=22, input_tokens=5),
        failed(1, 1, Outcome.TIMEOUT, 2, 50),
        answered(2, 2, 3, [(13, 4)], done=13),
    ]
    events = _events(make_report(records), tmp_path / "p.json")
    common = {"ph": "X", "pid": "1"}
    assert events == [
        {**common, "name": "request 0", "ts": 1000.0, "dur": 21000.0, "tid": 0, "args": {"isl": 5, "osl": 2}},
        {**common, "name": "to first token", "ts": 1000.0, "dur": 10000.0, "tid": 0, "args": {}},
        {**common, "name": "request 2", "ts": 3000.0, "dur": 10000.0, "tid": 1, "args": {"isl": None, "osl": 4}},
    ]


def test_a_row_is_free_again_when_its_request_is_done(make_report: MakeReport, answered: Make, tmp_path: Path) -> None:
    records = [
        answered(0, 0, 0, [(10, 1)], done=10),
        answered(1, 5, 5, [(20, 1)], done=20),
        answered(2, 10, 10, [(15, 1)], done=15),
    ]
    events = _events(make_report(records), tmp_path / "p.json")
    assert [(event["name"], event["tid"]) for event in events] == [("request 0", 0), ("request 1", 1), ("request 2", 0)]


def test_rows_follow_the_send_and_not_the_schedule(make_report: MakeReport, answered: Make, tmp_path: Path) -> None:
    records = [answered(0, 0, 9, [(20, 1)], done=20), answered(1, 1, 2, [(8, 1)], done=8)]
    events = _events(make_report(records), tmp_path / "p.json")
    assert [(event["name"], event["tid"]) for event in events] == [("request 1", 0), ("request 0", 0)]


def test_a_run_without_successes_is_an_empty_trace(make_report: MakeReport, failed: Make, tmp_path: Path) -> None:
    assert _events(make_report([failed(0, 0, Outcome.CONNECT, 0, 1)]), tmp_path / "p.json") == []


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace") / "perfetto.json"


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20), st.integers(1, 20)), min_size=1, max_size=25))
def test_no_row_overlaps_and_there_are_no_more_rows_than_requests_in_flight(
    make_report: MakeReport, answered: Make, trace: Path, spans: list[tuple[int, int, int]]
) -> None:
    records = [
        answered(k, sent, sent, [(sent + first, 1)], done=sent + first + rest) for k, (sent, first, rest) in enumerate(spans)
    ]
    events = _events(make_report(records), trace)
    requests = [event for event in events if event["name"].startswith("request")]
    assert sorted(event["name"] for event in requests) == sorted(f"request {k}" for k in range(len(spans)))
    rows = defaultdict(list)
    for event in requests:
        rows[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for row in rows.values():
        row.sort()
        assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(row))  # 1 ps of rounding
    most_in_flight = max(sum(sent <= moment < sent + first + rest for sent, first, rest in spans) for moment, _, _ in spans)
    assert sorted(rows) == list(range(most_in_flight))
    for event in events:  # a first token lies within a request of its row
        if event["name"] == "to first token":
            end = event["ts"] + event["dur"]
            assert any(start <= event["ts"] and end <= stop + 1e-6 for start, stop in rows[event["tid"]])
