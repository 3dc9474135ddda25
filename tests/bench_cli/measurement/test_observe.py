"""Where a measuring verb looks for the target's own numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest

from bench_cli import run
from bench_cli.measurement.measure import measure  # noqa: F401  binds the real stderr, not the capture of one test
from bench_cli.measurement.observe import metrics_sources
from bench_cli.measurement.target import Target
from bench_cli.measurement.telemetry_options import TelemetryOptions
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from harness.clients.transport.http_get import Headers
from harness.clients.transport.url import Origin, parse_url
from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.model import TritonModel
from harness.observation.metrics_pages import MetricsSource
from harness.protocols.listed import PROTOCOLS
from harness.protocols.protocol import MeasuredModel
from harness.protocols.triton_grpc import TritonGrpc
from serving.launch.addresses import ServerAddresses
from tests.harness.metrics_server import metrics_server
from tests.harness.scripted_server import ScriptedServer

_DEPLOYED = ServerAddresses("127.0.0.1", 1, 2, 3)


def _target(origin: Origin, protocol: str = "grpc", headers: Headers = (), embedded: ServerAddresses | None = None) -> Target:
    model = TritonModel("core", True, frozenset(), frozenset(), ())
    client = TritonGrpcClient(origin.address, model, True)
    return Target(origin, PROTOCOLS[protocol].load(), headers, client, MeasuredModel("core", False, True), embedded=embedded)


def _grpc_target(url: str = "host:8001", embedded: ServerAddresses | None = None) -> Target:
    return _target(TritonGrpc().address(url, None), embedded=embedded)


def _http_target(protocol: str, url: str, headers: Headers = ()) -> Target:
    return _target(parse_url(url, "").origin, protocol, headers)


def _source(target: Target, *metrics_urls: str, period_s: float = 1.0) -> MetricsSource | None:
    (source,) = metrics_sources(TelemetryOptions(metrics_urls, period_s), target) or (None,)
    return source


def _url(target: Target, *metrics_urls: str, period_s: float = 1.0) -> str | None:
    source = _source(target, *metrics_urls, period_s=period_s)
    return None if source is None else str(source.url)


def test_fewer_pages_than_servers_are_refused() -> None:
    one = _grpc_target("host:8001")
    target = replace(one, others=(_grpc_target("host:9001"),))
    with pytest.raises(click.UsageError, match="--metrics_url: 1 for 2 --url"):
        metrics_sources(TelemetryOptions(("host:8002",), 1.0), target)


def test_the_embedded_pipeline_has_metrics_at_its_own_port() -> None:
    assert _url(_grpc_target(embedded=_DEPLOYED)) == "http://127.0.0.1:3/metrics"


def test_a_running_server_has_metrics_at_tritons_port_of_its_host() -> None:
    source = _source(_grpc_target("host:9001"))
    assert source is not None
    assert str(source.url) == "http://host:8002/metrics"
    assert source.model == "core"  # a guess: another server may be there
    assert _url(_grpc_target("[::1]:9001")) == "http://[::1]:8002/metrics"


def test_a_server_of_the_openai_protocol_has_metrics_at_its_own_port() -> None:
    assert _url(_http_target("openai", "http://host:8000")) == "http://host:8000/metrics"
    assert _url(_http_target("openai", "https://host/v1")) == "https://host:443/metrics"
    source = _source(_http_target("openai", "http://host:8000", (("X-Team", "a"),)))
    assert source is not None
    assert source.otherwise is not None  # trtllm-serve's, whose /metrics is JSON
    assert (str(source.otherwise), source.otherwise.headers) == ("http://host:8000/prometheus/metrics", (("X-Team", "a"),))
    assert source.otherwise.otherwise is None


def test_headers_are_sent_to_the_measured_server_alone() -> None:
    headers = (("Authorization", "Bearer secret"),)
    openai, http = (_http_target(protocol, "http://host:8000", headers) for protocol in ("openai", "http"))
    own = _source(openai)
    other = _source(openai, "elsewhere:1")
    named = _source(http, "host:8000/m")
    guessed = _source(http)
    assert own is not None
    assert other is not None
    assert guessed is not None
    assert named is not None
    assert named.headers == own.headers
    assert (own.headers, other.headers, guessed.headers) == ((("Authorization", "Bearer secret"),), (), ())


def test_metrics_url_replaces_the_usual_place() -> None:
    assert _url(_grpc_target(), "other:1/prometheus/metrics") == "http://other:1/prometheus/metrics"
    assert _url(_grpc_target(embedded=_DEPLOYED), "other:1") == "http://other:1/metrics"


def test_a_period_of_0_reads_no_metrics() -> None:
    assert _url(_grpc_target(embedded=_DEPLOYED), period_s=0.0) is None
    assert _url(_grpc_target(), "host:1", period_s=0.0) is None


_WORKLOAD = ["--input_mean", "4", "--input_stdev", "0", "--output_mean", "5", "--output_stdev", "0", "--vocab_size", "100"]


def _measure(server: ScriptedServer, folder: Path, *options: str) -> int:
    target = ["--url", server.address, "--model", "scripted", "--run_dir", str(folder), "--num_requests", "20"]
    return run(["token_norm_dist", *target, *_WORKLOAD, "--request_rate", "40", *options])


def test_a_wrong_metrics_url_is_a_usage_error_before_anything_is_sent(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _measure(server, tmp_path, "--metrics_url", "ftp://x") == ExitStatus.USAGE
    assert "--metrics_url" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_server_without_metrics_and_statistics_is_measured_all_the_same(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with metrics_server(lambda number: (404, b"")) as nothing:
        status = _measure(server, tmp_path, "--metrics_url", f"127.0.0.1:{nothing.port}")
    error = capsys.readouterr().err
    assert status in (ExitStatus.VALID, ExitStatus.INVALID)
    assert f"No metrics at http://127.0.0.1:{nothing.port}/metrics" in error
    assert "no model statistics" in error
    manifest, summary = RunFolder(tmp_path).read_document()[0], json.loads((tmp_path / "summary.json").read_text())
    assert (manifest["telemetry"], manifest["server_statistics"], summary["server"]) == (None, None, None)
    assert manifest["clock"]["after"] is not None
    assert summary["client"]["workers"][0]["worker"] == 0
    assert not (tmp_path / "server.parquet").exists()


def test_metrics_are_sampled_onto_the_runs_clock(server: ScriptedServer, tmp_path: Path) -> None:
    with metrics_server(lambda number: (200, b"vllm:num_requests_running 2\n")) as metrics:
        _measure(server, tmp_path, "--metrics_url", f"127.0.0.1:{metrics.port}", "--telemetry_period", "0.05")
    folder = RunFolder(tmp_path)
    table, requests = folder.read_server(), folder.read_requests()
    assert table is not None
    last_ns = max(requests["done_ns"].to_pylist())
    within = [time_ns for time_ns in table["time_ns"].to_pylist() if 0 <= time_ns <= last_ns]
    assert len(within) >= 2
    # To settle, three readings are compared. A busy machine may end the last reading, which then is none.
    assert len(metrics.gets) - 4 - folder.read_document()[0]["telemetry"]["scrapes"] in (0, 1)
    level = json.loads((tmp_path / "summary.json").read_text())["server"]["scheduled_requests"]
    assert level == {"mean": 2.0, "max": 2.0, "readings": len(within)}


def test_the_share_of_repeated_prompts_is_in_the_manifest(server: ScriptedServer, tmp_path: Path) -> None:
    _measure(server, tmp_path, "--input_mean", "64", "--vocab_size", "1")
    found = RunFolder(tmp_path).read_document()[0]["workload"]["repeated_prefix"]
    assert found == {
        "share": 19 / 20, "unit": "tokens", "block_tokens": 32, "block_share": 19 / 20, "most_share": 19 / 20,
        "whole_prompts": 19,
    }  # fmt: skip
    finding = next(
        f for f in json.loads((tmp_path / "summary.json").read_text())["findings"] if f["code"] == "prefix_cache_warmed"
    )
    assert (finding["severity"], finding["evidence"]["repeated_share"]) == ("note", 19 / 20)
