"""A target that freezes for two seconds: latency from the schedule shows it, latency from the send hides it below a ceiling."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from bench_cli import run
from harness.calibration.null_server.pacing import Pace
from harness.calibration.null_server.server import NullServerOptions, null_server

_FREEZE_S = 2.0
_NORMAL = ["--input_mean", "4", "--input_stdev", "0", "--output_mean", "3", "--output_stdev", "0", "--vocab_size", "100"]


def _freeze(pid: int, journal: Path, after_s: float) -> None:
    """Stop the process for a while, ``after_s`` after the run's journal appears."""
    deadline = time.monotonic() + 120
    while not journal.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(after_s)
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(_FREEZE_S)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_freeze_shows_from_the_schedule_and_not_from_the_send(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    load = [
        "--request_rate",
        "100",
        "--time_delay_dist",
        "constant",
        "--duration",
        "6",
        "--max_concurrency",
        "4",
        "--workers",
        "1",
    ]
    with null_server(NullServerOptions(Pace(5_000_000, 1_000_000))) as server:
        freezer = threading.Thread(target=_freeze, args=(server.pid, folder / "journal-0.bin", 2.0))
        freezer.start()
        run(["token_norm_dist", "--url", server.grpc, "--run_dir", str(folder), *_NORMAL, *load])
        freezer.join()
    summary: Any = json.loads((folder / "summary.json").read_text())
    assert summary["requests"]["done"] == summary["requests"]["scheduled"] == 600
    # 200 requests arrived meanwhile: 4 were in flight and waited for the server, the others for --max_concurrency.
    ttft_ms = summary["metrics"]["ttft_ms"]
    assert 1_500 < ttft_ms["scheduled"]["p99"] < 3_500
    assert ttft_ms["sent"]["p99"] < 700
    assert ttft_ms["sent"]["max"] > 1_500
    findings = {finding["code"]: finding for finding in summary["findings"]}
    evidence = findings["waited_at_ceiling"]["evidence"]
    assert evidence["waited"] >= 190
    assert evidence["p99_wait_ms"] > 1_400
    assert (evidence["p99_from_schedule_ms"], evidence["p99_from_send_ms"]) == (
        ttft_ms["scheduled"]["p99"],
        ttft_ms["sent"]["p99"],
    )
    slip = findings.get("schedule_slip")  # a busy machine may make the client late, but not by the freeze
    assert slip is None or slip["evidence"]["p99_slip_ms"] < 700
    assert "achieved_below_offered" not in findings
    page = (folder / "report.html").read_text()
    assert "waited in the client because 4 were in flight" in page
