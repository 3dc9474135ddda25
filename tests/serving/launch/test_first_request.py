"""The proof of a start that the core model receives what is sent, against a small HTTP server in Triton's place."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from serving.errors import LaunchError
from serving.launch.addresses import ServerAddresses
from serving.launch.first_request import check_token_ids


@contextmanager
def _triton(answer: str) -> Iterator[tuple[ServerAddresses, list[tuple[str, dict[str, object]]]]]:
    """A server that gives ``answer``, and the requests that it received."""
    received: list[tuple[str, dict[str, object]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *words: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield ServerAddresses("127.0.0.1", server.server_port, 1, 2), received
    server.shutdown()
    server.server_close()


def test_the_ids_that_were_sent_pass() -> None:
    with _triton('data: {"model_name":"tensorrt_llm","output_ids":[1,2,3,77]}\n\n') as (addresses, received):
        check_token_ids(addresses, "tensorrt_llm")
    ((path, body),) = received
    assert path == "/v2/models/tensorrt_llm/generate_stream"
    assert body["input_ids"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ('data: {"output_ids":[1,1,1,77]}\n\n', r"received the token ids \[1, 1, 1\] where \[1, 2, 3\] were sent; .* numpy<2"),
        ('data: {"output_ids":[]}\n\n', r"received the token ids \[\]"),
        ('data: {"error":"no such model"}\n\n', "answered .*no such model"),
        ("data: {", "answered"),
        ("", "answered"),
    ],
)
def test_anything_else_ends_the_start(answer: str, problem: str) -> None:
    with _triton(answer) as (addresses, _), pytest.raises(LaunchError, match=problem):
        check_token_ids(addresses, "tensorrt_llm")


def test_a_server_that_does_not_answer_ends_the_start() -> None:
    with pytest.raises(LaunchError, match="did not answer its first request"):
        check_token_ids(ServerAddresses("127.0.0.1", 9, 1, 2), "tensorrt_llm")
