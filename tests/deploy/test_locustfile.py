"""The example for Locust as Locust runs it, against the null server."""

from __future__ import annotations

import csv
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.calibration.null_server.pacing import Pace
from harness.calibration.null_server.server import NullServerOptions, null_server

pytestmark = pytest.mark.skipif(importlib.util.find_spec("locust") is None, reason="the extra [distributed] is not installed")

LOCUSTFILE = Path(__file__).parents[2] / "deploy" / "locust" / "locustfile.py"
_FIRST_TOKEN_MS, _GAP_MS = 20.0, 5.0


def _run_locust(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with null_server(NullServerOptions(Pace(int(_FIRST_TOKEN_MS * 1e6), int(_GAP_MS * 1e6)))) as addresses:
        yield f"http://{addresses.http}"


@pytest.mark.parametrize("protocol", ["http", "openai"])
def test_each_request_counts_its_times(host: str, tmp_path: Path, protocol: str) -> None:
    ended = _run_locust(
        *("-u", "2", "-r", "2", "-t", "2s", "--output_tokens", "4", "--csv", str(tmp_path / "run")),
        *("--host", host, "--protocol", protocol),
    )
    assert ended.returncode == 0, ended.stderr
    lines = {row["Type"]: row for row in csv.DictReader((tmp_path / "run_stats.csv").read_text().splitlines())}
    assert lines["E2E"]["Failure Count"] == "0"
    requests = int(lines["E2E"]["Request Count"])
    assert int(lines["TTFT"]["Request Count"]) == requests > 0
    assert _FIRST_TOKEN_MS <= float(lines["TTFT"]["Min Response Time"]) < _FIRST_TOKEN_MS + 3 * _GAP_MS  # before the last one


def test_a_wrong_host_is_a_sentence_and_not_a_traceback() -> None:
    ended = _run_locust("-t", "5s", "--host", "http://127.0.0.1:9")
    assert ended.returncode == 1
    assert "--host http://127.0.0.1:9: no server answers there" in ended.stderr
    assert "Traceback" not in ended.stderr
