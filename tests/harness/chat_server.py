"""A server of chat completions, or of completions, in a thread, whose answers a test writes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from types import MappingProxyType
from typing import Any

from tests.harness.threaded_http import threaded_http

DONE = "[DONE]"
USAGE = {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 5}}

Event = dict[str, Any] | str
Answer = Callable[[int], Sequence[Event]]
"""The events of an answer, or the body of a status 404, by the number of the request; that of a run's probe is 0."""


def chunk(index: int = 0, reason: str | None = None, **delta: Any) -> dict[str, Any]:
    """A chunk of the choice ``index``, which it ends for ``reason``."""
    return {"choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


TOKENS: list[Event] = [chunk(role="assistant", content=""), *(chunk(content=f" w{k}") for k in range(5))]
WHOLE = [*TOKENS, chunk(reason="length"), USAGE, DONE]
CUT = [*TOKENS[:3], DONE]


@dataclass
class Chat:
    """A running server: its port, and the bodies, the paths and the ids of its requests, the probe's first."""

    port: int
    bodies: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    request_ids: list[str | None] = field(default_factory=list)


@contextmanager
def chat_server(
    answer: Answer, models: Sequence[str] = ("m",), headers: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Chat]:
    """A server that sends the events of ``answer`` and ends each message in order, and that lists ``models``. The head of each
    answer has ``headers``, too.
    """
    numbers, chat = itertools.count(), Chat(0)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200 if self.path == "/v1/models" else 404, json.dumps({"data": [{"id": name} for name in models]}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            chat.bodies.append(body)
            chat.paths.append(self.path)
            chat.request_ids.append(self.headers["X-Request-ID"])
            events = answer(next(numbers))
            if isinstance(events, str):
                self._send(404, events)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            for event in events:
                data = b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode() + b"\n\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")

        def _send(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with threaded_http(Handler) as port:
        chat.port = port
        yield chat
