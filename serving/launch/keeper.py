"""Process that owns one background server.

    python -m serving.launch.keeper < REQUEST_JSON

When the server is ready, it writes the state file and replies with one line on standard output. It keeps the server until
SIGTERM or SIGINT, or until the server ends by itself; then it removes what the server left. The state file is removed only
after a signal, so that ``bench serve status`` can report an unexpected end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from serving.errors import LaunchError, ServingError
from serving.launch.background import BackgroundServer, KeeperReply, KeeperRequest, identify, this_process, write_state
from serving.launch.run import running
from serving.launch.server import Server

_POLL_S = 0.2


class _StopError(Exception):
    """A stop signal arrived while the server was starting."""


def main() -> int:
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=KeeperRequest)
    try:
        return _keep(request, stop)
    except _StopError:
        return 0
    except (ServingError, OSError) as error:
        _reply(KeeperReply(str(error)))
        return 1


def _keep(request: KeeperRequest, stop: threading.Event) -> int:
    def check(waited_s: float) -> None:
        if stop.is_set():
            raise _StopError

    notes: list[str] = []
    with _name_locked(request), running(request.plan, check, notes.append) as server:
        write_state(_state(request, server), Path(request.state_file))
        _reply(KeeperReply(note=notes[0] if notes else None))
        while server.is_running() and not stop.wait(_POLL_S):
            pass
        status = server.exit_status
    if not stop.is_set():
        print(f"The server ended by itself, {_how(status)}.", file=sys.stderr)  # noqa: T201  to the log
        return 1
    Path(request.state_file).unlink(missing_ok=True)
    return 0


def _how(status: int | None) -> str:
    if status is None:
        return "in an unknown way"
    try:
        return f"killed by {signal.Signals(status - 128).name}"
    except ValueError:
        return f"with status {status}"


@contextlib.contextmanager
def _name_locked(request: KeeperRequest) -> Iterator[None]:
    """Lock the name against a second keeper that starts at the same time."""
    path = Path(request.state_file).with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LaunchError(f"--name {request.name}: a server of that name runs or is being started") from error
        yield


def _state(request: KeeperRequest, server: Server) -> BackgroundServer:
    plan = request.plan
    return BackgroundServer(
        name=request.name,
        keeper=this_process(),
        supervisor=identify(server.supervisor_pid),
        addresses=plan.addresses,
        log=plan.log,
        exit_timeout_s=plan.supervision.exit_timeout_s,
        command=plan.command,
        temporary_dir=plan.temporary_dir,
        log_start=server.log_start,
    )


def _reply(reply: KeeperReply) -> None:
    """Write the reply, then close the pipe: its reader ends soon."""
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), msgspec.json.encode(reply) + b"\n")
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


if __name__ == "__main__":
    sys.exit(main())
