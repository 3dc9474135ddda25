"""A disk that is full at any moment of a run: sending stops, recorded exchanges are kept, the message has the remedy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench_records.run_folder import RunFolder
from tests.faults import full_disk_script
from tests.faults.bench_program import BENCH, bench, check_whole, run_bench, token_norm_dist
from tests.harness.scripted_server import ScriptedServer, scripted_server

pytestmark = pytest.mark.slow

_NAMESPACE = ["unshare", "--map-root-user", "--mount"]


@pytest.fixture(scope="module", autouse=True)
def _own_mounts(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("mount")
    try:
        tried = subprocess.run(
            [*_NAMESPACE, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True, text=True
        )
    except FileNotFoundError:
        pytest.skip("unshare is not here, and a small disk needs a mount of its own")
    if tried.returncode:
        pytest.skip(f"no disk can be mounted here: {tried.stderr.strip()}")


def _measure(tmp_path: Path, server: ScriptedServer, size: str, again: str, *options: str, fill_after: int = 0) -> Any:
    """Measure into a disk of ``size``; then with room enough run ``bench AGAIN``. The folder comes to ``tmp_path / 'run'``."""
    disk = tmp_path / "disk"
    disk.mkdir()
    script = [
        sys.executable,
        full_disk_script.__file__,
        str(disk),
        size,
        str(tmp_path / "run"),
        str(fill_after),
        str(server.log),
    ]
    result = subprocess.run([*_NAMESPACE, *script, again, BENCH, *options], capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stdout
    return json.loads(result.stdout)


def test_disk_that_fills_with_the_journal_stops_the_run_which_is_then_recovered(tmp_path: Path) -> None:
    options = ["--request_rate", "100", "--workers", "2"]
    with scripted_server(tmp_path / "received") as server:
        ended = _measure(tmp_path, server, "160k", "recover", *token_norm_dist(server, "paced", 1_000, *options))
        counts = check_whole(tmp_path / "run", 1_000, server)
        sent = len(server.received())
    assert ended["first"]["status"] == 1
    message = ended["first"]["err"].splitlines()[-1]
    assert "No space left on device" in message
    assert f"make room, then run: bench recover {tmp_path / 'disk' / 'run'}" in message
    assert {"run.json", "schedule.bin", "journal-0.bin", "journal-1.bin"} <= set(ended["left"])
    assert "requests.parquet" not in ended["left"]
    assert not [name for name in ended["left"] if name.endswith(".tmp")]
    assert ended["second"]["status"] in (0, 3), ended["second"]
    assert set(counts) <= {"done", "lost", "not_sent"}
    assert counts["done"] >= 40
    assert sent < 700  # it stopped
    assert counts["done"] <= sent
    assert not (tmp_path / "run" / "report.tmp").exists()


def test_disk_without_room_for_the_records_keeps_the_journals(tmp_path: Path) -> None:
    with scripted_server(tmp_path / "received") as server:
        arguments = token_norm_dist(server, "held", 5, "--no_streaming", "--workers", "1", "--telemetry_period", "0")
        ended = _measure(tmp_path, server, "200k", "recover", *arguments, fill_after=5)
        assert check_whole(tmp_path / "run", 5, server) == {"done": 5}
    assert ended["first"]["status"] == 1
    assert "the run took place, but its records cannot be written" in ended["first"]["err"]
    assert {"journal-0.bin", "schedule.bin"} <= set(ended["left"])
    assert "Written down in 1 journal: 5 of 5 requests; lost: 0; not sent: 0." in ended["second"]["err"]


def test_journal_that_reaches_the_limit_of_a_files_size_stops_the_run_and_the_rest_is_recorded(tmp_path: Path) -> None:
    """Unlike a full disk, this leaves room for the records."""
    limited = ["prlimit", "--fsize=40000", BENCH]
    options = ["--request_rate", "100", "--workers", "2", "--request_timeout", "20"]
    with scripted_server(tmp_path / "received") as server:
        with bench(tmp_path / "run", *token_norm_dist(server, "paced", 1_000, *options), program=limited) as program:
            status, _, err = program.end()
        report = run_bench("report", "--full", str(tmp_path / "run"))
        counts = check_whole(tmp_path / "run", 1_000, server)
    assert (status, report.returncode) == (1, 3)
    assert "Sending stopped, because the client could not write its journal: [Errno 27] File too large" in err
    assert "Sending stopped because the client could not write its journal" in report.stdout
    assert set(counts) == {"done", "lost", "not_sent"}
    assert counts["done"] >= 40
    assert counts["not_sent"] > 300


def test_disk_without_room_for_the_schedule_sends_nothing(tmp_path: Path) -> None:
    with scripted_server(tmp_path / "received") as server:
        ended = _measure(tmp_path, server, "16k", "recover", *token_norm_dist(server, "scripted", 5_000))
        assert server.received() == []
    assert ended["first"]["status"] == 1
    assert "cannot be written to (No space left on device); nothing was sent" in ended["first"]["err"]
    assert ended["left"] == []
    assert "is not a run folder" in ended["second"]["err"]


def test_disk_without_room_for_the_report_has_the_run_recorded(tmp_path: Path) -> None:
    with scripted_server(tmp_path / "received") as server:
        ended = _measure(tmp_path, server, "250k", "report", *token_norm_dist(server, "scripted", 30, "--workers", "1"))
        assert check_whole(tmp_path / "run", 30, server) == {"done": 30}
    assert ended["first"]["status"] == 1
    message = ended["first"]["err"].splitlines()[-1]
    assert "the run is recorded, but its report cannot be written" in message
    assert f"bench report {tmp_path / 'disk' / 'run'}" in message
    assert "Request throughput" in ended["first"]["out"]  # the answer comes all the same
    assert ended["second"]["status"] in (0, 3)
    assert RunFolder(tmp_path / "run").html.exists()
