"""A whole run through a router that says how long its upstream took."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench_cli import run
from bench_records.run_folder import RunFolder
from tests.harness.chat_server import WHOLE, Event, chat_server

_TOKENIZER = str(Path(__file__).parents[3] / "serving" / "demo_engine")
_LENGTHS = ["--input_mean", "4", "--input_stdev", "0", "--output_mean", "5", "--output_stdev", "0"]


def test_the_routers_time_is_its_own_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It keeps each request for 40 ms, of which its upstream took 10."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def answer(number: int) -> Sequence[Event]:
        time.sleep(0.04)
        return WHOLE

    with chat_server(answer, headers={"x-envoy-upstream-service-time": "10"}) as chat:
        line = ["token_norm_dist", "-i", "openai", "--url", f"127.0.0.1:{chat.port}", *_LENGTHS, "--tokenizer_dir", _TOKENIZER]
        line += ["--num_requests", "30", "--concurrency", "1", "--workers", "1", "--run_dir", str(tmp_path / "r")]
        run(line)
    rows = RunFolder(tmp_path / "r").read_requests().to_pylist()
    assert all(row["router_ns"] >= 29_500_000 for row in rows)
    assert all(row["router_ns"] <= row["token_times_ns"][0] - row["sent_ns"] for row in rows)
    capsys.readouterr()
    run(["why", str(tmp_path / "r"), "--metric", "ttft", "--format", "json"])
    [latency] = json.loads(capsys.readouterr().out)["runs"][0]["latencies"]
    parts = {phase["phase"]: phase["mean_ms"]["value"] for phase in latency["percentiles"][0]["phases"]}
    assert parts["router"] >= 29.5
    assert parts["send"] + parts["first_byte"] >= 10.0
