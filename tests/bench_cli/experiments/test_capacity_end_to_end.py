"""Searches for capacity against servers with one queue: stopped by Ctrl-C, killed, and continued by their folder alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from bench_cli import run as bench
from bench_errors import ExitStatus
from bench_records.search import SearchFolder
from bench_records.settings import RankingFolder
from reports.capacity.result import Ended
from simulator.server import Admission, Server, StepLaw
from tests.bench_cli.test_simulate_run import model_file
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
            out, err = stopped.communicate(timeout=120)
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
            [*resume, "--budget", f"{spent_s + 12:.0f}s"], capture_output=True, text=True, check=False, timeout=200
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


@pytest.mark.slow
def test_a_search_with_a_model_starts_at_its_capacity_and_goes_on_with_its_copy(tmp_path: Path) -> None:
    """The model serves as the server does: one at a time, 10 ms each, so that 100 requests/s are too many."""
    folder, model = SearchFolder(tmp_path / "search"), tmp_path / "model.json"
    model_file(model, server=Server(StepLaw(step=10e-3), Admission(max_sequences=1)), draws=(), deployed=None)
    limits = ["--model", str(model), "--slo", "p90_ttft<=60ms", "--budget", "90s"]
    limits += ["--precision", "40%", "--confidence", "60%"]
    verb = ["token_norm_dist", "-i", "openai", "--isl", "4", "--osl", "1", "--warmup_requests", "1", "--telemetry_period", "0"]
    with queue_server(100.0) as server:
        command = [*_BENCH, "--experiment_dir", str(folder.path), *limits, *verb, "--url", server.address]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
        assert ended.returncode in (ExitStatus.VALID, ExitStatus.FAILED, ExitStatus.INVALID), ended.stderr
        model.unlink()
        spent_s = folder.read().spent_s
        again = [*_BENCH, "--experiment_dir", str(folder.path), "--budget", f"{spent_s + 12:.0f}s"]
        subprocess.run(again, capture_output=True, text=True, check=False, timeout=200)
    search = folder.read()
    assert "The model is simulated, to know where to start." in ended.stderr
    assert search.first_load is not None
    assert 60.0 < search.first_load < 100.0
    document = json.loads((folder.path / "capacity.json").read_text())
    if not any(probe["valid"] for probe in document["probes"]):
        pytest.skip("the machine was too busy for a valid probe")
    assert search.controls
    assert set(search.controls) <= {probe.folder for probe in search.probes}
    assert any(each["control"] is not None for probe in document["probes"] for each in probe["beyond"])


@pytest.mark.slow
def test_settings_are_searched_in_turns_stopped_and_ranked(tmp_path: Path) -> None:
    folder = RankingFolder(tmp_path / "ranking")
    resume = [*_BENCH, "--experiment_dir", str(folder.path)]
    limits = ["--slo", "p99_ttft<=150ms", "--precision", "40%", "--confidence", "60%", "--first_load", "20", "--budget", "5m"]
    verb = ["token_norm_dist", "-i", "openai", "--isl", "4", "--osl", "2", "--warmup_requests", "1", "--telemetry_period", "0"]
    with queue_server(30.0) as slow, queue_server(200.0) as fast:
        command = [*resume, *limits, "--over", f"url={slow.address},{fast.address}", *verb]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as stopped:
            assert stopped.stderr is not None
            lines = []
            for line in stopped.stderr:
                lines.append(line)
                if sum(": Probe " in said for said in lines) == 3:
                    break
            stopped.send_signal(signal.SIGINT)
            out, err = stopped.communicate(timeout=120)
        assert stopped.returncode == ExitStatus.INTERRUPTED
        turns = [line.split(": ")[0] for line in lines if ": Probe " in line]
        assert turns[:2] == [f"url={server.address}" for server in (slow, fast)]
        assert f"2 probes are saved. To go on: bench capacity --experiment_dir {folder.path}" in err
        assert "the search was stopped" in " ".join(out.split())

        spent_s = max(folder.search_folder(setting).read().spent_s for setting in folder.read().settings)
        ended = subprocess.run(
            [*resume, "--budget", f"{2 * (spent_s + 12):.0f}s"], capture_output=True, text=True, check=False, timeout=200
        )
    assert ended.returncode in (ExitStatus.VALID, ExitStatus.FAILED, ExitStatus.INVALID)  # as the machine allows
    assert f"Ranking: {folder.path}" in ended.stdout
    document = json.loads((folder.path / "ranking.json").read_text())
    assert " ".join(ended.stdout.split()).startswith(document["answer"])
    assert sum(setting["probes"] for setting in document["settings"]) > 2
    assert all((folder.path / setting["folder"] / "capacity.html").exists() for setting in document["settings"])


def test_a_ranking_that_cannot_begin_leaves_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "ranking"
    with queue_server(100.0) as server:
        command = [
            *("capacity", "--experiment_dir", str(path), "--slo", "p99_ttft<=150ms", "--over", "max_num_tokens=512,1024"),
            *("token_norm_dist", "-i", "openai", "--url", server.address),
        ]
        assert bench(command) == ExitStatus.USAGE
    assert "--max_num_tokens configures the embedded pipeline" in " ".join(capsys.readouterr().err.split())
    assert not path.exists()
