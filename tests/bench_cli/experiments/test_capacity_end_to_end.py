"""A search for capacity against a server with one queue: stopped by Ctrl-C, killed, and continued by its folder alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from bench_errors import ExitStatus
from bench_records.search import SearchFolder
from reports.capacity.result import Ended
from tests.harness.queue_server import queue_server

_BENCH = (sys.executable, "-m", "bench_cli", "capacity")


def _after_probes(count: int, said: IO[str]) -> list[str]:
    """The lines up to the announcement of a probe after ``count`` are announced."""
    lines = []
    for line in said:
        lines.append(line)
        if sum(line.startswith("Probe ") for line in lines) > count:
            return lines
    raise AssertionError("".join(lines))


def test_a_search_that_is_stopped_and_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "search"
    folder = SearchFolder(path)
    resume = [*_BENCH, "--experiment_dir", str(path)]
    limits = ["--slo", "p99_ttft<=150ms", "--precision", "40%", "--confidence", "60%", "--first_load", "30", "--budget", "5m"]
    verb = ["token_norm_dist", "-i", "openai", "--isl", "4", "--osl", "2", "--warmup_requests", "1", "--telemetry_period", "0"]
    with queue_server(100.0) as server:
        command = [*resume, *limits, *verb, "--url", server.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stopped:
            assert stopped.stderr is not None
            _after_probes(1, stopped.stderr)
            stopped.send_signal(signal.SIGINT)
            out, err = stopped.communicate(timeout=60)
        assert stopped.returncode == ExitStatus.INTERRUPTED
        assert f"1 probe is saved. To go on: bench capacity --experiment_dir {path}" in err
        assert "the search was stopped" in " ".join(out.split())
        first = folder.read().probes[0]
        assert folder.is_recorded(first)
        made_ns = folder.run_folder(first).requests.stat().st_mtime_ns

        with subprocess.Popen(resume, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as killed:
            assert killed.stderr is not None
            assert _after_probes(0, killed.stderr)[-1].startswith("Probe 2: ")
            killed.kill()
        planned = folder.read().probes
        assert len(planned) == 2

        spent_s = folder.read().spent_s
        ended = subprocess.run(
            [*resume, "--budget", f"{spent_s + 12:.0f}s"], capture_output=True, text=True, check=False, timeout=120
        )
    assert ended.returncode in (ExitStatus.VALID, ExitStatus.FAILED, ExitStatus.INVALID)  # as the machine allows
    search = folder.read()
    assert search.probes[: len(planned)] == planned
    assert search.ended in {Ended.PRECISE, Ended.BUDGET, Ended.NOT_VALID}
    assert folder.is_recorded(planned[1])
    assert folder.run_folder(first).requests.stat().st_mtime_ns == made_ns
    assert f"Capacity: {path}" in ended.stdout
    document = json.loads((path / "capacity.json").read_text())
    assert len(document["probes"]) == len(search.probes)
    assert (path / "capacity.html").exists()
