"""Background servers, which outlive the command that starts them: start, list, stop.

Each is owned by a small process, ``keeper.py``, which records it in a state file in the user's state folder.
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
from serving.launch.addresses import ServerAddresses, held_ports
from serving.launch.log_file import open_log
from serving.launch.plan import LaunchPlan, listening_places
from serving.launch.run import remove_temporary_dir
from serving.launch.server import answers_ok

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_POLL_S = 0.1
_STOP_MARGIN_S = 30.0  # beyond the server's exit timeout, for the removal of its repository and container


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Unique identity of a process: its number, its start (clock ticks since boot) and the boot. Numbers alone are reused."""

    pid: int
    start_ticks: int
    boot_id: str

    def is_alive(self) -> bool:
        """Whether this process still runs; a zombie does not."""
        return identify(self.pid) == self


def identify(pid: int) -> ProcessIdentity | None:
    """The process that runs under ``pid`` now, or None. Source: proc(5), fields 3 and 22 of ``/proc/PID/stat``."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
    after_name = stat.rpartition(")")[2].split()  # the name, field 2, may contain blanks and parentheses
    if after_name[0] in "ZX":
        return None
    return ProcessIdentity(pid, int(after_name[19]), boot_id)


def this_process() -> ProcessIdentity:
    """The identity of this process."""
    identity = identify(os.getpid())
    if identity is None:
        raise RuntimeError("/proc has no entry for this process")
    return identity


@dataclass(frozen=True, slots=True)
class BackgroundServer:
    """The content of one server's state file.

    ``keeper`` stops the server on SIGTERM; ``supervisor`` ends when all processes of the server have ended. The server's part
    of ``log`` begins at byte ``log_start``.
    """

    name: str
    keeper: ProcessIdentity
    supervisor: ProcessIdentity | None
    addresses: ServerAddresses
    log: str
    exit_timeout_s: float
    command: tuple[str, ...]
    temporary_dir: str | None = None
    log_start: int = 0

    def is_alive(self) -> bool:
        return self.keeper.is_alive()

    def is_ready(self) -> bool:
        return self.is_alive() and answers_ok(self.addresses, "/v2/health/ready")


class KeeperRequest(msgspec.Struct, frozen=True):
    """The keeper's standard input."""

    name: str
    state_file: str
    plan: LaunchPlan


class KeeperReply(msgspec.Struct, frozen=True):
    """The keeper's one line on its standard output; ``error`` is None when the server is ready. ``note`` is for the user."""

    error: str | None = None
    note: str | None = None


def state_dir() -> Path:
    """The folder of the state files; XDG_STATE_HOME moves it."""
    return user_state_path("inflight-bench") / "servers"


def default_log(name: str) -> Path:
    """The log of the server ``name``, which the next server of that name continues."""
    return state_dir() / f"{name}.log"


def list_servers() -> list[BackgroundServer]:
    """Every server with a state file, by name, dead ones included. Unreadable files are ignored."""
    servers = []
    for path in sorted(state_dir().glob("*.json")):
        try:
            servers.append(msgspec.json.decode(path.read_bytes(), type=BackgroundServer))
        except (OSError, msgspec.DecodeError):
            continue
    return servers


def forget(server: BackgroundServer) -> None:
    """Remove the state file of a server that has ended without removing it, unless another server has the name by now."""
    if any(other == server for other in list_servers()) and not server.is_alive():
        _state_file(server.name).unlink(missing_ok=True)
        if server.temporary_dir is not None:
            shutil.rmtree(server.temporary_dir, ignore_errors=True)


def write_state(server: BackgroundServer, path: Path) -> None:
    """Write the state file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(server)))
    temporary.rename(path)


def check_name(name: str) -> None:
    """Raise LaunchError when ``name`` is invalid, or a live server has it."""
    if not _NAME.fullmatch(name):
        raise LaunchError(f"--name {name}: use letters, digits, '.', '-' and '_'")
    for server in list_servers():
        if server.name == name and server.is_alive():
            raise LaunchError(
                f"--name {name}: a server of that name runs (process {server.keeper.pid}); "
                f"use another name, or stop it with 'bench serve stop {name}'"
            )


def start(plan: LaunchPlan, name: str) -> BackgroundServer:
    """Start ``plan`` under a keeper and return when the server is ready. Raises LaunchError when it does not become ready.

    On an interrupt while waiting, everything started is stopped. The keeper ignores SIGHUP, but stays in this session: Linux
    schedules sessions as groups (autogroup), and a client could wait long beside a server of another session.

    The plan's ports are held here from the first moment: the keeper holds them only once it has loaded its modules.
    """
    check_name(name)
    with held_ports(listening_places(plan)):
        reply = _start_keeper(plan, name)
    if reply.note is not None:
        print(reply.note, file=sys.stderr)  # noqa: T201
    return msgspec.json.decode(_state_file(name).read_bytes(), type=BackgroundServer)


def _start_keeper(plan: LaunchPlan, name: str) -> KeeperReply:
    """Start a keeper of ``plan`` and return its reply when the server is ready. Raises LaunchError."""
    state_dir().mkdir(parents=True, exist_ok=True, mode=0o700)
    with open_log(Path(plan.log)) as log:
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
        keeper.stdin.write(msgspec.json.encode(KeeperRequest(name, str(_state_file(name)), plan)))
        keeper.stdin.close()
        line = keeper.stdout.readline()
    except BaseException:
        keeper.terminate()
        keeper.wait()
        remove_temporary_dir(plan)
        raise
    reply = (
        msgspec.json.decode(line, type=KeeperReply) if line else KeeperReply(f"the server's keeper ended early; see {plan.log}")
    )
    if reply.error is not None:
        keeper.wait()
        remove_temporary_dir(plan)
        raise LaunchError(reply.error)
    return reply


def stop(server: BackgroundServer, on_wait: Callable[[], None] = lambda: None) -> None:
    """Stop a server with all its processes; returns when they are gone. If the server is dead already, only its state file is
    removed.

    Raises LaunchError when the processes belong to another user.
    """
    if server.is_alive():
        _signal(server, signal.SIGTERM)
        if not _wait_for_end(server, server.exit_timeout_s + _STOP_MARGIN_S, on_wait):
            _signal(server, signal.SIGKILL)  # its supervisor then ends the server
            _wait_for_end(server, server.exit_timeout_s + _STOP_MARGIN_S, on_wait)
    forget(server)


def _state_file(name: str) -> Path:
    return state_dir() / f"{name}.json"


def _signal(server: BackgroundServer, number: signal.Signals) -> None:
    try:
        os.kill(server.keeper.pid, number)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise LaunchError(f"{server.name}: process {server.keeper.pid} belongs to another user") from error


def _wait_for_end(server: BackgroundServer, timeout_s: float, on_wait: Callable[[], None]) -> bool:
    deadline = time.monotonic() + timeout_s
    while server.is_alive() or (server.supervisor is not None and server.supervisor.is_alive()):
        if time.monotonic() > deadline:
            return False
        on_wait()
        time.sleep(_POLL_S)
    return True
