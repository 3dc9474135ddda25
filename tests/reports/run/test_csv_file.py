"""``requests.csv``, as a spreadsheet reads it."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from bench_records.record import Outcome, Record
from reports.run.csv_file import COLUMNS, write_csv
from reports.run_report import RunReport

Make = Callable[..., Record]
MakeReport = Callable[..., RunReport]


def _read(report: RunReport, path: Path) -> list[dict[str, str]]:
    write_csv(report, path)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_row_a_request_golden(make_report: MakeReport, answered: Make, tmp_path: Path) -> None:
    record = answered(0, 1.5, 2, [(10.000001, 1), (20, 2)], input_tokens=7, written_ns=2_050_000, head_ns=9_000_001)
    (row,) = _read(make_report([record]), tmp_path / "r.csv")
    assert row == {
        "index": "0",
        "outcome": "done",
        "scheduled_ms": "1.500000",
        "sent_ms": "2.000000",
        "first_token_ms": "10.000001",
        "last_token_ms": "20.000000",
        "done_ms": "21.000000",
        "input_tokens": "7",
        "requested_output_tokens": "3",
        "output_tokens": "3",
        "error": "",
        "target": "",
        "written_ms": "2.050000",
        "head_ms": "9.000001",
        "traffic_class": "",
    }


def test_unknown_cells_are_empty_and_never_zero(make_report: MakeReport, failed: Make, tmp_path: Path) -> None:
    (row,) = _read(make_report([failed(0, 0, Outcome.NOT_SENT)]), tmp_path / "r.csv")
    assert row["scheduled_ms"] == "0.000000"
    times = ("sent_ms", "first_token_ms", "last_token_ms", "done_ms", "written_ms", "head_ms")
    unknown = (*times, "input_tokens", "output_tokens")
    assert [row[name] for name in unknown] == [""] * len(unknown)


def test_rows_and_columns(make_report: MakeReport, steady_run: Callable[..., list[Record]], tmp_path: Path) -> None:
    rows = _read(make_report(steady_run(30)), tmp_path / "r.csv")
    assert [row["index"] for row in rows] == [str(k) for k in range(30)]
    assert tuple(rows[0]) == COLUMNS


def test_probes_and_classes_can_be_distinguished(make_report: MakeReport, answered: Make, tmp_path: Path) -> None:
    """Probes are rows, too, and in no number of the run."""
    records = [answered(k, k, k, [(k + 10, 1)], traffic_class=name) for k, name in enumerate(("chat", "probe", "=1+1", None))]
    rows = _read(make_report(records), tmp_path / "r.csv")
    assert [row["traffic_class"] for row in rows] == ["chat", "probe", "'=1+1", ""]


@pytest.mark.parametrize("error", ['said "no", twice', "two\nlines", "a;b,c\td", "Grüße 🦊", "'quoted'", " =1+1"])
def test_an_error_message_is_read_back_as_it_was(
    make_report: MakeReport, failed: Make, answered: Make, tmp_path: Path, error: str
) -> None:
    report = make_report([failed(0, 0, Outcome.SERVER_ERROR, 0, 1, error=error), answered(1, 0, 0, [(1, 1)])])
    rows = _read(report, tmp_path / "r.csv")
    assert [row["error"] for row in rows] == [error, ""]


@pytest.mark.parametrize("error", ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)"])
def test_an_error_message_is_no_formula(make_report: MakeReport, failed: Make, tmp_path: Path, error: str) -> None:
    (row,) = _read(make_report([failed(0, 0, Outcome.SERVER_ERROR, 0, 1, error=error)]), tmp_path / "r.csv")
    assert row["error"] == f"'{error}"


def test_a_nul_does_not_end_the_cell(make_report: MakeReport, failed: Make, tmp_path: Path) -> None:
    (row,) = _read(make_report([failed(0, 0, Outcome.SERVER_ERROR, 0, 1, error="a\x00b")]), tmp_path / "r.csv")
    assert row["error"] == "a\ufffdb"
