"""Requests and chunks of vLLM's tokens in and out, with the shapes that vLLM 0.32 gives them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_records.record import Record, TokenSource
from harness.clients.protocol import MalformedResponseError, Response
from harness.clients.transport.url import Origin
from harness.clients.vllm_tokens import VllmTokensClient
from harness.journal.worker_journal import Exchange
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import summarise_schedule
from workloads.elements.request import Request, Variant
from workloads.elements.token_ids import token_ids
from workloads.schedule.schedule import Schedule


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def _client(**settings: Any) -> VllmTokensClient:
    return VllmTokensClient(Origin("http", "127.0.0.1", 8000), "llama", **settings)


def _encoded(client: VllmTokensClient, request: Request) -> tuple[str, dict[str, Any]]:
    head, _, body = client.encode(3, request).partition(b"\r\n\r\n")
    return head.decode(), json.loads(body)


_REQUEST = Request(output_tokens=20, prompt="x", input_ids=token_ids((5, 70_000, 7)))


def test_the_ids_of_a_prompt_are_sent_with_the_sampling_beside() -> None:
    head, fields = _encoded(_client(continuous_usage=True).for_run("0123"), _REQUEST)
    assert head.startswith("POST /inference/v1/generate HTTP/1.1\r\n")
    assert "\r\nx-request-id: 01230000-0000-4000-8000-000000000003" in head
    assert fields == {
        "model": "llama",
        "token_ids": [5, 70_000, 7],
        "sampling_params": {"max_tokens": 20},
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def test_the_users_fields_are_sampling_except_those_of_the_request() -> None:
    client = _client(streaming=False, extra={"temperature": 0, "seed": 3, "priority": 2, "cache_salt": "a"})
    request = Request(output_tokens=9, input_ids=(1,), ignore_eos=True, variant=Variant("adapter"))
    assert _encoded(client, request)[1] == {
        "model": "adapter",
        "token_ids": [1],
        "sampling_params": {"temperature": 0, "seed": 3, "max_tokens": 9, "ignore_eos": True},
        "stream": False,
        "priority": 2,
        "cache_salt": "a",
    }


def test_a_prompt_without_ids_cannot_be_sent() -> None:
    with pytest.raises(ValueError, match="this request has none"):
        _client().encode(0, Request(1, prompt="x"))


def _chunk(ids: list[int] | None, reason: str | None = None, **others: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": reason, "stop_reason": None, "token_ids": ids, "logprobs": None}
    return {"request_id": "generate-tokens-0123-3", "output_mode": "tokens", "usage": None, "choices": [choice]} | others


_COUNTS = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
_USAGE = {"request_id": "g", "output_mode": "tokens", "choices": [], "usage": _COUNTS}


@pytest.mark.parametrize(
    ("chunk", "response"),
    [
        (_chunk([7]), Response(token_ids=(7,))),
        (_chunk([7, 8], "length"), Response(token_ids=(7, 8), finish_reasons=("length",))),
        (_chunk([], "stop"), Response(token_ids=(), finish_reasons=("stop",))),
        (_chunk(None, "stop"), Response(token_ids=(), finish_reasons=("stop",))),
        (_chunk([7], usage=_COUNTS), Response(token_ids=(7,), server_tokens_so_far=4, server_input_tokens=3)),
        (_USAGE, Response(token_ids=(), server_tokens_so_far=4, server_input_tokens=3)),
        (_chunk([], "abort"), Response(error="the server broke the answer off: its finish_reason is abort")),
        ({"error": {"message": "no such model", "code": 404}}, Response(error="no such model")),
        ({"choices": [{"index": 0, "token_ids": [1]}, {"index": 1, "token_ids": [2]}]}, Response(token_ids=(1, 2), choices=2)),
    ],
)
def test_chunks_of_every_shape(chunk: dict[str, Any], response: Response) -> None:
    assert _client().decode(json.dumps(chunk).encode()) == response


@pytest.mark.parametrize("body", [b"", b"null", b"[DONE]", b"{}", b'{"choices":[{"token_ids":["a"]}]}', b"\xff"])
def test_what_is_no_chunk_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedResponseError, match="not a generation of token ids"):
        _client().decode(body)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_chunk_or_malformed(body: bytes) -> None:
    with suppress(MalformedResponseError):
        assert isinstance(_client().decode(body), Response)


def _record(*chunks: dict[str, Any]) -> Record:
    request = Request(output_tokens=4, input_ids=(5, 6, 7), input_tokens=3)
    recorder = Recorder(summarise_schedule(Schedule((request,), (0,), 0)), _client())
    bodies = [json.dumps(chunk).encode() for chunk in chunks]
    times = [1_000 * (k + 1) for k in range(len(bodies))]
    return recorder.record(Exchange(0, 0, 0, 10, 9_000, times, bodies, None, None), 0)


def test_tokens_are_those_of_the_ids_at_their_times_and_the_total_is_the_servers() -> None:
    record = _record(_chunk([7]), _chunk([8, 9]), _chunk([10], "length"), _USAGE)
    assert (record.token_times_ns, record.token_counts) == ((1_000, 2_000, 3_000), (1, 2, 1))
    assert (record.output_tokens, record.output_tokens_source) == (4, TokenSource.SERVER)
    assert (record.input_tokens, record.server_counted_input) == (3, True)


def test_a_total_that_is_not_that_of_the_ids_stays_visible() -> None:
    record = _record(_chunk([7]), _chunk([8], "length"), _USAGE)
    assert record.token_counts is not None
    assert (record.output_tokens, sum(record.token_counts)) == (4, 2)


def test_without_a_usage_after_them_the_ids_are_counted() -> None:
    for chunks in ([], [_USAGE]):
        record = _record(*chunks, _chunk([7]), _chunk([8], "length"))
        assert (record.output_tokens, record.output_tokens_source) == (2, TokenSource.IDS)
