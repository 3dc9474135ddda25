"""Real processes under ``python -m serving.launch.supervisor``; the servers are scripts that record their process ids."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

_WAIT_S = 120.0

# Every script writes "<role> <pid>" lines to the file in its first argument, and closes it: where a finalizer does that, an
# interrupt that comes with the line is ignored.
_SERVER = """
import os, signal, sys, time
def note(line):
    with open(sys.argv[1], "a") as notes:
        notes.write(line + "\\n")
def on_interrupt(number, frame):
    note("interrupted")
    sys.exit(7)
signal.signal(signal.SIGINT, on_interrupt)
note(f"server {os.getpid()}")
while True:
    time.sleep(0.02)
"""
# It ends when the server handles signals.
_PROXY_THAT_ENDS = """
import sys, time
while "server" not in open(sys.argv[1]).read():
    time.sleep(0.02)
sys.exit(3)
"""
_STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(sys.argv[1], "a") as notes:
    notes.write(f"server {os.getpid()}\\n")
while True:
    time.sleep(0.02)
"""
# A server with a child and a grandchild in separate sessions, both of which ignore SIGINT and SIGTERM.
_FAMILY = """
import os, signal, subprocess, sys, time
role, *younger = sys.argv[2:]
if role != "server":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if younger:
    subprocess.Popen([sys.executable, __file__, sys.argv[1], *younger], start_new_session=True)
with open(sys.argv[1], "a") as notes:
    notes.write(f"{role} {os.getpid()}\\n")
while True:
    time.sleep(0.02)
"""
# An owner like serving.launch.server.Server: it holds only the supervisor's standard input.
_OWNER = """
import os, subprocess, sys, time
supervisor = subprocess.Popen([sys.executable, "-m", "serving.launch.supervisor", "1", *sys.argv[2:]], stdin=subprocess.PIPE,
                        start_new_session=True)
with open(sys.argv[1], "a") as notes:
    notes.write(f"supervisor {supervisor.pid}\\n")
while True:
    time.sleep(0.02)
"""


class _Scripts:
    """A folder of scripts and their notes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notes = folder / "notes"
        self.notes.touch()

    def command(self, script: str, *arguments: str) -> list[str]:
        path = self.folder / f"script{len(list(self.folder.iterdir()))}.py"
        path.write_text(script)
        return [sys.executable, str(path), str(self.notes), *arguments]

    def pid(self, role: str) -> int:
        """The process of ``role``; waits for its note."""
        _wait_until(lambda: any(line.startswith(f"{role} ") for line in self.lines()))
        return next(int(line.split()[1]) for line in self.lines() if line.startswith(f"{role} "))

    def lines(self) -> list[str]:
        return self.notes.read_text().splitlines()

    def end(self) -> None:
        for line in self.lines():
            pid = line.partition(" ")[2]
            if pid and _is_alive(int(pid)):
                os.kill(int(pid), signal.SIGKILL)


@pytest.fixture
def scripts(tmp_path: Path) -> Iterator[_Scripts]:
    scripts = _Scripts(tmp_path)
    yield scripts
    scripts.end()


def _wait_until(condition: Callable[[], bool], timeout_s: float = _WAIT_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition was not met in time"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _supervise(grace_s: float, command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "serving.launch.supervisor", str(grace_s), *command],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def _close(supervisor: subprocess.Popen[bytes]) -> int:
    assert supervisor.stdin is not None
    supervisor.stdin.close()
    return supervisor.wait(_WAIT_S)


def test_closed_stdin_interrupts_the_server_and_its_status_is_returned(scripts: _Scripts) -> None:
    supervisor = _supervise(5, scripts.command(_SERVER))
    server = scripts.pid("server")
    assert _close(supervisor) == 7
    assert scripts.lines()[-1] == "interrupted"
    assert not _is_alive(server)


def test_server_has_default_signal_handlers_although_its_supervisor_ignores_signals() -> None:
    supervisor = _supervise(5, ["sleep", "600"])
    _wait_until(lambda: [child.name() for child in psutil.Process(supervisor.pid).children()] == ["sleep"])
    assert _close(supervisor) == 128 + signal.SIGINT


def test_server_that_ignores_signals_is_killed_after_the_grace_period(
    scripts: _Scripts, capfd: pytest.CaptureFixture[str]
) -> None:
    supervisor = _supervise(0.5, scripts.command(_STUBBORN))
    server = scripts.pid("server")
    started = time.monotonic()
    assert _close(supervisor) == 128 + signal.SIGKILL
    assert time.monotonic() - started >= 0.5
    assert not _is_alive(server)
    assert capfd.readouterr().err == "The server did not end within 0.5 s, so it was killed.\n"


def test_descendants_of_the_server_do_not_outlive_it(scripts: _Scripts) -> None:
    supervisor = _supervise(1, scripts.command(_FAMILY, "server", "child", "grandchild"))
    family = [scripts.pid(role) for role in ("server", "child", "grandchild")]
    _close(supervisor)
    assert [pid for pid in family if _is_alive(pid)] == []


def test_server_that_ends_by_itself_ends_its_supervisor_and_its_children(scripts: _Scripts) -> None:
    supervisor = _supervise(1, scripts.command(_FAMILY, "server", "child", "grandchild"))
    family = [scripts.pid(role) for role in ("server", "child", "grandchild")]
    os.kill(family[0], signal.SIGKILL)
    assert supervisor.wait(_WAIT_S) == 128 + signal.SIGKILL
    assert [pid for pid in family if _is_alive(pid)] == []
    assert supervisor.stdin is not None
    supervisor.stdin.close()


def test_proxy_lasts_until_the_server_has_ended(scripts: _Scripts) -> None:
    proxy = scripts.command(_SERVER.replace("server {", "proxy {").replace("sys.exit(7)", "").replace("interrupted", "asked"))
    supervisor = _supervise(
        5,
        ["--beside", "The proxy", json.dumps(proxy), *scripts.command(_SERVER.replace("sys.exit", "time.sleep(1); sys.exit"))],
    )
    pids = [scripts.pid(role) for role in ("server", "proxy")]
    started = time.monotonic()
    assert _close(supervisor) == 7
    assert sorted(scripts.lines()[-2:]) == ["asked", "interrupted"]
    assert time.monotonic() - started >= 1
    assert [pid for pid in pids if _is_alive(pid)] == []


def test_proxy_that_ends_ends_its_server_with_a_sentence(scripts: _Scripts, capfd: pytest.CaptureFixture[str]) -> None:
    proxy = scripts.command(_PROXY_THAT_ENDS)
    supervisor = _supervise(5, ["--beside", "The proxy", json.dumps(proxy), *scripts.command(_SERVER)])
    assert supervisor.wait(_WAIT_S) == 1
    assert capfd.readouterr().err == "The proxy ended with status 3, so its server was stopped.\n"
    assert not _is_alive(scripts.pid("server"))
    assert supervisor.stdin is not None
    supervisor.stdin.close()


@pytest.mark.parametrize("status", [0, 3])
def test_status_of_a_server_that_ends_by_itself(scripts: _Scripts, status: int) -> None:
    supervisor = _supervise(1, scripts.command(f"raise SystemExit({status})"))
    assert supervisor.wait(_WAIT_S) == status
    assert supervisor.stdin is not None
    supervisor.stdin.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_server_and_its_children_end_when_the_owner_dies(scripts: _Scripts, number: signal.Signals) -> None:
    owner = subprocess.Popen(
        scripts.command(_OWNER, *scripts.command(_FAMILY, "server", "child", "grandchild")),
        stderr=subprocess.DEVNULL,
    )
    family = [scripts.pid(role) for role in ("supervisor", "server", "child", "grandchild")]
    os.kill(owner.pid, number)
    owner.wait(_WAIT_S)
    _wait_until(lambda: not any(map(_is_alive, family)))


def test_server_dies_with_a_supervisor_that_is_killed(scripts: _Scripts) -> None:
    supervisor = _supervise(1, scripts.command(_STUBBORN))
    server = scripts.pid("server")
    supervisor.kill()
    supervisor.wait()
    assert supervisor.stdin is not None
    supervisor.stdin.close()
    _wait_until(lambda: not _is_alive(server))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_supervisor_ignores_signals(scripts: _Scripts, number: signal.Signals) -> None:
    supervisor = _supervise(5, scripts.command(_SERVER))
    server = scripts.pid("server")
    supervisor.send_signal(number)
    time.sleep(0.3)
    assert supervisor.poll() is None
    assert _is_alive(server)
    assert "interrupted" not in scripts.lines()
    assert _close(supervisor) == 7


def test_input_on_stdin_does_not_end_the_server(scripts: _Scripts) -> None:
    supervisor = _supervise(5, scripts.command(_SERVER))
    scripts.pid("server")
    assert supervisor.stdin is not None
    supervisor.stdin.write(b"hello")
    supervisor.stdin.flush()
    time.sleep(0.3)
    assert supervisor.poll() is None
    assert _close(supervisor) == 7
