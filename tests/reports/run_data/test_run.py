"""A run opened in Python: its DataFrames, numbers and findings."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from msgspec import structs

import reports.run_data
from bench_errors import BenchError
from bench_records.client_sample import ClientSample
from bench_records.client_table import CLIENT_COLUMNS
from bench_records.manifest import RunState
from bench_records.record import Outcome, Record
from bench_records.run_folder import RunFolderError
from bench_records.server_table import SERVER_COLUMNS, MetricSample
from reports import open_run
from reports.compare import compare
from reports.errors import MissingLibraryError, NotComparableError
from reports.run_data.columns import CHUNKS, COMPUTED, PHASES, RECORDED
from reports.run_data.run import Run
from reports.run_report import RunReport
from reports.why import json_file
from reports.why.answer import METRICS, Detail, explain

_FRAMES = {
    "requests": (*RECORDED, *(computed.column for computed in COMPUTED)),
    "chunks": CHUNKS,
    "phases": PHASES,
    "client_series": CLIENT_COLUMNS,
    "server_series": SERVER_COLUMNS,
}
_COLUMNS_PAGE = Path(__file__).parents[3] / "docs" / "reference" / "columns.md"

MakeReport = Callable[..., RunReport]


@pytest.fixture
def opened(make_report: MakeReport, answered: Callable[..., Record], failed: Callable[..., Record]) -> Run:
    """Three requests: two chunks with known counts, two without, and a failure; client and server were watched."""
    records = [
        answered(0, 0, 2, [(50, 1), (70, 2)], input_tokens=8),
        answered(1, 10, 10, [(40, 1), (80, 1)], token_counts=None, output_tokens=5, session="s"),
        failed(2, 20, Outcome.TIMEOUT, sent=21),
    ]
    client = [ClientSample(time_ns=-5, worker=None, cpu_ns=7), ClientSample(time_ns=6, worker=0, lag_ns=3)]
    server = [MetricSample(9, 1, "nv_inference_count", '{"model":"m"}', 4.0, "http://h:1/metrics")]
    return open_run(make_report(records, client=client, server=server).folder.path)


# ---- DataFrames


def test_each_request_has_its_records_and_its_latencies(opened: Run) -> None:
    requests = opened.requests.set_index("index")
    assert requests["outcome"].to_list() == ["done", "done", "timeout"]
    assert requests["ttft_ms"].to_list()[:2] == [50.0, 30.0]
    assert requests["ttft_from_sent_ms"].to_list()[:2] == [48.0, 30.0]
    assert requests["e2e_ms"].to_list()[:2] == [70.0, 70.0]
    assert requests["e2e_from_sent_ms"].to_list()[:2] == [68.0, 70.0]
    assert requests["tpot_ms"].to_list()[:2] == [10.0, 10.0]
    assert requests["slip_ms"].to_list() == [2.0, 0.0, 1.0]


def test_what_is_unknown_is_missing(opened: Run) -> None:
    requests = opened.requests.set_index("index")
    assert requests["input_tokens"].isna().to_list() == [False, True, True]
    assert requests["session"].isna().to_list() == [True, False, True]
    assert requests.loc[2, ["ttft_ms", "ttft_from_sent_ms", "e2e_ms", "e2e_from_sent_ms", "tpot_ms"]].isna().all()
    assert opened.client_series["worker"].isna().to_list() == [True, False]


def test_the_first_output_is_the_first_token_unless_that_was_reasoning(
    make_report: MakeReport, answered: Callable[..., Record]
) -> None:
    chunks = [(50, 1), (70, 1)]
    records = [
        answered(0, 0, 0, chunks),
        answered(1, 0, 0, chunks, has_reasoning=True, first_output_ns=70_000_000),
        answered(2, 0, 0, chunks, has_reasoning=True),
    ]
    ttfo_ms = open_run(make_report(records).folder.path).requests["ttfo_ms"]
    assert ttfo_ms.to_list()[:2] == [50.0, 70.0]
    assert ttfo_ms.isna().to_list() == [False, False, True]


def test_an_unstreamed_run_has_no_token_latencies(make_report: MakeReport, answered: Callable[..., Record]) -> None:
    run = open_run(make_report([answered(0, 0, 0, [(50, 3)])], streaming=False).folder.path)
    assert run.requests[["ttft_ms", "ttft_from_sent_ms", "ttfo_ms", "tpot_ms"]].isna().all(axis=None)
    assert run.requests["e2e_ms"].to_list() == [50.0]


def test_each_chunk_is_a_row(opened: Run) -> None:
    chunks = opened.chunks
    assert chunks[["index", "chunk", "time_ns"]].to_numpy().tolist() == [
        [0, 0, 50_000_000],
        [0, 1, 70_000_000],
        [1, 0, 40_000_000],
        [1, 1, 80_000_000],
    ]
    assert chunks["tokens"].to_list() == [1, 2, pd.NA, pd.NA]


def _timed(answered: Callable[..., Record]) -> list[Record]:
    """Requests with durations of the server, with nothing but the client's own times, and with contradicting ones."""
    own = {"written_ns": 3_000_000, "head_ns": 33_000_000}
    of_server = {"server_queue_ns": 10_000_000, "server_prefill_ns": 20_000_000, "server_decode_ns": 19_000_000}
    tokens = [(50, 1), (70, 2)]
    return [
        answered(0, 0, 2, tokens, **own, **of_server),
        answered(1, 0, 2, tokens, **own, connect_ns=500_000),
        answered(2, 0, 2, tokens, server_queue_ns=10_000_000, server_prefill_ns=60_000_000),
    ]


def test_the_phases_of_each_request_add_up_to_its_latency(
    make_report: MakeReport, answered: Callable[..., Record], failed: Callable[..., Record]
) -> None:
    run = open_run(make_report([*_timed(answered), failed(3, 20, Outcome.TIMEOUT, sent=21)]).folder.path)
    phases = run.phases
    assert phases["metric"].to_list() == ["ttft_ms"] * 4 + ["e2e_ms"] * 4
    latency_ms = [*run.requests["ttft_ms"], *run.requests["e2e_ms"]]
    assert (phases["latency_ns"] / 1e6).to_numpy(float, na_value=np.nan) == pytest.approx(latency_ms, nan_ok=True)
    parts = phases.drop(columns=["index", "metric", "latency_ns"])
    known = phases["latency_ns"].notna()
    assert (parts.sum(axis=1)[known] == phases["latency_ns"][known]).all()
    assert parts[~known].isna().all(axis=None)
    assert phases["contradiction_ns"].dropna().to_list() == [0, 0, -22_000_000, 0, 0, -22_000_000]


def test_a_phase_without_a_source_is_missing_and_its_time_unattributed(
    make_report: MakeReport, answered: Callable[..., Record]
) -> None:
    phases = open_run(make_report(_timed(answered)).folder.path).phases
    ttft, e2e = (phases[phases["metric"] == metric].set_index("index") for metric in ("ttft_ms", "e2e_ms"))
    assert ttft["queue_ns"].to_list() == [10_000_000, pd.NA, 10_000_000]
    assert ttft["first_byte_ns"].to_list() == [pd.NA, 30_000_000, pd.NA]
    assert ttft["connect_ns"].to_list() == [pd.NA, 500_000, pd.NA]
    assert ttft["send_ns"].to_list() == [1_000_000, 500_000, pd.NA]
    assert ttft["unattributed_ns"].to_list() == [17_000_000, 17_000_000, 0]
    assert e2e["decode_ns"].to_list() == [19_000_000, pd.NA, pd.NA]
    assert e2e["stream_ns"].to_list() == [pd.NA, 20_000_000, 20_000_000]
    assert phases["ceiling_ns"].isna().all()


def test_the_phases_are_those_of_bench_why(make_report: MakeReport, answered: Callable[..., Record]) -> None:
    report = make_report(_timed(answered))
    why = json_file.document(explain([report], METRICS, 0.99, Detail(chosen=(0, 1, 2))))
    phases = open_run(report.folder.path).phases
    for latency in why["runs"][0]["latencies"]:  # type: ignore[index]
        frame = phases[phases["metric"] == latency["metric"]].set_index("index").fillna(0)
        for request in latency["requests"]:
            row = frame.loc[request["index"]]
            found_ms = {phase["phase"]: phase["ms"] for phase in request["phases"]}
            assert {name: row[f"{name}_ns"] / 1e6 for name in found_ms} == pytest.approx(found_ms)
            assert row["contradiction_ns"] / 1e6 == pytest.approx(request["contradiction_ms"])


def test_an_unstreamed_run_has_the_phases_of_its_e2e_latency(make_report: MakeReport, answered: Callable[..., Record]) -> None:
    run = open_run(make_report([answered(0, 0, 0, [(50, 3)])], streaming=False).folder.path)
    assert run.phases["metric"].to_list() == ["e2e_ms"]
    assert run.phases["stream_ns"].isna().all()


def test_series_are_those_of_the_files(opened: Run) -> None:
    (row,) = opened.server_series.to_dict("records")
    assert row == {
        "time_ns": 9,
        "scrape_ns": 1,
        "name": "nv_inference_count",
        "labels": '{"model":"m"}',
        "value": 4.0,
        "server": "http://h:1/metrics",
    }
    assert opened.client_series[["time_ns", "cpu_ns"]].to_numpy().tolist() == [[-5, 7], [6, pd.NA]]


def test_a_run_that_was_not_watched_has_series_without_rows(
    make_report: MakeReport, steady_run: Callable[..., list[Record]]
) -> None:
    run = open_run(make_report(steady_run(3)).folder.path)
    assert len(run.client_series) == len(run.server_series) == 0


@pytest.mark.parametrize("name", _FRAMES)
def test_the_columns_are_those_of_the_page_with_their_types(opened: Run, name: str, make_report: MakeReport) -> None:
    text = _COLUMNS_PAGE.read_text(encoding="utf-8")
    frame: pd.DataFrame = getattr(opened, name)
    (section,) = (part for part in re.split(r"^## ", text, flags=re.MULTILINE) if f"`run.{name}`: one row" in part)
    rows = re.findall(r"^\| `(\w+)` \|(?: `[\w ]+` \|)? `(\w+)` \| [^`]", section, re.MULTILINE)
    types = {column: str(dtype).partition("[")[0] for column, dtype in frame.dtypes.items()}
    assert types == dict(rows)
    unwatched = open_run(make_report([]).folder.path)
    assert list(getattr(unwatched, name).columns) == list(frame.columns)


def test_units_are_in_the_names(opened: Run) -> None:
    """A column whose unit is a time or tokens ends in it; except the tokens of a chunk, which are its whole name."""
    for columns in _FRAMES.values():
        for column in columns:
            unit = column.unit.partition(",")[0]
            assert not unit or unit == "the series' own" or column.name.endswith(unit), column.name


# ---- numbers, findings, comparison


def test_numbers_and_findings_are_those_of_the_report(opened: Run) -> None:
    assert opened.summary is opened.report.metrics
    assert opened.findings is opened.report.findings
    assert opened.manifest["target"]["protocol"] == "grpc"
    assert not opened.valid
    with pytest.raises(TypeError):
        opened.manifest["target"] = None  # type: ignore[index]


def test_nothing_is_computed_twice(opened: Run) -> None:
    assert opened.report is opened.report
    for name in _FRAMES:
        assert getattr(opened, name) is getattr(opened, name)


def test_the_mean_of_a_column_is_that_of_the_summary(make_report: MakeReport, queued_run: Callable[..., list[Record]]) -> None:
    run = open_run(make_report(queued_run(20.0, 1)).folder.path)
    assert run.summary.ttft_ms is not None
    assert run.summary.ttft_ms.scheduled is not None
    assert np.isclose(run.requests["ttft_ms"].mean(), run.summary.ttft_ms.scheduled.mean.value)


def test_compare_is_the_comparison_of_the_command_line(
    make_report: MakeReport, queued_run: Callable[..., list[Record]]
) -> None:
    a, b = (open_run(make_report(queued_run(20.0, 1, ms)).folder.path) for ms in (20.0, 24.0))
    compared = compare(a, b)
    assert compared.verdict == "worse between these starts"
    assert compare(b, a).verdict == "better between these starts"
    assert {difference.measure.name for difference in compared.differences} >= {"p99_ttft", "request_throughput"}


# ---- in a notebook


def test_text_for_a_notebook_is_short_and_inert(make_report: MakeReport, steady_run: Callable[..., list[Record]]) -> None:
    workload = {"description": "<script>alert(1)</script>", "dropped_too_long": 0}
    run = open_run(make_report(steady_run(), workload=workload).folder.path)
    assert re.fullmatch(
        r"<Run .*: valid; 700 of 700 requests done; TTFT p50 100\.00 ms, TTFT p99 100\.00 ms; findings: \d>", repr(run)
    )
    html = run._repr_html_()
    assert "<script>" not in html
    assert "This run is valid." in html
    assert "TTFT, from schedule" in html


def test_a_run_without_a_success_has_a_text(make_report: MakeReport, failed: Callable[..., Record]) -> None:
    run = open_run(make_report([failed(0, 0, Outcome.TIMEOUT, sent=0)]).folder.path)
    assert "NOT VALID; 0 of 1 requests done; findings:" in repr(run)
    assert "NOT VALID" in run._repr_html_()


# ---- errors


def test_a_folder_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="is not a run folder"):
        open_run(tmp_path)


def test_a_run_that_has_not_ended(make_report: MakeReport, steady_run: Callable[..., list[Record]]) -> None:
    folder = make_report(steady_run(3)).folder
    folder.write_manifest(structs.replace(folder.read_manifest(), state=RunState.RUNNING))
    folder.journal(0).touch()
    with pytest.raises(RunFolderError, match="bench recover"):
        open_run(str(folder.path))


def test_runs_of_different_work_are_not_compared(make_report: MakeReport, steady_run: Callable[..., list[Record]]) -> None:
    a = open_run(make_report(steady_run()).folder.path)
    b = open_run(make_report(steady_run(), arrivals="poisson").folder.path)
    with pytest.raises(NotComparableError, match="arrivals"):
        compare(a, b)
    assert compare(a, b, allow_different=True).verdict == "no difference shown"


def test_without_pandas_only_the_frames_fail(opened: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.delitem(sys.modules, "reports.run_data.frames", raising=False)
    monkeypatch.delattr(reports.run_data, "frames", raising=False)
    assert opened.summary.done == 2
    with pytest.raises(MissingLibraryError, match=r"pip install 'inflight-bench\[pandas\]'") as raised:
        _ = opened.requests
    assert isinstance(raised.value, BenchError)


# ---- imports


def test_pandas_is_imported_with_the_first_frame_and_nothing_with_the_package(opened: Run) -> None:
    code = (
        "import sys\nimport reports\nprint(sorted({'numpy', 'pyarrow', 'pandas'} & set(sys.modules)))\n"
        f"run = reports.open_run({str(opened.folder.path)!r})\nrepr(run), run.findings\nprint('pandas' in sys.modules)\n"
        "run.chunks\nprint('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "False", "True"]
