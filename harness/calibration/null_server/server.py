"""A server that computes nothing, and stamps what it sends: the reference for a client's times.

    python -m harness.calibration.null_server.server [--grpc_port 0] [--http_port 0] [--first_token_ms 20] [--gap_ms 5]

It answers Triton's gRPC service, Triton's ``generate_stream``, OpenAI's chat completions and completions on loopback, or at the
address of a network namespace, each with as many tokens as requested. Response k of an answer goes out ``first_token_ms +
k · gap_ms`` after its request was read, or, with zeros, as soon as it can. Each response contains when its request was received
and when it was itself handed to the socket (``harness/calibration/null_server/stamps.py``).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import uvloop

from harness.calibration.null_server.channel import Inbox
from harness.calibration.null_server.grpc_channel import GrpcChannel
from harness.calibration.null_server.grpc_service import GrpcService
from harness.calibration.null_server.http_channel import HttpChannel
from harness.calibration.null_server.http_service import HttpService
from harness.calibration.null_server.pacing import UNPACED, DueResponses, Pace, send_joined, send_separately
from harness.clients.transport.tcp import Arrival, accept_from
from harness.errors import RunError
from harness.host.cpu_priority import request_short_slices

_LOOPBACK = "127.0.0.1"
_BACKLOG = 4096
_PACKETS = {"each": send_separately, "joined": send_joined}


@dataclass(frozen=True, slots=True)
class NullServerOptions:
    """``packets``: "each" response is written by itself, or "joined" with the others that are due on its connection."""

    pace: Pace = UNPACED
    packets: str = "each"
    grpc_port: int = 0
    http_port: int = 0
    host: str = _LOOPBACK

    @property
    def arguments(self) -> list[str]:
        """The options as command line arguments."""
        named = {
            "grpc_port": self.grpc_port,
            "http_port": self.http_port,
            "first_token_ms": self.pace.first_token_ns / 1e6,
            "gap_ms": self.pace.gap_ns / 1e6,
            "packets": self.packets,
            "host": self.host,
        }
        return [text for name, value in named.items() for text in (f"--{name}", str(value))]


@dataclass(frozen=True, slots=True)
class NullServerAddresses:
    """The addresses of a null server, as host:port, and its process id."""

    grpc: str
    http: str
    pid: int


@contextmanager
def null_server(options: NullServerOptions = NullServerOptions()) -> Iterator[NullServerAddresses]:
    """A null server in its own process. It ends with the block, and with this process, however that ends.

    Raises RunError where it does not start.
    """
    command = [sys.executable, "-m", "harness.calibration.null_server.server", "--until_stdin_closes", *options.arguments]
    # A process group of its own keeps a terminal's Ctrl-C away.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        addresses = process.stdout.readline()
        if not addresses:
            raise RunError(f"the null server did not start: it ended with status {process.wait()}")
        yield NullServerAddresses(**json.loads(addresses))
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


async def serve(options: NullServerOptions, until_stdin_closes: bool) -> None:
    """Print the addresses as one JSON line, then serve until a signal, or until stdin closes."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if until_stdin_closes:
        loop.add_reader(sys.stdin.fileno(), lambda: None if os.read(0, 1024) else stop.set())
    due = DueResponses(_PACKETS[options.packets])
    inferences: Counter[str] = Counter()
    grpc_service, http_service = GrpcService(options.pace, inferences), HttpService(options.pace, inferences)
    arrival = Arrival()
    inbox = Inbox(arrival)
    with _listening(options.host, options.grpc_port) as grpc_socket, _listening(options.host, options.http_port) as http_socket:
        accept_from(grpc_socket, lambda: GrpcChannel(due, inbox, grpc_service.on_message), arrival)
        accept_from(http_socket, lambda: HttpChannel(due, inbox, http_service.on_request), arrival)
        ports = [listening.getsockname()[1] for listening in (grpc_socket, http_socket)]
        sending = asyncio.create_task(due.run())
        sending.add_done_callback(lambda _: stop.set())
        gc.collect()
        gc.freeze()
        gc.disable()  # no request leaves a cycle behind, and a collection would be a pause
        grpc, http = (f"{options.host}:{port}" for port in ports)
        print(json.dumps({"grpc": grpc, "http": http, "pid": os.getpid()}), flush=True)  # noqa: T201
        await stop.wait()
        if sending.done():
            sending.result()


def _listening(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), backlog=_BACKLOG)


def main(arguments: Sequence[str]) -> None:
    """Process entry point."""
    parser = argparse.ArgumentParser(description="A server that computes nothing, and stamps what it sends.")
    parser.add_argument("--grpc_port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--http_port", type=int, default=0, help="0: any that is free")
    parser.add_argument("--first_token_ms", type=float, default=0.0, help="from a request to its first response")
    parser.add_argument("--gap_ms", type=float, default=0.0, help="from each response to the next")
    parser.add_argument("--packets", choices=list(_PACKETS), default="each", help="whether due responses share a packet")
    parser.add_argument("--host", default=_LOOPBACK, help="address to listen at: loopback, or that of a network namespace")
    parser.add_argument("--until_stdin_closes", action="store_true", help="end when stdin closes")
    values = parser.parse_args(arguments)
    if min(values.first_token_ms, values.gap_ms) < 0:
        parser.error("--first_token_ms and --gap_ms must be at least 0")
    pace = Pace(round(values.first_token_ms * 1e6), round(values.gap_ms * 1e6))
    _allow_many_connections()
    request_short_slices()  # a request that waits for a core waits to be stamped, and may be joined with the next
    options = NullServerOptions(pace, values.packets, values.grpc_port, values.http_port, values.host)
    uvloop.run(serve(options, values.until_stdin_closes))


def _allow_many_connections() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main(sys.argv[1:])
