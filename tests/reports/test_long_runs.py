"""Reports of thousands of requests, with more workers and series than a picture shows: whatever is thinned, in every format.

Under numpy 2 each of them failed once, where a caption depended on a ``numpy.bool``; `make test-numpy2` runs this too.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from numpy.random import default_rng

from bench_cli import run
from bench_records.record import Outcome, Record
from reports.render.plots import write_plots
from reports.run.page import run_pictures
from reports.run.perfetto import write_perfetto
from reports.run.writing import write_reports
from reports.run_report import RunReport
from tests.reports.manifests import asked_load
from tests.reports.watched import machine_samples, metric, statistics, worker_samples

_REQUESTS = 6_000
_WORKERS = 24
_MANIFEST: dict[str, Any] = {"load": asked_load(40.0), "criteria": {"slo": ["ttft_ms<=200"]}}


@pytest.fixture(scope="module")
def long_run(
    make_report: Callable[..., RunReport], queued_run: Callable[..., list[Record]], failed: Callable[..., Record]
) -> RunReport:
    """Two minutes and a half at 40 requests/s, a few of them failed."""
    records = queued_run(40.0, 7, count=_REQUESTS)
    for k in range(0, _REQUESTS, 500):
        at = records[k].scheduled_ns / 1e6
        records[k] = failed(k, at, Outcome.SERVER_ERROR, at, at + 30.0)
    lags = default_rng(7).exponential(0.3, 6_000).tolist()
    client = [sample for worker in range(_WORKERS) for sample in worker_samples(lags[worker::_WORKERS] * 4, worker=worker)]
    every = {second / 10: float(second % 17) for second in range(1_600)}
    server = [
        sample
        for model in range(_WORKERS)
        for sample in metric("nv_trt_llm_request_metrics", every, model=f"model_{model}", version="1", request_type="active")
    ]
    return make_report(
        records,
        client=[*client, *machine_samples(150)],
        server=server,
        **_MANIFEST,
        server_statistics={"before": statistics(m=(0, 1.0)), "after": statistics(m=(_REQUESTS, 1.0))},
    )


def test_every_format_of_a_long_run_is_written(long_run: RunReport, tmp_path: Path) -> None:
    write_reports(long_run)
    write_perfetto(long_run, tmp_path / "trace.json")
    folder = long_run.folder
    assert json.loads(folder.summary.read_text())["requests"]["done"] == _REQUESTS - _REQUESTS // 500
    assert folder.csv.read_text().count("\n") == _REQUESTS + 1
    assert "</html>" in folder.html.read_text()
    assert json.loads((tmp_path / "trace.json").read_text())


def test_every_picture_of_a_run_can_be_drawn(long_run: RunReport, tmp_path: Path) -> None:
    pictures = run_pictures(long_run).all
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = write_plots(pictures, tmp_path)
    assert len(written) == 2 * len(pictures) > 16
    for form in ("png", "svg"):
        assert {path.stem for path in tmp_path.glob(f"*.{form}")} == {picture.name for picture in pictures}


def test_what_a_picture_leaves_out_is_in_its_caption(long_run: RunReport) -> None:
    captions = " ".join(picture.caption for picture in run_pictures(long_run).all)
    for sentence in (
        "With more than 1,000 values the curve goes through about 900",
        "With more than 2,000 requests, each stretch of neighbours shows its slowest",
        "A bar is the 95 % interval of p50 or p99.",
        f"of {_WORKERS} workers.",
        f"of {_WORKERS} series.",
        "Means of 1,000 equal parts of the run.",
    ):
        assert sentence in captions


def test_long_runs_are_compared_in_every_format(
    long_run: RunReport,
    make_report: Callable[..., RunReport],
    queued_run: Callable[..., list[Record]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    slower = make_report(queued_run(40.0, 7, service_ms=22.0, count=_REQUESTS), **_MANIFEST)
    written = [tmp_path / f"difference.{form}" for form in ("html", "md", "json", "csv")]
    outputs = [text for path in written for text in ("--output", str(path))]
    run(["compare", str(long_run.folder.path), str(slower.folder.path), *outputs, "--allow_different"])
    for text in (capsys.readouterr().out, *(path.read_text() for path in written)):
        assert "p99" in text
