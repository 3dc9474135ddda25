"""Servers that outlive the command that started them: starting one, finding them again, stopping one.

A small process, ``keeper.py``, holds each of them, and writes a file in the user's state folder that says where it is.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from platformdirs import user_state_path

from serving.errors import LaunchError
from serving.launch.addresses import ServerAddresses
from serving.launch.plan import LaunchPlan
from serving.launch.processes import ProcessIdentity
from serving.launch.run import put_away
from serving.launch.server import answers_ok

DEFAULT_NAME = "default"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_POLL_S = 0.1
_STOP_MARGIN_S = 30.0  # beyond the server's own time: its repository and its container are put away too


@dataclass(frozen=True, slots=True)
class BackgroundServer:
    """What the state file of one server says. ``keeper`` stops it on SIGTERM; ``supervisor`` is gone when all of it is."""

    name: str
    keeper: ProcessIdentity
    supervisor: ProcessIdentity | None
    addresses: ServerAddresses
    log: str
    exit_timeout_s: float
    command: tuple[str, ...]
    temporary_dir: str | None = None

    def is_alive(self) -> bool:
        return self.keeper.is_alive()

    def is_ready(self) -> bool:
        return self.is_alive() and answers_ok(self.addresses, "/v2/health/ready")


class KeeperOrder(msgspec.Struct, frozen=True):
    """What the keeper is told on its standard input."""

    name: str
    state_file: str
    plan: LaunchPlan


class KeeperAnswer(msgspec.Struct, frozen=True):
    """The keeper's one line on its standard output: ready, or why not."""

    error: str | None = None


def state_dir() -> Path:
    """Where the state files lie; XDG_STATE_HOME moves it."""
    return user_state_path("inflight-bench") / "servers"


def list_servers() -> list[BackgroundServer]:
    """Every server that a state file tells of, by name, dead ones too. A file that cannot be read is left alone."""
    found = []
    for path in sorted(state_dir().glob("*.json")):
        try:
            found.append(msgspec.json.decode(path.read_bytes(), type=BackgroundServer))
        except (OSError, msgspec.DecodeError):
            continue
    return found


def forget(server: BackgroundServer) -> None:
    """Remove the state file of a server that has ended without doing so, unless it is another's by now."""
    if any(other == server for other in list_servers()) and not server.is_alive():
        _state_file(server.name).unlink(missing_ok=True)
        if server.temporary_dir is not None:
            shutil.rmtree(server.temporary_dir, ignore_errors=True)


def write_state(server: BackgroundServer, path: Path) -> None:
    """Write the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = path.with_suffix(f".{os.getpid()}.tmp")
    aside.write_bytes(msgspec.json.format(msgspec.json.encode(server)))
    aside.rename(path)


def check_name(name: str) -> None:
    """Raise LaunchError when ``name`` cannot be one, or a live server has it."""
    if not _NAME.fullmatch(name):
        raise LaunchError(f"--name {name}: use letters, digits, '.', '-' and '_'")
    for server in list_servers():
        if server.name == name and server.is_alive():
            raise LaunchError(
                f"--name {name}: a server of that name runs (process {server.keeper.pid}); "
                f"give another name, or stop it with 'bench serve stop {name}'"
            )


def start(plan: LaunchPlan, name: str) -> BackgroundServer:
    """Start ``plan`` apart from this process and return when it is ready. Raises LaunchError when it does not become so.

    Interrupted while waiting, it stops what it started. The keeper ignores the end of our terminal, and stays in our session:
    Linux schedules sessions as groups, and a client here could wait long for its turn beside a server in another.
    """
    check_name(name)
    with Path(plan.log).open("ab") as log:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "serving.launch.keeper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            process_group=0,
        )
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        keeper.stdin.write(msgspec.json.encode(KeeperOrder(name, str(_state_file(name)), plan)))
        keeper.stdin.close()
        line = keeper.stdout.readline()
    except BaseException:
        keeper.terminate()
        keeper.wait()
        put_away(plan)
        raise
    error = msgspec.json.decode(line, type=KeeperAnswer).error if line else f"its keeper ended early; see {plan.log}"
    if error is not None:
        keeper.wait()
        put_away(plan)
        raise LaunchError(error)
    return msgspec.json.decode(_state_file(name).read_bytes(), type=BackgroundServer)


def stop(server: BackgroundServer, on_wait: Callable[[], None] = lambda: None) -> None:
    """Stop a server with all its children; returns when they are gone. One that has ended already is only forgotten.

    Raises LaunchError when its processes are not ours to stop.
    """
    if server.is_alive():
        _signal(server, signal.SIGTERM)
        if not _gone(server, server.exit_timeout_s + _STOP_MARGIN_S, on_wait):
            _signal(server, signal.SIGKILL)  # its supervisor then ends the rest
            _gone(server, server.exit_timeout_s + _STOP_MARGIN_S, on_wait)
    forget(server)


def _state_file(name: str) -> Path:
    return state_dir() / f"{name}.json"


def _signal(server: BackgroundServer, number: signal.Signals) -> None:
    try:
        os.kill(server.keeper.pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise LaunchError(f"{server.name}: process {server.keeper.pid} is another user's") from error


def _gone(server: BackgroundServer, timeout_s: float, on_wait: Callable[[], None]) -> bool:
    deadline = time.monotonic() + timeout_s
    while server.is_alive() or (server.supervisor is not None and server.supervisor.is_alive()):
        if time.monotonic() > deadline:
            return False
        on_wait()
        time.sleep(_POLL_S)
    return True
