"""The proxy's process before a scripted HTTP server and a scripted gRPC server, with low bounds."""

from __future__ import annotations

import gzip
import json
import select
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest

from serving.launch.addresses import ServerAddresses
from serving.launch.server import answers_ok
from serving.proxy.settings import PortPair, ProxyBounds, ProxySettings, proxy_command
from tests.free_port import free_addresses

BOUNDS = ProxyBounds(body_bytes=100_000, connections=12, receive_timeout_s=1.5, allowed_hosts=("gpu1.example",))
MANY = 40
_WAIT_S = 20.0


@dataclass
class Upstream:
    """What the scripted servers saw, and ``go_on``, for which an answer in parts waits before its second."""

    requests: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    calls: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)
    client_left: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Proxied:
    """The proxy's addresses, and the servers that it forwards to."""

    addresses: ServerAddresses
    upstream: Upstream
    process: subprocess.Popen[bytes]


@contextmanager
def many_connections(host: str, port: int) -> Iterator[int]:
    """MANY idle connections; how many of them the proxy closed, once those are closed that are beyond its bound.

    They are seen at once: a connection that a test keeps open has 1.5 s between two requests.
    """
    with ExitStack() as held:
        clients = [held.enter_context(socket.create_connection((host, port), _WAIT_S)) for _ in range(MANY)]
        yield _closed(clients, MANY - BOUNDS.connections)


def _closed(clients: Sequence[socket.socket], enough: int) -> int:
    """The number of connections that have ended, when these are ``enough``."""
    poll, by_descriptor = select.poll(), {client.fileno(): client for client in clients}
    for client in clients:
        client.setblocking(False)
        poll.register(client, select.POLLIN)
    closed, until_s = 0, time.monotonic() + _WAIT_S
    while closed < enough and (left_s := until_s - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(left_s * 1e3):
            if _has_ended(by_descriptor[descriptor]):
                poll.unregister(descriptor)
                closed += 1
    return closed


def _has_ended(client: socket.socket) -> bool:
    """Whether the connection has ended, after whatever a server sends first."""
    try:
        while client.recv(1000):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


class _HttpHandler(BaseHTTPRequestHandler):
    """Answers with what it got; the subclass of one server has its ``upstream``."""

    upstream: Upstream
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.upstream.requests.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        if self.path == "/v2/parts":
            self._answer_in_parts()
        elif self.path == "/v2/endless":
            self._answer_without_end()
        else:
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        body = json.dumps({"path": self.path, "bytes": len(body)}).encode()
        packed = gzip.compress(body) if self.headers.get("Accept-Encoding") == "gzip" else body
        self.send_response(201 if self.path == "/v2/created" else 200)
        self.send_header("Content-Length", str(len(packed)))
        self.send_header("Connection", "X-Hop")
        self.send_header("X-Hop", "1")
        self.send_header("X-Kept", "1")
        if packed != body:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(packed)

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _part(self, part: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))

    def _answer_in_parts(self) -> None:
        self._begin()
        self._part(b"first")
        assert self.upstream.go_on.wait(_WAIT_S)
        self._part(b"second")
        self._part(b"")

    def _answer_without_end(self) -> None:
        self._begin()
        try:
            while True:
                self._part(b"x" * 1000)
        except OSError:
            self.upstream.client_left.set()
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


class _GrpcHandler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers each message with itself and, after it, the second of two parts once ``go_on`` is set."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method.rpartition("/")[2]

        def answer(messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
            for message in messages:
                self._upstream.calls.append((method, dict(context.invocation_metadata()), message))
                if message == b"fail":
                    context.set_trailing_metadata((("why", "asked"),))
                    context.abort(grpc.StatusCode.NOT_FOUND, "no such model")
                if message == b"wait":
                    context.add_callback(self._upstream.client_left.set)
                    self._upstream.go_on.wait(_WAIT_S)
                yield b"echo " + message

        return grpc.stream_stream_rpc_method_handler(answer)


@pytest.fixture(scope="module")
def process() -> Iterator[Proxied]:
    upstream, inner, outer = Upstream(), free_addresses(), free_addresses()
    http_server = ThreadingHTTPServer((inner.host, inner.http_port), type("Handler", (_HttpHandler,), {"upstream": upstream}))
    http_server.daemon_threads = True
    threading.Thread(target=http_server.serve_forever, daemon=True).start()
    grpc_server = grpc.server(ThreadPoolExecutor(32), handlers=(_GrpcHandler(upstream),))
    grpc_server.add_insecure_port(inner.grpc)
    grpc_server.start()
    ports = [
        PortPair(listen, server)
        for listen, server in (
            (outer.http_port, inner.http_port),
            (outer.grpc_port, inner.grpc_port),
            (outer.metrics_port, inner.http_port),
        )
    ]
    proxy = subprocess.Popen(proxy_command(ProxySettings(outer.host, *ports, bounds=BOUNDS)))
    try:
        while not answers_ok(outer, "/v2/health/ready"):
            assert proxy.poll() is None
        yield Proxied(outer, upstream, proxy)
    finally:
        proxy.terminate()
        assert proxy.wait(_WAIT_S) == 0
        grpc_server.stop(None)
        http_server.shutdown()
        http_server.server_close()


@pytest.fixture
def proxied(process: Proxied) -> Iterator[Proxied]:
    """The process of the module, with nothing seen so far."""
    upstream = process.upstream
    upstream.requests.clear()
    upstream.calls.clear()
    upstream.go_on.clear()
    upstream.client_left.clear()
    yield process
    upstream.go_on.set()
