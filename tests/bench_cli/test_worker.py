"""``bench worker`` and the options of distributed runs; ``test_repeated_run.py`` has a master that is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench_cli import run
from bench_cli import worker as verb
from bench_cli.measurement import distribution
from bench_cli.worker import worker_command
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from harness.distribution import agent
from harness.distribution.admission import NO_TOKEN
from tests.free_port import closed_port
from tests.harness.scripted_server import ScriptedServer
from tests.processes import is_at_work, words_of

# Not imported: it would replace the sockets and threads of this process.
pytestmark = pytest.mark.skipif(find_spec("locust") is None, reason="needs locust")

_OPEN = ["--url", "h:1", "--distributed", "--expect_workers", "2", "--master_bind_host", "10.0.0.1"]
_NORMAL = [
    "token_norm_dist",
    "--isl",
    "4",
    "--osl",
    "5",
    "--vocab_size",
    "100",
    "--model",
    "scripted",
    "--warmup_requests",
    "1",
]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--distributed"], "--distributed needs --expect_workers"),
        (["--expect_workers", "2"], "--expect_workers goes with --distributed"),
        (["--web_ui"], "--web_ui goes with --distributed"),
        (["--master_bind_port", "9"], "--master_bind_port goes with --distributed"),
        (["--accept_any_worker"], "--accept_any_worker goes with --distributed"),
        (["--worker_token_file", "t"], "--worker_token_file goes with --distributed"),
        (["--expect_workers_max_wait", "5"], "--expect_workers_max_wait goes with --distributed"),
        (["--master_bind_host", "127.0.0.1"], "--master_bind_host goes with --distributed"),
        (["--web_port", "9000"], "--web_port goes with --distributed"),
        (["--locust_processes", "2", "--web_port", "9000"], "--web_port sets the address of the web page: give --web_ui"),
        (["--locust_processes", "2", "--web_host", "127.0.0.1"], "--web_host sets the address of the web page: give --web_ui"),
        (["--locust_processes", "2", "--workers", "2"], "--workers is for the processes of one host"),
        (["--locust_processes", "2", "--pin_workers"], "--pin_workers is for the processes of one host"),
        (["--distributed", "--expect_workers", "1", "--locust_processes", "2"], "--locust_processes 2 is more than"),
        (["--distributed", "--expect_workers", "2", "--master_bind_host", "10.0.0.1"], "--distributed needs --url"),
        (_OPEN, "--master_bind_host 10.0.0.1: any program that reaches this address could join"),
        ([*_OPEN, "--worker_token_file", os.devnull], "a token has at least 16 printable"),
        (["--locust_processes", "4", "--concurrency", "2"], "4 workers cannot share --concurrency 2"),
    ],
)
def test_contradictions_are_refused_before_anything_is_deployed(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*_NORMAL, *arguments]) == ExitStatus.USAGE
    assert error in capsys.readouterr().err


@pytest.mark.parametrize("count", [1, 2])
def test_workers_that_wait_for_a_master_end_with_a_signal_and_leave_nothing_behind(tmp_path: Path, count: int) -> None:
    command = [*worker_command("127.0.0.1", closed_port(), tmp_path / "kept"), "--locust_processes", str(count)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline_s = time.monotonic() + 120
    while len(_links(process)) < count:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    links = _links(process)
    process.terminate()
    assert process.wait(100) == ExitStatus.INTERRUPTED
    psutil.wait_procs(links, timeout=120)
    assert not [link for link in links if is_at_work(link)]


@pytest.fixture
def no_death() -> Iterator[None]:
    """A SIGTERM that nobody handles does not end the tests."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("no_death")
def test_a_signal_while_the_connection_is_started_ends_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*arguments: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal had no effect")

    monkeypatch.setattr(agent, "LinkProcess", start)
    assert run(["worker", "--work_dir", str(tmp_path / "kept")]) == ExitStatus.INTERRUPTED
    assert capsys.readouterr().err.split() == ["interrupted"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("no_death")
def test_a_signal_while_workers_are_started_ends_all(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(command, **options))
        if len(started) == 1:
            os.kill(os.getpid(), number)
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    command = [sys.executable, "-c", "import time; time.sleep(100)"]
    assert verb._run_several([command] * 2, NO_TOKEN) == 128 + signal.SIGTERM
    assert [process.returncode for process in started] == [-signal.SIGTERM] * 2


def test_a_worker_that_is_killed_is_no_success() -> None:
    commands = [[sys.executable, "-c", code] for code in ("", "import os; os.kill(os.getpid(), 9)")]
    assert verb._run_several(commands, NO_TOKEN) == 137


def _links(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The processes below it that run Locust."""
    below = psutil.Process(process.pid).children(recursive=True)
    return [child for child in below if "harness.distribution.locust_worker" in words_of(child)]


def test_a_distributed_run_sends_the_schedule_of_a_local_one(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*_NORMAL, "--url", server.address, "--num_requests", "24", "--request_rate", "20"]
    run([*options, "--run_dir", str(tmp_path / "local"), "--workers", "1"])
    before_s = sum(os.times()[:4])
    run([*options, "--run_dir", str(tmp_path / "distributed"), "--locust_processes", "2"])
    used_s = sum(os.times()[:4]) - before_s
    said = capsys.readouterr().err.rpartition("Worker 2 of 2")[2]
    assert said.count("Sending 24 requests, exponential arrivals at 20 requests/s, by 2 workers (over Locust") == 1
    local, distributed = (RunFolder(tmp_path / name).read_document()[0] for name in ("local", "distributed"))
    assert distributed["schedule"] == local["schedule"]
    assert [worker["host"] for worker in distributed["distribution"]["workers"]] == [os.uname().nodename] * 2
    assert local["distribution"] is None
    rows = [RunFolder(tmp_path / name).read_requests().to_pylist() for name in ("local", "distributed")]
    for local, other in zip(*rows, strict=True):
        same = ("index", "scheduled_ns", "outcome", "output_tokens", "requested_output_tokens")
        assert [local[key] for key in same] == [other[key] for key in same]
    assert {row["worker"] for row in rows[1]} == {0, 1}
    assert RunFolder(tmp_path / "distributed").read_client() is not None
    assert distributed["times"]["cpu_s"] > 0.9 * used_s  # with the workers' and Locust's processes, which have all ended


def test_a_page_whose_port_another_program_has_is_refused(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        options = [*_NORMAL, "--url", server.address, "--locust_processes", "1", "--web_ui", "--web_port", port]
        assert run([*options, "--run_dir", str(tmp_path / "run")]) == ExitStatus.FAILED
    err = capsys.readouterr().err
    assert f"--web_host 127.0.0.1 --web_port {port}: the page cannot be opened there (Address already in use)" in err
    assert "Live:" not in err


@pytest.mark.parametrize(
    ("code", "how"), [("raise SystemExit(3)", "with status 3"), ("import os; os.kill(os.getpid(), 9)", "by signal 9")]
)
def test_a_worker_here_that_ends_before_it_comes_ends_the_wait(
    server: ScriptedServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: str,
    how: str,
) -> None:
    monkeypatch.setattr(distribution, "worker_command", lambda *_: [sys.executable, "-c", code])
    options = [
        *_NORMAL,
        "--url",
        server.address,
        "--num_requests",
        "24",
        "--request_rate",
        "20",
        "--expect_workers_max_wait",
        "30",
    ]
    assert run([*options, "--run_dir", str(tmp_path / "run"), "--locust_processes", "2"]) == ExitStatus.FAILED
    err = capsys.readouterr().err
    assert f"--locust_processes 2: a worker on this host ended {how} before the run" in err
    assert "Sending" not in err
