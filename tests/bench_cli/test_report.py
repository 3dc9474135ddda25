"""``bench report``: its output and its files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolder
from bench_records.table import write_table
from bench_records.whole_file import write_json
from tests.reports.manifests import run_manifest


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run of 50 requests, without a report."""
    made = RunFolder(tmp_path / "run")
    made.path.mkdir()
    write_json(run_manifest(workload={"description": "50 prompts", "dropped_too_long": 0}), made.manifest)
    write_table(
        [
            Record(
                index=k,
                outcome=Outcome.DONE,
                scheduled_ns=k * 10**7,
                requested_output_tokens=2,
                sent_ns=k * 10**7,
                done_ns=k * 10**7 + 3 * 10**7,
                token_times_ns=(k * 10**7 + 10**7, k * 10**7 + 2 * 10**7),
                token_counts=(1, 1),
                output_tokens=2,
            )
            for k in range(50)
        ],
        made.requests,
    )
    return made


def _printed(capsys: pytest.CaptureFixture[str], folder: RunFolder, *options: str) -> str:
    assert run(["report", str(folder.path), *options]) == ExitStatus.VALID
    captured = capsys.readouterr()
    assert str(folder.html) in captured.out + captured.err
    return captured.out


def test_every_file_is_written_with_any_format(capsys: pytest.CaptureFixture[str], folder: RunFolder) -> None:
    text = _printed(capsys, folder)
    assert "This run is valid." in text
    for path in (folder.summary, folder.csv, folder.markdown, folder.html):
        assert path.stat().st_size > 100


def test_the_full_text_has_every_table(capsys: pytest.CaptureFixture[str], folder: RunFolder) -> None:
    short, full = _printed(capsys, folder), _printed(capsys, folder, "--full")
    assert len(short.splitlines()) < 25 < len(full.splitlines())
    assert "Requests/Sec" in full


def test_full_goes_with_the_console_alone(capsys: pytest.CaptureFixture[str], folder: RunFolder) -> None:
    assert run(["report", str(folder.path), "--full", "--format", "json"]) == ExitStatus.USAGE
    assert "--full goes with --format console" in capsys.readouterr().err


def test_json_is_the_summary(capsys: pytest.CaptureFixture[str], folder: RunFolder) -> None:
    assert json.loads(_printed(capsys, folder, "--format", "json")) == json.loads(folder.summary.read_text())


def test_csv_has_one_row_per_request(capsys: pytest.CaptureFixture[str], folder: RunFolder) -> None:
    rows = list(csv.DictReader(io.StringIO(_printed(capsys, folder, "--format", "csv"))))
    assert [int(row["index"]) for row in rows] == list(range(50))


@pytest.mark.parametrize(("form", "begins"), [("markdown", "### 50 prompts"), ("html", "<!doctype html>")])
def test_markdown_and_html_are_the_files(capsys: pytest.CaptureFixture[str], folder: RunFolder, form: str, begins: str) -> None:
    text = _printed(capsys, folder, "--format", form)
    assert text.lstrip().startswith(begins)
    path = folder.markdown if form == "markdown" else folder.html
    assert text == path.read_text(encoding="utf-8")


def test_plots_are_written_to_the_named_folder(capsys: pytest.CaptureFixture[str], folder: RunFolder, tmp_path: Path) -> None:
    _printed(capsys, folder, "--plots", str(tmp_path / "figures"))
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"latency-by-percentile.png", "latency-by-percentile.svg", "rates.png", "rates.svg"} <= names


def test_an_unknown_format_is_refused(capsys: pytest.CaptureFixture[str], folder: RunFolder) -> None:
    assert run(["report", str(folder.path), "--format", "pdf"]) == ExitStatus.USAGE
    assert "'console', 'markdown', 'json', 'csv', 'html'" in capsys.readouterr().err


def test_a_folder_for_plots_that_is_a_file_is_refused(
    capsys: pytest.CaptureFixture[str], folder: RunFolder, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("x")
    assert run(["report", str(folder.path), "--plots", str(tmp_path / "taken")]) == ExitStatus.USAGE
    assert "--plots" in capsys.readouterr().err
