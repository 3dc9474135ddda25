"""Starting a server's command, waiting until it is ready, and stopping it with all its children."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType

from serving.errors import LaunchError
from serving.launch.addresses import EVERY_ADDRESS, LOOPBACK, ServerAddresses
from serving.launch.log import explain_end
from serving.launch.log_file import open_own_log
from serving.launch.tritonserver import DEFAULT_EXIT_TIMEOUT_S

_POLL_S = 0.1


class Server:
    """A running server process; ``stop`` or the end of the ``with`` block ends it and all its descendants.

    It also ends when this process dies, for any reason: see ``serving/launch/supervisor.py``.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        addresses: ServerAddresses,
        log: Path,
        exit_timeout_s: float = DEFAULT_EXIT_TIMEOUT_S,
        others: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """Start ``command``, and beside it the commands of ``others``, by their names: a front end, or a proxy, which listens
        at ``addresses`` in its place.

        After ``stop`` the server has ``exit_timeout_s`` and two seconds more before it is killed.
        Raises LaunchError where ``log`` is that of another server, or cannot be written.
        """
        self.addresses = addresses
        self.log = log
        beside = [word for name, other in others.items() for word in ("--beside", name, json.dumps(other))]
        with open_own_log(log) as output:
            self.log_start = output.tell()  # earlier content belongs to an earlier server
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "serving.launch.supervisor", str(exit_timeout_s + 2), *beside, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
                # A separate process group shields the server from a terminal's Ctrl-C. A separate session would be wrong: Linux
                # schedules sessions as groups (autogroup), and a client could then wait 100 ms and more beside a busy server.
                process_group=0,
            )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()

    @property
    def supervisor_pid(self) -> int:
        return self._supervisor.pid

    def is_running(self) -> bool:
        return self._supervisor.poll() is None

    @property
    def exit_status(self) -> int | None:
        """The status of the server, 128 and the number of a signal that killed it; None while it runs."""
        status = self._supervisor.poll()
        return status if status is None or status >= 0 else 128 - status

    def wait_until_ready(
        self, models: Sequence[str], timeout_s: float, on_wait: Callable[[float], None] = lambda waited_s: None
    ) -> None:
        """Return when the server and each of ``models`` are READY, and its front end, where the addresses have one; ``on_wait``
        is called with the seconds waited.

        Raises LaunchError, with the log's tail, when the server ends or ``timeout_s`` passes first.
        """
        started = time.monotonic()
        http_port, openai_port = self.addresses.http_port, self.addresses.openai_port
        missing = [(http_port, path) for path in ("/v2/health/ready", *(f"/v2/models/{model}/ready" for model in models))]
        if openai_port is not None:
            missing.append((openai_port, "/health"))
        while missing:
            waited_s = time.monotonic() - started
            if not self.is_running():
                raise LaunchError(f"the server ended while starting. {self.log_tail()}")
            if waited_s > timeout_s:
                raise LaunchError(f"the server was not ready after {timeout_s:g} s ({missing[0][1]}). {self.log_tail()}")
            if _answers_ok(self.addresses, *missing[0]):
                missing.pop(0)
            else:
                on_wait(waited_s)
                time.sleep(_POLL_S)

    def log_tail(self) -> str:
        """The log's path, its first errors and its last lines, for an error message."""
        return explain_end(self.log, self.log_start)

    def stop(self) -> None:
        """End the server, with a few seconds for requests in flight; returns when all its processes are gone."""
        if self._supervisor.stdin is not None:
            self._supervisor.stdin.close()
        self._supervisor.wait()


def answers_ok(addresses: ServerAddresses, path: str) -> bool:
    """Whether the server answers a GET of ``path`` with status 200."""
    return _answers_ok(addresses, addresses.http_port, path)


def _answers_ok(addresses: ServerAddresses, port: int, path: str) -> bool:
    host = LOOPBACK if addresses.host == EVERY_ADDRESS else addresses.host
    connection = http.client.HTTPConnection(host, port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
