"""Emptying a server's prefix cache: vLLM's call, SGLang's two, and servers that have none or refuse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import pytest

from harness.clients import prefix_cache_reset
from harness.clients.openai_chat import DEFAULT_PATH
from harness.clients.prefix_cache_reset import find_prefix_cache_reset
from harness.clients.transport.url import Origin
from harness.errors import TargetError
from tests.harness.threaded_http import threaded_http

Answers = dict[tuple[str, str], list[tuple[int, bytes]]]


@dataclass
class _Server:
    """``answers`` of each call, in their order; the last one is repeated. A call without answers is not there."""

    answers: Answers
    origin: Origin = field(default_factory=lambda: Origin("http", "127.0.0.1", 1))
    calls: list[tuple[str, str]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)


@contextmanager
def _serving(answers: Answers) -> Iterator[_Server]:
    served = _Server(answers)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            call = (self.command, self.path)
            served.calls.append(call)
            served.keys.append(self.headers["x-key"])
            others = any(path == self.path for _, path in answers)
            left = answers.get(call, [(405 if others else 404, b"")])
            status, body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, *arguments: object) -> None:
            pass

    with threaded_http(Handler) as port:
        served.origin = Origin("http", "127.0.0.1", port)
        yield served


@pytest.mark.parametrize(
    ("call", "answer", "tried"),
    [
        (("POST", "/reset_prefix_cache"), b"", 1),
        (("POST", "/reset_prefix_cache"), b'{"success":true}', 1),
        (("POST", "/flush_cache"), b"Cache flushed.\n", 2),
        (("GET", "/flush_cache"), b"Cache flushed.\n", 3),
    ],
)
def test_the_call_that_a_server_has_is_made_when_it_is_found_and_each_time_after(
    call: tuple[str, str], answer: bytes, tried: int
) -> None:
    with _serving({call: [(200, answer)]}) as server:
        reset = find_prefix_cache_reset(server.origin, DEFAULT_PATH, {"x-key": "1"})
        assert len(server.calls) == tried
        assert server.calls[-1] == call
        reset()
        assert server.calls[tried:] == [call]
        assert set(server.keys) == {"1"}
        assert str(reset) == " ".join(call)


@pytest.mark.parametrize("path", [DEFAULT_PATH, "/v1/completions"])
def test_the_call_is_beside_v1_below_the_servers_base_path(path: str) -> None:
    with _serving({("POST", "/base/reset_prefix_cache"): [(200, b"")]}) as server:
        assert str(find_prefix_cache_reset(server.origin, f"/base{path}", {})) == "POST /base/reset_prefix_cache"


def test_a_server_without_a_call_is_an_error_that_names_both() -> None:
    with _serving({}) as server, pytest.raises(TargetError, match=r"VLLM_SERVER_DEV_MODE=1.*flush_cache"):
        find_prefix_cache_reset(server.origin, DEFAULT_PATH, {})


@pytest.mark.parametrize("refusal", [(400, b"Flush cache failed."), (200, b'{"success":false}')])
def test_a_server_that_is_still_busy_is_asked_again(monkeypatch: pytest.MonkeyPatch, refusal: tuple[int, bytes]) -> None:
    monkeypatch.setattr(prefix_cache_reset, "_PAUSE_S", 0.01)
    call = ("POST", "/reset_prefix_cache")
    with _serving({call: [refusal, refusal, (200, b"")]}) as server:
        find_prefix_cache_reset(server.origin, DEFAULT_PATH, {})
        assert server.calls == [call] * 3


@pytest.mark.parametrize(
    ("refusal", "message"), [((500, b'{"error":"no engine"}'), "no engine"), ((200, b'{"success":false}'), "no success")]
)
def test_a_server_that_refuses_for_good_is_an_error(
    monkeypatch: pytest.MonkeyPatch, refusal: tuple[int, bytes], message: str
) -> None:
    monkeypatch.setattr(prefix_cache_reset, "_BUSY_S", 0.0)
    with _serving({("POST", "/reset_prefix_cache"): [refusal]}) as server, pytest.raises(TargetError, match=message):
        find_prefix_cache_reset(server.origin, DEFAULT_PATH, {})


def test_a_server_that_is_gone_is_an_error() -> None:
    with _serving({("POST", "/reset_prefix_cache"): [(200, b"")]}) as server:
        reset = find_prefix_cache_reset(server.origin, DEFAULT_PATH, {})
    with pytest.raises(TargetError, match="--reset_prefix_cache: POST /reset_prefix_cache"):
        reset()
