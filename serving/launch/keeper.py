"""Holds one server that has no terminal.

    python -m serving.launch.keeper < ORDER_JSON

Writes the state file when the server is ready, says so in one line on standard output, and holds the server until SIGTERM or
SIGINT. Then, or when the server ends by itself, everything is put away; the state file only in the first case, so that an end
that nobody asked for is seen by who asks later.
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
from serving.launch.background import BackgroundServer, KeeperAnswer, KeeperOrder, write_state
from serving.launch.processes import identify, this_process
from serving.launch.run import started
from serving.launch.server import Server

_POLL_S = 0.2


class _StopError(Exception):
    """Somebody asked for the end while the server was starting."""


def main() -> int:
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=KeeperOrder)
    try:
        return _hold(order, asked)
    except _StopError:
        return 0
    except (ServingError, OSError) as error:
        _answer(KeeperAnswer(str(error)))
        return 1


def _hold(order: KeeperOrder, asked: threading.Event) -> int:
    def check(waited_s: float) -> None:
        if asked.is_set():
            raise _StopError

    with _name_held(order), started(order.plan) as server:
        server.wait_until_ready(order.plan.models, order.plan.ready_timeout_s, check)
        write_state(_state(order, server), Path(order.state_file))
        _answer(KeeperAnswer())
        while server.is_running() and not asked.wait(_POLL_S):
            pass
    if not asked.is_set():
        return 1
    Path(order.state_file).unlink(missing_ok=True)
    return 0


@contextlib.contextmanager
def _name_held(order: KeeperOrder) -> Iterator[None]:
    """Keep the name from a second keeper that is started meanwhile."""
    path = Path(order.state_file).with_suffix(".lock")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LaunchError(f"--name {order.name}: a server of that name runs or is being started") from error
        yield


def _state(order: KeeperOrder, server: Server) -> BackgroundServer:
    return BackgroundServer(
        name=order.name,
        keeper=this_process(),
        supervisor=identify(server.supervisor_pid),
        addresses=order.plan.addresses,
        log=order.plan.log,
        exit_timeout_s=order.plan.exit_timeout_s,
        command=order.plan.command,
        temporary_dir=order.plan.temporary_dir,
    )


def _answer(answer: KeeperAnswer) -> None:
    """Say it, then let go of the pipe: whoever reads is gone soon."""
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), msgspec.json.encode(answer) + b"\n")
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


if __name__ == "__main__":
    sys.exit(main())
