"""Starting a Triton server over a model repository, waiting until it is ready, and stopping it with all its children."""

from __future__ import annotations

import http.client
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from serving.errors import LaunchError
from serving.triton import TritonInstallation

LOOPBACK = "127.0.0.1"
_LOG_TAIL_LINES = 12
_LOG_ERRORS = 5
_LOGGED_ERROR = re.compile(r"E\d{4} ")  # Triton's severity letter and the date
_EXIT_TIMEOUT_S = 10
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ServerAddresses:
    """Where a running server listens."""

    host: str
    http_port: int
    grpc_port: int
    metrics_port: int

    @property
    def http(self) -> str:
        return f"{self.host}:{self.http_port}"

    @property
    def grpc(self) -> str:
        return f"{self.host}:{self.grpc_port}"

    @property
    def metrics(self) -> str:
        return f"{self.host}:{self.metrics_port}"


def choose_addresses(
    http_port: int | None = None, grpc_port: int | None = None, metrics_port: int | None = None, host: str = LOOPBACK
) -> ServerAddresses:
    """Addresses with free ports where None is given. Raises LaunchError for a named port that is in use."""
    held: list[socket.socket] = []
    ports = []
    try:
        for option, port in (("--http_port", http_port), ("--grpc_port", grpc_port), ("--metrics_port", metrics_port)):
            holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            held.append(holder)
            if port in ports:
                raise LaunchError(f"{option} {port}: the same port is named twice")
            if port:
                holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                holder.bind((host, port or 0))
            except (OSError, OverflowError) as error:
                raise LaunchError(f"{option} {port}: cannot listen on {host}:{port}: {error}") from error
            ports.append(holder.getsockname()[1])
    finally:
        for holder in held:
            holder.close()
    return ServerAddresses(host, *ports)


def triton_command(
    installation: TritonInstallation, repository: Path, addresses: ServerAddresses, extra: Sequence[str] = ()
) -> list[str]:
    """The command line that serves ``repository`` on ``addresses``."""
    return [
        str(installation.executable),
        f"--model-repository={repository}",
        f"--backend-directory={installation.backend_dir}",
        f"--http-address={addresses.host}",
        f"--grpc-address={addresses.host}",
        f"--metrics-address={addresses.host}",
        f"--http-port={addresses.http_port}",
        f"--grpc-port={addresses.grpc_port}",
        f"--metrics-port={addresses.metrics_port}",
        f"--exit-timeout-secs={_EXIT_TIMEOUT_S}",
        "--disable-auto-complete-config",
        f"--backend-config=python,shm-region-prefix-name=inflight_bench_{addresses.grpc_port}_",
        *extra,
    ]


class Server:
    """A running server process; ``stop`` or leaving the ``with`` block ends it and everything it started.

    It also ends when this process dies, of whatever cause: see ``serving/supervisor.py``.
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str], addresses: ServerAddresses, log: Path) -> None:
        self.addresses = addresses
        self.log = log
        with log.open("ab") as output:
            self._log_start = output.tell()  # what stands before is an earlier server's
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "serving.supervisor", str(_EXIT_TIMEOUT_S + 2), *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
                # A process group of its own keeps a terminal's Ctrl-C away. Not a session of its own: Linux schedules sessions
                # as groups (autogroup), and a client could then wait 100 ms and more for its turn beside a busy server.
                process_group=0,
            )

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()

    def is_running(self) -> bool:
        return self._supervisor.poll() is None

    def wait_until_ready(
        self, models: Sequence[str], timeout_s: float, on_wait: Callable[[float], None] = lambda waited_s: None
    ) -> None:
        """Return when the server and each of ``models`` answer READY; ``on_wait`` is called with the seconds waited.

        Raises LaunchError, with the log's tail, when the server ends or ``timeout_s`` passes first.
        """
        started = time.monotonic()
        missing = ["/v2/health/ready", *(f"/v2/models/{model}/ready" for model in models)]
        while missing:
            waited_s = time.monotonic() - started
            if not self.is_running():
                raise LaunchError(f"the server ended while starting. {self.log_tail()}")
            if waited_s > timeout_s:
                raise LaunchError(f"the server was not ready after {timeout_s:g} s ({missing[0]}). {self.log_tail()}")
            if _answers_ok(self.addresses, missing[0]):
                missing.pop(0)
            else:
                on_wait(waited_s)
                time.sleep(_POLL_S)

    def log_tail(self) -> str:
        """The log's path, its first errors and its last lines, for an error message."""
        with self.log.open(encoding="utf-8", errors="replace") as log:
            log.seek(self._log_start)
            lines = log.read().splitlines()
        earlier, tail = lines[:-_LOG_TAIL_LINES], lines[-_LOG_TAIL_LINES:]
        errors = [line for line in earlier if _LOGGED_ERROR.match(line)][:_LOG_ERRORS]
        said = ["Its first errors:", *errors, "…"] if errors else []
        return "\n".join([f"Its log is {self.log}.", *said, "It ends:", *tail])

    def stop(self) -> None:
        """End the server, letting requests in flight finish for a few seconds; returns when all its processes are gone."""
        if self._supervisor.stdin is not None:
            self._supervisor.stdin.close()
        self._supervisor.wait()


def _answers_ok(addresses: ServerAddresses, path: str) -> bool:
    connection = http.client.HTTPConnection(addresses.host, addresses.http_port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
