"""An HTTP server in a thread of the test: gives scripted answers, and records requests and clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.harness.threaded_http import threaded_http


@dataclass
class MetricsServer:
    """``answer`` makes the status and body of each GET from the number of GETs before; None closes the connection instead."""

    answer: Callable[[int], tuple[int, bytes] | None]
    port: int = 0
    gets: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    clients: set[int] = field(default_factory=set)
    keep_alive: bool = True


@contextmanager
def metrics_server(answer: Callable[[int], tuple[int, bytes] | None], keep_alive: bool = True) -> Iterator[MetricsServer]:
    """Serve on a free port of 127.0.0.1 until the block is left."""
    served = MetricsServer(answer, keep_alive=keep_alive)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            served.clients.add(self.client_address[1])
            served.headers.append(dict(self.headers))
            answered = served.answer(len(served.gets))
            served.gets.append(self.path)
            if answered is None:
                self.close_connection = True
                return
            status, body = answered
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = not served.keep_alive  # without a word, as servers do

        def log_message(self, *arguments: object) -> None:
            pass

    with threaded_http(Handler) as port:
        served.port = port
        yield served
