"""Reading a run folder: what is no finished run is refused with the name of the file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.records.record import Record
from harness.records.run_folder import RunFolder, RunFolderError
from reports.run.writing import write_reports
from reports.run_report import RunReport, read_run


def test_a_run_is_read_whole(make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]) -> None:
    report = make_report(steady_run(20))
    assert report.metrics.done == 20
    assert report.metrics.ttft_ms is not None
    assert report.manifest["schedule"]["seed"] == 42
    assert report.valid


def test_an_unstreamed_run_has_no_token_latencies(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    metrics = make_report(steady_run(20), streaming=False).metrics
    assert (metrics.ttft_ms, metrics.tpot_ms, metrics.itl_ms, metrics.icl_ms) == (None, None, None, None)
    assert metrics.e2e_ms.scheduled is not None


def test_reports_are_written_into_the_run_s_folder(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    report = make_report(steady_run(5))
    write_reports(report)
    assert {path.name for path in report.folder.path.iterdir()} == {
        "run.json",
        "requests.parquet",
        "requests.csv",
        "summary.json",
        "report.html",
        "report.md",
    }


def test_rendering_again_changes_no_number(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    report = make_report(steady_run(5))
    write_reports(report)
    summary, csv = report.folder.summary.read_bytes(), report.folder.csv.read_bytes()
    write_reports(read_run(report.folder))
    assert (report.folder.summary.read_bytes(), report.folder.csv.read_bytes()) == (summary, csv)


def test_a_folder_without_a_manifest_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"is not a run folder: it has no run\.json"):
        read_run(RunFolder(tmp_path))
    with pytest.raises(RunFolderError, match="nowhere"):
        read_run(RunFolder(tmp_path / "nowhere"))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"schema": 2}', b'{"schema": "1"}', b"\xff\xfe"])
def test_a_manifest_that_is_none_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    folder = RunFolder(tmp_path)
    folder.manifest.write_bytes(content)
    with pytest.raises(RunFolderError, match=re.escape(str(folder.manifest))):
        read_run(folder)


def test_a_run_without_records_did_not_come_to_its_end(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_manifest({"schema": 1})
    with pytest.raises(RunFolderError, match="did not come to its end"):
        read_run(folder)


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_damaged_records_are_refused_by_name(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]], keep: float
) -> None:
    folder = make_report(steady_run(50)).folder
    content = folder.requests.read_bytes()
    folder.requests.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(RunFolderError, match=re.escape(f"{folder.requests} cannot be read")):
        read_run(folder)
