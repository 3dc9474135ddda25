"""What one completion shows of a server's token counts."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.openai_completions import OpenAICompletionsClient
from harness.clients.openai_trial import OpenAITrial, try_openai
from harness.clients.transport.url import Origin
from tests.harness.clients.scripted_http import EVENTS_HEAD, Peer, chunked, plain, serving

Answer = Callable[[dict[str, Any]], tuple[bytes, ...]]


def _events(*chunks: dict[str, Any]) -> tuple[bytes, ...]:
    events = (b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)
    return (EVENTS_HEAD, chunked(*events, b"data: [DONE]\n\n"))


def _chunk(text: str, usage: int | None = None, role: str | None = None) -> dict[str, Any]:
    delta = {"content": text} | ({} if role is None else {"role": role})
    counts = {} if usage is None else {"usage": {"prompt_tokens": 9, "completion_tokens": usage}}
    return {"choices": [{"index": 0, "delta": delta}]} | counts


_TOTAL = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}
_REFUSAL = plain(b'{"error": {"message": "unknown field continuous_usage_stats"}}', status=b"400 Bad Request")


def _as_vllm(body: dict[str, Any]) -> tuple[bytes, ...]:
    if not body["stream_options"].get("continuous_usage_stats"):
        return _as_sglang(body)
    return _events(_chunk("", 0, "assistant"), _chunk("a", 1), _chunk("", 2), _chunk("b", 3), _TOTAL)


def _without_text(body: dict[str, Any]) -> tuple[bytes, ...]:
    """As vLLM of a model with random weights, whose tokens have no text."""
    return _events(_chunk("", 0, "assistant"), _chunk("", 1), _chunk("", 2), _chunk("", 3), _TOTAL)


def _as_sglang(body: dict[str, Any]) -> tuple[bytes, ...]:
    return _events(_chunk("", role="assistant"), _chunk("a"), _chunk("b"), _chunk("c"), _TOTAL)


def _as_openai(body: dict[str, Any]) -> tuple[bytes, ...]:
    return (_REFUSAL,) if "continuous_usage_stats" in body["stream_options"] else _as_sglang(body)


def _total_in_each_chunk(body: dict[str, Any]) -> tuple[bytes, ...]:
    """No running count: the same number everywhere."""
    return _events(_chunk("a", 3), _chunk("b", 3), _chunk("c", 3))


def _without_counts(body: dict[str, Any]) -> tuple[bytes, ...]:
    return _events(_chunk("a"), _chunk("b"))


_STOP = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


def _with_a_finish_reason(body: dict[str, Any]) -> tuple[bytes, ...]:
    return _events(_chunk("a"), _chunk("b"), _STOP, _TOTAL)


def _without_its_end_marker(body: dict[str, Any]) -> tuple[bytes, ...]:
    """As transformers serve."""
    events = (b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in (_chunk("a"), _STOP, _TOTAL))
    return (EVENTS_HEAD, chunked(*events))


def _broken(body: dict[str, Any]) -> tuple[bytes, ...]:
    return (plain(b"no", status=b"500 Internal Server Error"),)


@contextmanager
def _server(answer: Answer) -> Iterator[Origin]:
    """A server on a thread of its own, since the trial has its own event loop."""
    origins: list[Origin] = []
    ready, stop = threading.Event(), threading.Event()

    async def script(peer: Peer) -> None:
        while True:
            _, body = await peer.read_request()
            await peer.send(*answer(json.loads(body)))

    async def serve() -> None:
        async with serving(script) as origin:
            origins.append(origin)
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(120)
    try:
        yield origins[0]
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("answer", "trial"),
    [
        (_as_vllm, OpenAITrial(True, 9)),
        (_without_text, OpenAITrial(True, 9)),
        (_as_sglang, OpenAITrial(False, 9)),
        (_as_openai, OpenAITrial(False, 9)),
        (_total_in_each_chunk, OpenAITrial(False, 9)),
        (_without_counts, OpenAITrial(False, None)),
        (_with_a_finish_reason, OpenAITrial(False, 9, finish_reason=True)),
        (_without_its_end_marker, OpenAITrial(False, 9, finish_reason=True)),
        (_broken, OpenAITrial(False, None)),
    ],
)
def test_servers_of_every_kind(answer: Answer, trial: OpenAITrial) -> None:
    with _server(answer) as origin:
        assert try_openai(OpenAIChatClient(origin, "m"), lambda: 5.0) == trial


def test_no_server_is_no_error_of_the_trial() -> None:
    assert try_openai(OpenAIChatClient(Origin("http", "127.0.0.1", 1), "m"), lambda: 1.0) == OpenAITrial(False, None)


# ---- completions


def _text(text: str, usage: int | None = None, reason: str | None = None) -> dict[str, Any]:
    counts = {} if usage is None else {"usage": {"prompt_tokens": 1, "completion_tokens": usage}}
    return {"choices": [{"index": 0, "text": text, "finish_reason": reason}]} | counts


_TEXT_TOTAL = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 3}}


def _completion_of_vllm(body: dict[str, Any]) -> tuple[bytes, ...]:
    if not body["stream_options"].get("continuous_usage_stats"):
        return _events(_text("a"), _text(""), _text("b", reason="length"), _TEXT_TOTAL)
    return _events(_text("a", 1), _text("", 2), _text("b", 3, "length"), _TEXT_TOTAL)


def _completion_of_llama_cpp(body: dict[str, Any]) -> tuple[bytes, ...]:
    return _events(_text("a"), _text("b"), _text("c"), _text("", reason="length"), _TEXT_TOTAL)


@pytest.mark.parametrize("as_ids", [True, False])
@pytest.mark.parametrize(
    ("answer", "trial"),
    [
        (_completion_of_vllm, OpenAITrial(True, 1, finish_reason=True)),
        (_completion_of_llama_cpp, OpenAITrial(False, 1, finish_reason=True)),
        (_broken, OpenAITrial(False, None)),
    ],
)
def test_completions_are_tried_in_the_form_of_the_run(answer: Answer, trial: OpenAITrial, as_ids: bool) -> None:
    asked: list[Any] = []

    def noted(body: dict[str, Any]) -> tuple[bytes, ...]:
        asked.append(body["prompt"])
        return answer(body)

    with _server(noted) as origin:
        assert try_openai(OpenAICompletionsClient(origin, "m", token_ids=as_ids), lambda: 5.0) == trial
    assert asked[0] == ([64] if as_ids else "a")
