"""Signs of a lost start: in invented snapshots and logs, in real processes, and in scripts in place of ``tritonserver``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serving.errors import LaunchError
from serving.launch.addresses import choose_addresses
from serving.launch.background import start, stop
from serving.launch.options import Supervision
from serving.launch.plan import LaunchPlan
from serving.launch.run import running
from serving.launch.start_watch import Snapshot, StartWatch, children, take_snapshot
from serving.launch.tritonserver import TritonServer, rank_command
from serving.proxy.settings import PROCESS_NAME
from tests.serving.launch.conftest import make_program

_IDLE = Snapshot({1: 100, 2: 50})


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_text("of an earlier server: lock_exception\n")
    return path


@pytest.fixture
def watch(log: Path) -> StartWatch:
    watch = StartWatch(log, log.stat().st_size, now_s=0.0, stall_timeout_s=20.0)
    assert watch.lost(_IDLE, 0.0) is None
    return watch


def _append(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def test_start_without_progress_is_lost_after_the_time(watch: StartWatch) -> None:
    assert watch.lost(_IDLE, 19.9) is None
    assert str(watch.lost(_IDLE, 20.0)).startswith("no progress for 20 s")


@pytest.mark.parametrize(
    "busy",
    [
        Snapshot({1: 100, 2: 150}),  # a second of CPU
        Snapshot({1: 100, 2: 50, 3: 0}),  # a new process
        Snapshot({1: 100}),  # an ended one
        Snapshot({1: 100, 2: 50}, read_bytes=2 << 20),
        Snapshot({1: 100, 2: 51}, demand_ns={2: 10**10}),  # a process that waits for a core
    ],
)
def test_work_of_the_processes_is_progress(watch: StartWatch, busy: Snapshot) -> None:
    assert watch.lost(busy, 19.0) is None
    assert watch.lost(busy, 38.9) is None
    assert watch.lost(busy, 39.0) is not None


def test_idle_processes_that_wake_up_are_no_progress(watch: StartWatch) -> None:
    for second in range(1, 20):
        assert watch.lost(Snapshot({1: 100 + second, 2: 50}), float(second)) is None
    assert watch.lost(Snapshot({1: 120, 2: 50}), 20.0) is not None


def test_line_in_the_log_is_progress(watch: StartWatch, log: Path) -> None:
    _append(log, "a line\n")
    assert watch.lost(_IDLE, 19.0) is None
    assert watch.lost(_IDLE, 38.9) is None


@pytest.mark.parametrize("line", ["  what():  boost::interprocess::lock_exception\n", "Stub process 'a_0_0' is not healthy.\n"])
def test_sign_in_the_log_is_seen_at_once_and_when_it_is_written_in_parts(watch: StartWatch, log: Path, line: str) -> None:
    _append(log, line[:-7])
    first = watch.lost(_IDLE, 1.0)
    _append(log, line[-7:])
    assert first is None
    assert watch.lost(_IDLE, 1.5) is not None


def test_dead_stub_is_lost_a_second_later(watch: StartWatch) -> None:
    dead = replace(_IDLE, dead_stubs=frozenset({2}))
    assert watch.lost(dead, 1.0) is None
    assert watch.lost(dead, 2.0) == "a model's process ended"


def test_thread_that_awaits_a_process_is_lost_after_seconds_in_one_wait(watch: StartWatch) -> None:
    assert watch.lost(replace(_IDLE, awaiting=frozenset({7})), 1.0) is None
    assert watch.lost(replace(_IDLE, awaiting=frozenset({8})), 5.5) is None
    assert watch.lost(replace(_IDLE, awaiting=frozenset({8})), 11.4) is None
    assert "gave a model's process up" in str(watch.lost(replace(_IDLE, awaiting=frozenset({8})), 11.5))


def test_models_that_did_not_load_are_known_from_the_log(watch: StartWatch, log: Path) -> None:
    _append(log, '"loading: preprocessing:1"\n"loading: tensorrt_llm:1"\n"loading: bls:1"\n')
    _append(log, "\"successfully loaded 'preprocessing'\"\n\"failed to load 'bls' version 1: …\"\n")
    watch.lost(_IDLE, 1.0)
    assert watch.unloaded == ["tensorrt_llm"]


# ---- real processes

_SERVER_WITH_LOST_STUBS = """
import os, subprocess, sys, threading, time
sum(range(5_000_000))  # some ticks of CPU time, of 10 ms each
dead = subprocess.Popen([sys.argv[1]])
lives = subprocess.Popen(["sleep", "60"])
threading.Thread(target=lives.wait, daemon=True).start()
time.sleep(60)
"""


def test_snapshot_sees_cpu_dead_stubs_and_waiting_threads(tmp_path: Path) -> None:
    stub = make_program(tmp_path, "triton_python_backend_stub", "#!/bin/sh\nexit 1\n")
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "serving.launch.supervisor", "0", sys.executable, "-c", _SERVER_WITH_LOST_STUBS, str(stub)],
        stdin=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 120
        while not (
            (snapshot := take_snapshot(supervisor.pid)).dead_stubs
            and snapshot.awaiting
            and all(snapshot.cpu_ticks.get(pid) for pid in children(supervisor.pid))  # a tick is 10 ms
        ):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        [server] = children(supervisor.pid)
        assert snapshot.demand_ns[server] > 0
        assert snapshot.dead_stubs < set(children(server))
    finally:
        assert supervisor.stdin is not None
        supervisor.stdin.close()
        supervisor.wait(120)


@pytest.mark.parametrize("error", [FileNotFoundError, ProcessLookupError])
def test_process_that_ends_while_it_is_looked_at_is_no_error(monkeypatch: pytest.MonkeyPatch, error: type[OSError]) -> None:
    def raising(look: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def looks(path: Any) -> Any:
            if os.fspath(path) == f"/proc/{ending.pid}/task":
                raise error
            return look(path)

        return looks

    with subprocess.Popen(["sleep", "60"]) as ending:
        for name in ("listdir", "scandir"):
            monkeypatch.setattr(os, name, raising(getattr(os, name)))
        try:
            seen = take_snapshot(os.getpid())
            assert children(ending.pid) == []
        finally:
            monkeypatch.undo()
            ending.kill()
    assert ending.pid in seen.cpu_ticks


# ---- two tries: the first of the server is lost, the second is the usual one

_LOST_FIRST = """#!{python}
import os, pathlib, sys, time
tries = pathlib.Path({tries!r})
tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
if len(tries.read_text()) <= {lost}:
    print('"loading: tensorrt_llm:1"', flush=True)
    {fault}
os.execv({triton!r}, [{triton!r}, *sys.argv[1:]])
"""
_CRASH = "print('  what():  boost::interprocess::lock_exception', flush=True); os.abort()"
_HANG = "time.sleep(100)"


def _plan(folder: Path, fake_triton: Path, repository: Path, fault: str, lost: int = 1, stall_s: float = 20.0) -> LaunchPlan:
    text = _LOST_FIRST.format(
        python=sys.executable, tries=str(folder / "tries"), lost=lost, fault=fault, triton=str(fake_triton)
    )
    addresses = choose_addresses()
    return LaunchPlan(
        command=rank_command(TritonServer(str(make_program(folder, "lost_first", text)), str(repository), addresses), 0),
        addresses=addresses,
        repository=str(repository),
        models=("tensorrt_llm",),
        log=str(folder / "log"),
        supervision=Supervision(ready_timeout_s=120.0, exit_timeout_s=2),
        stall_timeout_s=stall_s,
    )


@pytest.mark.parametrize(("fault", "reason"), [(_CRASH, "lock_exception"), (_HANG, "no progress for 3 s")])
def test_lost_start_is_tried_again_with_a_line_on_stderr(
    tmp_path: Path, fake_triton: Path, repository: Path, capsys: pytest.CaptureFixture[str], fault: str, reason: str
) -> None:
    stall_s = 3.0 if fault == _HANG else 20.0
    with running(_plan(tmp_path, fake_triton, repository, fault, stall_s=stall_s)) as server:
        assert server.is_running()
    [line] = capsys.readouterr().err.splitlines()
    assert reason in line
    assert line.endswith("starting it a second time.")
    assert (tmp_path / "tries").read_text() == "xx"


def test_start_that_is_lost_twice_names_what_hung_and_is_not_tried_a_third_time(
    tmp_path: Path, fake_triton: Path, repository: Path
) -> None:
    plan = _plan(tmp_path, fake_triton, repository, _HANG, lost=2, stall_s=1.5)
    with pytest.raises(LaunchError, match=r"failed twice \(no progress .*not loaded: tensorrt_llm\)"), running(plan):
        pass
    assert (tmp_path / "tries").read_text() == "xx"


def test_start_that_fails_by_a_models_own_error_is_not_tried_again(tmp_path: Path, fake_triton: Path, repository: Path) -> None:
    plan = _plan(tmp_path, fake_triton, repository, "sys.exit('no such engine')")
    with pytest.raises(LaunchError, match="ended while starting"), running(plan):
        pass
    assert (tmp_path / "tries").read_text() == "x"


def test_unwatched_start_is_not_tried_again(tmp_path: Path, fake_triton: Path, repository: Path) -> None:
    plan = replace(_plan(tmp_path, fake_triton, repository, _CRASH), stall_timeout_s=None)
    with pytest.raises(LaunchError, match="ended while starting"), running(plan):
        pass


def test_second_try_of_a_server_in_the_background_is_reported_to_its_user(
    tmp_path: Path, fake_triton: Path, repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    server = start(_plan(tmp_path, fake_triton, repository, _CRASH), "mine")
    try:
        assert "starting it a second time" in capsys.readouterr().err
        assert server.is_ready()
    finally:
        stop(server)


def test_work_of_the_proxy_is_no_progress_of_the_server() -> None:
    name = f"import ctypes; ctypes.CDLL(None).prctl(15, {PROCESS_NAME.encode()!r}, 0, 0, 0); print(flush=True); input()"
    with (
        subprocess.Popen([sys.executable, "-c", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as proxy,
        subprocess.Popen(["sleep", "60"]) as server,
    ):
        assert proxy.stdout is not None
        proxy.stdout.readline()
        seen = take_snapshot(os.getpid()).cpu_ticks.keys()
        for process in (proxy, server):
            process.kill()
    assert server.pid in seen
    assert proxy.pid not in seen
