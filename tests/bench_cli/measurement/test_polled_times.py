"""Whole runs against a server that keeps its times of requests, as trtllm-serve does, and is polled for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from tests.harness.trtllm_server import Trtllm, trtllm_server

_TOKENIZER = str(Path(__file__).parents[3] / "serving" / "demo_engine")
_LENGTHS = ["--input_mean", "4", "--input_stdev", "0", "--output_mean", "5", "--output_stdev", "0"]
_REQUESTS = 60
_QUEUES_S = (0.0, 0.01, 0.05, 0.1)

Measure = Callable[..., int]


@pytest.fixture
def measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def measured(server: Trtllm, *options: str) -> int:
        line = [
            "token_norm_dist",
            "-i",
            "openai",
            "--url",
            f"127.0.0.1:{server.port}",
            *_LENGTHS,
            "--tokenizer_dir",
            _TOKENIZER,
        ]
        line += ["--num_requests", str(_REQUESTS), "--request_rate", "20", "--seed", "3", "--workers", "1"]
        return run([*line, "--run_dir", str(tmp_path / "r"), *options])

    return measured


def _queue(number: int) -> float:
    return _QUEUES_S[number % len(_QUEUES_S)]


def _rows(tmp_path: Path) -> list[dict[str, Any]]:
    return RunFolder(tmp_path / "r").read_requests().to_pylist()


def test_each_request_has_the_times_that_the_server_kept_of_it(
    tmp_path: Path, measure: Measure, capsys: pytest.CaptureFixture[str]
) -> None:
    """More requests than the server keeps: it is polled meanwhile. Requests overlap, and none is swapped."""
    with trtllm_server(most=55, queue_s=_queue) as server:
        assert measure(server, "--server_timings") in (ExitStatus.VALID, ExitStatus.INVALID)
        records = {str(int(name.rpartition("-")[2])): timing for name, timing in server.records.items() if "-" in (name or "")}
    assert "The server timed 60 of 60 requests (/perf_metrics)." in capsys.readouterr().err
    assert not any({"include_metrics", "nvext"} & body.keys() for body in server.bodies)
    for row in _rows(tmp_path):
        timing = records[str(row["index"])]
        assert row["server_arrival_ns"] == pytest.approx(timing["arrival_time"] * 1e9, abs=1.0)
        assert row["server_queue_ns"] == pytest.approx((timing["first_scheduled_time"] - timing["arrival_time"]) * 1e9, abs=2.0)
    kept = json.loads((tmp_path / "r" / "perf_metrics.json").read_text())
    assert len(kept) >= _REQUESTS
    document = RunFolder(tmp_path / "r").read_document()[0]
    polled = document["polled_times"]
    assert (polled["records"], polled["failed"]) == (len(kept), 0)
    assert polled["url"].endswith("/perf_metrics")
    capsys.readouterr()
    run(["why", str(tmp_path / "r"), "--metric", "ttft", "--format", "json"])
    [latency] = json.loads(capsys.readouterr().out)["runs"][0]["latencies"]
    p99 = latency["percentiles"][-1]
    shares = {phase["phase"]: phase["mean_ms"]["value"] for phase in p99["phases"]}
    assert p99["timed"] == p99["around"] == 20
    slowest = sorted(_rows(tmp_path), key=lambda row: row["token_times_ns"][0] - row["scheduled_ns"])[-20:]
    assert shares["queue"] == pytest.approx(sum(row["server_queue_ns"] for row in slowest) / 20 / 1e6)
    assert shares["unattributed"] == pytest.approx(0.0, abs=0.01)
    assert p99["contradicted"] == 0


@pytest.mark.slow
def test_a_server_that_keeps_no_times_costs_a_sentence(
    tmp_path: Path, measure: Measure, capsys: pytest.CaptureFixture[str]
) -> None:
    with trtllm_server(most=0, queue_s=_queue) as server:
        measure(server, "--server_timings")
    assert "perf_metrics_max_requests" in capsys.readouterr().err
    assert {row["server_queue_ns"] for row in _rows(tmp_path)} == {None}


@pytest.mark.slow
@pytest.mark.parametrize(("options", "polls"), [(["--server_timings"], False), ([], True)], ids=["refused", "not asked for"])
def test_a_server_is_polled_only_where_it_can_be_and_is_asked_to(
    tmp_path: Path, measure: Measure, capsys: pytest.CaptureFixture[str], options: Sequence[str], polls: bool
) -> None:
    with trtllm_server(most=1000, queue_s=_queue, refuses_polls=not polls) as server:
        measure(server, *options)
    said = capsys.readouterr().err
    assert ("No times of requests at" in said) is bool(options)
    assert server.polls == []
    assert RunFolder(tmp_path / "r").read_document()[0]["polled_times"] is None
    assert not (tmp_path / "r" / "perf_metrics.json").exists()
