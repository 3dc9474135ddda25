"""Where a measuring verb looks for the target's own numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench_errors import ExitStatus
from harness.cli import run
from harness.cli.measurement.connect import ServedModel
from harness.cli.measurement.http_options import Header
from harness.cli.measurement.measure import measure  # noqa: F401  binds the real stderr, not the capture of one test
from harness.cli.measurement.observe import metrics_source
from harness.cli.measurement.options import MeasureOptions
from harness.cli.measurement.target import Target
from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.model import TritonModel
from harness.records.run_folder import RunFolder
from serving.launch.addresses import ServerAddresses
from tests.harness.metrics_server import metrics_server
from tests.harness.scripted_server import ScriptedServer


class _Deployed:
    addresses = ServerAddresses("127.0.0.1", 1, 2, 3)


def _options(**values: Any) -> MeasureOptions:
    nothing: dict[str, Any] = dict.fromkeys(MeasureOptions.__dataclass_fields__)
    return MeasureOptions(**nothing | {"protocol": "grpc", "telemetry_period": 1.0, "header": ()} | values)


def _target(address: str = "host:8001", server: Any = None) -> Target:
    model = TritonModel("core", True, frozenset(), frozenset(), ())
    client = TritonGrpcClient(address, model, True)
    return Target(address, client, ServedModel("core", False, True), None, None, None, server)


def _url(options: MeasureOptions, target: Target) -> str | None:
    source = metrics_source(options, target)
    return None if source is None else str(source.url)


def test_embedded_pipeline_tells_where_its_metrics_are() -> None:
    assert _url(_options(), _target(server=_Deployed())) == "http://127.0.0.1:3/metrics"


def test_a_running_server_is_asked_on_tritons_port_of_its_host() -> None:
    source = metrics_source(_options(), _target("host:9001"))
    assert source is not None
    assert str(source.url) == "http://host:8002/metrics"
    assert source.model == "core"  # a guess: another server may be there
    assert _url(_options(), _target("[::1]:9001")) == "http://[::1]:8002/metrics"


def test_a_server_of_the_openai_protocol_is_asked_where_it_serves() -> None:
    assert _url(_options(protocol="openai"), _target("http://host:8000")) == "http://host:8000/metrics"
    assert _url(_options(protocol="openai"), _target("https://host/v1")) == "https://host:443/metrics"


def test_headers_go_to_the_measured_server_and_no_other() -> None:
    header = (Header("Authorization", "Bearer secret"),)
    own = metrics_source(_options(protocol="openai", header=header), _target("http://host:8000"))
    other = metrics_source(_options(protocol="openai", header=header, metrics_url="elsewhere:1"), _target("http://host:8000"))
    named = metrics_source(_options(protocol="http", header=header, metrics_url="host:8000/m"), _target("http://host:8000"))
    guessed = metrics_source(_options(protocol="http", header=header), _target("http://host:8000"))
    assert own is not None
    assert other is not None
    assert guessed is not None
    assert named is not None
    assert named.headers == own.headers
    assert (own.headers, other.headers, guessed.headers) == ((("Authorization", "Bearer secret"),), (), ())


def test_the_option_says_otherwise() -> None:
    assert _url(_options(metrics_url="other:1/prometheus/metrics"), _target()) == "http://other:1/prometheus/metrics"
    assert _url(_options(metrics_url="other:1"), _target(server=_Deployed())) == "http://other:1/metrics"


def test_a_period_of_0_asks_nobody() -> None:
    assert metrics_source(_options(telemetry_period=0.0), _target(server=_Deployed())) is None
    assert metrics_source(_options(telemetry_period=0.0, metrics_url="host:1"), _target()) is None


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
    assert "no statistics of its models" in error
    manifest, summary = RunFolder(tmp_path).read_manifest(), json.loads((tmp_path / "summary.json").read_text())
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
    assert folder.read_manifest()["telemetry"]["scrapes"] == len(metrics.gets) - 4  # to settle, three readings are compared
    level = json.loads((tmp_path / "summary.json").read_text())["server"]["scheduled_requests"]
    assert level == {"mean": 2.0, "max": 2.0, "readings": len(within)}


def test_the_share_of_repeated_prompts_is_in_the_manifest(server: ScriptedServer, tmp_path: Path) -> None:
    _measure(server, tmp_path, "--input_mean", "64", "--vocab_size", "1")
    found = RunFolder(tmp_path).read_manifest()["workload"]["repeated_prefix"]
    assert found == {"share": 19 / 20, "unit": "tokens", "block_tokens": 32, "whole_prompts": 19}
    finding = next(
        f for f in json.loads((tmp_path / "summary.json").read_text())["findings"] if f["code"] == "prefix_cache_warmed"
    )
    assert (finding["severity"], finding["evidence"]["repeated_share"]) == ("note", 19 / 20)
