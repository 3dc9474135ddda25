"""Emptying the prefix cache behind Triton: the embedded engine's call, over HTTP, and servers that have none or refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from harness.clients.transport.url import Origin
from harness.clients.triton import prefix_cache_reset
from harness.clients.triton.model import TritonModel
from harness.clients.triton.prefix_cache_reset import HttpResetCall, find_triton_prefix_cache_reset
from harness.errors import TargetError
from tests.harness.threaded_http import threaded_http

_EMPTIED = (200, {"model_name": "tensorrt_llm"})
_REFUSAL = "2 requests are in flight, and a prefix cache is emptied between requests"
_BUSY = (500, {"error": f"server error: reset_prefix_cache: {_REFUSAL}"})


def _model(name: str, **parameters: str) -> TritonModel:
    return TritonModel(name, True, frozenset(), frozenset(), tuple(parameters.items()))


@contextmanager
def _serving(*answers: tuple[int, dict[str, Any]]) -> Iterator[tuple[Origin, list[Any]]]:
    """``answers`` in their order; the last one is repeated. Yields the origin, and the path and body of each call."""
    left, calls = list(answers), list[Any]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            calls.append((self.path, json.loads(self.rfile.read(int(self.headers["content-length"])))))
            status, document = left.pop(0) if len(left) > 1 else left[0]
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    with threaded_http(Handler) as port:
        yield Origin("http", "127.0.0.1", port), calls


def _find(origin: Origin, **parameters: str) -> Any:
    return find_triton_prefix_cache_reset(
        lambda name: _model(name, **parameters), "tensorrt_llm", lambda name: HttpResetCall(origin, name, {})
    )


def test_the_cache_is_emptied_when_the_call_is_found_and_at_each_call() -> None:
    with _serving(_EMPTIED) as (origin, calls):
        reset = _find(origin, engine="openvino")
        reset()
    body = {"input_ids": 1, "input_lengths": 1, "request_output_len": 1, "parameters": {"reset_prefix_cache": True}}
    assert calls == [("/v2/models/tensorrt_llm/generate", body)] * 2
    assert str(reset) == "reset_prefix_cache of the model tensorrt_llm"


def test_a_busy_server_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_cache_reset, "_PAUSE_S", 0.0)
    with _serving(_BUSY, _BUSY, _EMPTIED) as (origin, calls):
        _find(origin, engine="openvino")
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((500, {"error": "TensorRT-LLM's LLM API has no call"}), "the model tensorrt_llm: TensorRT-LLM's LLM API has no call"),
        ((200, {"model_name": "tensorrt_llm", "output_ids": [3]}), "it generated a token instead"),
    ],
)
def test_a_server_that_refuses_is_an_error(answer: tuple[int, dict[str, Any]], problem: str) -> None:
    with _serving(answer) as (origin, calls), pytest.raises(TargetError, match=f"--reset_prefix_cache: .*{problem}"):
        _find(origin, engine="tensorrt_llm")
    assert len(calls) == 1


def test_nvidias_backend_has_no_call_and_is_sent_nothing() -> None:
    with (
        _serving(_EMPTIED) as (origin, calls),
        pytest.raises(TargetError, match=r"NVIDIA's C\+\+ .* restart the server"),
    ):
        _find(origin, gpt_model_type="inflight_fused_batching")
    assert calls == []
