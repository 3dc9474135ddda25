"""Reading a run folder: what is no finished run is refused with the name of the file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench_records.manifest import Manifest
from bench_records.record import Record
from bench_records.run_folder import RunFolder, RunFolderError
from bench_records.server_table import MetricSample, write_server_table
from reports.run.writing import write_reports
from reports.run_report import RunReport, read_run


def test_a_run_is_read_whole(make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]) -> None:
    report = make_report(steady_run(20))
    assert report.metrics.done == 20
    assert report.metrics.ttft_ms is not None
    assert report.schedule.seed == 42
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
    folder.write_manifest(Manifest())
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


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('"workload": ' + "[" * 100_000 + "]" * 100_000, "recursion"),
        ('"workload": ' + "[" * 40 + "]" * 40, "nested deeper than 32 levels"),
        ('"environment": {"cores": 1' + "0" * 60 + "}", "longer than 64 bits"),
        ('"arrivals": "' + "x" * (17 << 20) + '"', "longer than 16,777,216 bytes"),
        ('"load": {"mode": "open", "stages": [{"begin_s": 1, "end_s": 1, "rate_per_s": 2}]}', "stages"),
        ('"load": 7', "at `load`"),
        ('"target": null', "at `target`"),
        ('"target": {"template_tokens": -1}', "at `target.template_tokens`"),
        (
            '"machine_use": {"cores": 0, "seconds": 2, "client_cores": 1, "target_cores": 1, "busy_cores": 2}',
            "machine_use.cores",
        ),
        ('"clock": {"before": {}, "after": {}}', "clock.before"),
        ('"schedule": {"digest": 1, "seed": 1}', "schedule.digest"),
        ('"workload": {"dropped_too_long": NaN}', "workload.dropped_too_long"),
    ],
)
def test_a_manifest_that_no_run_has_written_is_refused_in_one_sentence(tmp_path: Path, content: str, reason: str) -> None:
    folder = RunFolder(tmp_path)
    folder.manifest.write_text(f'{{"schema": 1, {content}}}')
    with pytest.raises(RunFolderError, match=re.escape(f"{folder.manifest} cannot be read: ")) as refused:
        read_run(folder)
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 500
    assert "\n" not in str(refused.value)


def test_a_manifest_that_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    os.mkfifo(folder.manifest)
    with pytest.raises(RunFolderError, match=r"run\.json cannot be read: not a regular file"):
        read_run(folder)


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("index", [0, 0, 0], "3 records of 1 requests"),
        ("index", [-1, 0, 1], "negative numbers"),
        ("outcome", ["done", "done", "well"], "'well' is none of done"),
        ("output_tokens_source", ["server", "guess", None], "'guess' is none of server"),
        ("output_tokens", [3, 3, -1], "output_tokens: a number of tokens"),
        ("requested_output_tokens", [3, 3, 2**40], "requested_output_tokens: a number of tokens"),
        ("parent", [None, 7, None], "parent: a turn waited"),
        ("scheduled_ns", [0, 1, 2**60], "scheduled_ns has the value"),
        ("token_counts", [[1, 1], [1, 1, 1, 1], [1, 1, 1]], "token_counts are negative, or not as many"),
        ("token_counts", [[1, 1, -1], None, None], "token_counts are negative"),
        ("token_times_ns", [[1, None, 2], [], []], "1 values within token_times_ns are missing"),
    ],
)
def test_records_that_no_run_has_written_are_refused(
    make_report: Callable[..., RunReport],
    steady_run: Callable[..., list[Record]],
    column: str,
    values: list[object],
    reason: str,
) -> None:
    folder = make_report(steady_run(3)).folder
    table = pq.ParquetFile(folder.requests).read()
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, pa.array(values, table.schema.field(column).type)), folder.requests)
    with pytest.raises(RunFolderError, match=re.escape(f"{folder.requests} cannot be read: ")) as refused:
        read_run(folder)
    assert reason in str(refused.value)


@pytest.mark.parametrize("labels", ["[]", "{", '{"a": 1}', "[" * 100_000])
def test_labels_of_the_server_that_are_none_are_refused(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]], labels: str
) -> None:
    folder = make_report(steady_run(3)).folder
    write_server_table([MetricSample(0, 1, "nv_a", labels, 1.0)], folder.server)
    with pytest.raises(RunFolderError, match=re.escape(f"{folder.server} cannot be read: ")):
        read_run(folder)


def test_a_few_bytes_that_stand_for_a_million_rows_are_refused(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]]
) -> None:
    folder = make_report(steady_run(1)).folder
    row = pq.ParquetFile(folder.requests).read()
    many = row.take(pa.array(np.zeros(1_000_000, np.int64)))
    pq.write_table(many, folder.requests, compression="zstd")
    assert folder.requests.stat().st_size < 100_000
    with pytest.raises(RunFolderError, match="too large for a file of its size"):
        read_run(folder)


def test_a_link_in_the_place_of_a_file_to_be_written_is_not_followed(
    make_report: Callable[..., RunReport], steady_run: Callable[..., list[Record]], tmp_path: Path
) -> None:
    report = make_report(steady_run(5))
    precious = tmp_path / "precious"
    precious.write_text("kept")
    report.folder.summary.with_suffix(".tmp").symlink_to(precious)
    write_reports(report)
    assert precious.read_text() == "kept"
    assert report.folder.summary.is_file()
