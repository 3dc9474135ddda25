"""The time-outs of connections, first tokens, gaps and whole requests, on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench_cli import run
from bench_cli.measurement.measure import measure  # noqa: F401  binds the real stderr, not the capture of one test
from bench_errors import ExitStatus
from tests.harness.scripted_server import ScriptedServer

_WORKLOAD = ["--isl", "4", "--osl", "5", "--vocab_size", "100", "--num_requests", "6", "--request_rate", "60"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--first_token_timeout", "600"], "--first_token_timeout 600: no request lasts so long, for --request_timeout 600"),
        (["--token_gap_timeout", "3", "-t", "2"], "--token_gap_timeout 3: no request lasts so long, for --request_timeout 2"),
        (["--connection_timeout", "3", "-t", "2"], "--connection_timeout 3: no request lasts so long"),
        (["--first_token_timeout", "0"], "0"),
        (["--no_streaming", "--token_gap_timeout", "3"], "--token_gap_timeout: the answers are not streamed"),
    ],
)
def test_a_time_out_that_no_answer_reaches_is_a_usage_error(
    options: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["token_norm_dist", "--url", "h:1", "--run_dir", str(tmp_path / "run"), *_WORKLOAD, *options]
    assert run(command) == ExitStatus.USAGE
    assert problem in capsys.readouterr().err


def test_a_model_that_cannot_stream_has_no_time_outs_of_tokens(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--url", server.address, "--model", "unary", "--run_dir", str(tmp_path / "run")]
    assert run(["token_norm_dist", *target, *_WORKLOAD, "--first_token_timeout", "1"]) == ExitStatus.USAGE
    assert "the answers are not streamed" in capsys.readouterr().err


def test_the_time_out_that_ended_a_request_is_the_kind_of_its_failure(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--url", server.address, "--model", "mute", "--run_dir", str(tmp_path), "--warmup_requests", "0"]
    status = run(["token_norm_dist", *target, *_WORKLOAD, "--first_token_timeout", "0.3", "--telemetry_period", "0"])
    assert status == ExitStatus.FAILED
    assert "first_token_timeout 6" in capsys.readouterr().out
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["requests"]["by_kind"] == {"first_token_timeout": 6}
    (finding,) = [finding for finding in summary["findings"] if finding["code"] == "latencies_cut_off"]
    assert finding["evidence"]["by_kind"] == {"first_token_timeout": 6}
