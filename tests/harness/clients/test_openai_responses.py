"""Requests and events of OpenAI's Responses, with the shapes that vLLM 0.32 and OpenAI's reference give them."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_records.record import Outcome, Record, TokenSource
from harness.clients.openai_responses import OpenAIResponsesClient
from harness.clients.protocol import MalformedResponseError, Response
from harness.clients.transport.url import Origin
from harness.journal.worker_journal import Exchange
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import summarise_schedule
from workloads.elements.request import Message, Request
from workloads.schedule.schedule import Schedule


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def _client(**settings: Any) -> OpenAIResponsesClient:
    return OpenAIResponsesClient(Origin("http", "127.0.0.1", 8000), "llama", **settings)


def _encoded(client: OpenAIResponsesClient, request: Request) -> tuple[str, dict[str, Any]]:
    head, _, body = client.encode(3, request).partition(b"\r\n\r\n")
    return head.decode(), json.loads(body)


def test_a_prompt_is_the_input_of_an_answer_that_is_not_stored() -> None:
    head, fields = _encoded(_client(extra={"temperature": 0}), Request(20, prompt="Grüße\ud800", ignore_eos=True))
    assert head.startswith("POST /v1/responses HTTP/1.1\r\n")
    assert fields == {
        "model": "llama", "input": "Grüße?", "max_output_tokens": 20, "stream": True, "store": False, "ignore_eos": True,
        "temperature": 0,
    }  # fmt: skip


def test_a_conversation_is_messages() -> None:
    history = (Message("system", "Be short."), Message("user", "a"), Message("assistant", "b"))
    _, fields = _encoded(_client(streaming=False), Request(5, prompt="c", history=history))
    assert fields["input"] == [
        {"role": "system", "content": "Be short."}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]  # fmt: skip
    assert fields["stream"] is False


def test_a_prompt_without_text_cannot_be_sent() -> None:
    with pytest.raises(ValueError, match="this request has none"):
        _client().encode(0, Request(1, input_ids=(1,)))


_USAGE = {
    "input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "input_tokens_details": {"cached_tokens": 2},
    "output_tokens_details": {"reasoning_tokens": 0},
}  # fmt: skip
_MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "All of it"}]}
_CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
_COUNTED = {"server_tokens_so_far": 4, "server_input_tokens": 3, "server_cached_tokens": 2}


def _answer(**fields: Any) -> dict[str, Any]:
    answer = {"id": "resp_1", "object": "response", "status": "completed", "error": None, "output": [_MESSAGE], "usage": _USAGE}
    return answer | fields


def _event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "sequence_number": 3, **fields}


@pytest.mark.parametrize(
    ("event", "response"),
    [
        (_event("response.created", response=_answer(status="in_progress", usage=None, output=[])), Response()),
        (_event("response.output_item.added", item=_MESSAGE), Response()),
        (_event("response.output_text.delta", delta="The", logprobs=[]), Response(text="The")),
        (_event("response.output_text.delta", delta=""), Response(text="")),
        (_event("response.output_text.delta", delta="The", error=""), Response(text="The")),
        (_event("response.output_text.done", text="All of it"), Response()),
        (_event("response.reasoning_text.delta", delta="Hm"), Response(text="Hm", reasoning_characters=2)),
        (_event("response.reasoning_summary_text.delta", delta="Hm"), Response(text="Hm", reasoning_characters=2)),
        (_event("response.function_call_arguments.delta", delta='{"a"'), Response(text='{"a"')),
        (_event("response.completed", response=_answer()), Response(finish_reasons=("stop",), **_COUNTED)),
        (_event("response.completed", response=_answer(**_CUT)), Response(finish_reasons=("length",), **_COUNTED)),
        (_event("response.incomplete", response=_answer(**_CUT)), Response(finish_reasons=("length",), **_COUNTED)),
        (_event("response.incomplete", response=_answer(status="incomplete", usage=None)),
         Response(finish_reasons=("incomplete",))),
        (_event("response.failed", response=_answer(status="failed", error={"code": "x", "message": "it broke"})),
         Response(error="it broke")),
        *(
            (_event(kind, response=_answer(status="cancelled", usage=None)),
             Response(error="the server broke the answer off: its status is cancelled"))
            for kind in ("response.completed", "response.cancelled")
        ),
        (_event("response.completed", response=_answer(status="failed", error={"message": "it broke"})),
         Response(error="it broke")),
        (_answer(status="cancelled"), Response(error="the server broke the answer off: its status is cancelled")),
        (_event("error", message="The queue is full", code="y"), Response(error="The queue is full", refused=True)),
        ({"error": {"message": "no", "code": 400}}, Response(error="no")),
        (_answer(), Response(text="All of it", finish_reasons=("stop",), **_COUNTED)),
        (_answer(output=[{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}]}, _MESSAGE], **_CUT),
         Response(text="HmAll of it", reasoning_characters=2, finish_reasons=("length",), **_COUNTED)),
        (_answer(output=[{"type": "function_call", "arguments": "{}"}]),
         Response(text="{}", finish_reasons=("stop",), **_COUNTED)),
        (_answer(error={}, output=[], usage=None), Response(text="", finish_reasons=("stop",))),
        (_answer(output=[], usage=None), Response(text="", finish_reasons=("stop",))),
        (
            _answer(output=[], usage={"output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 5}}),
            Response(text="", finish_reasons=("stop",), server_tokens_so_far=9, server_reasoning_tokens=5),
        ),
        (_answer(status="failed", error={"message": "it broke"}), Response(error="it broke")),
    ],
)  # fmt: skip
def test_events_and_answers_of_every_shape(event: dict[str, Any], response: Response) -> None:
    assert _client().decode(json.dumps(event).encode()) == response


def test_a_marker_of_a_gateway_is_no_answer() -> None:
    assert _client().decode(b"[DONE]") == Response()


@pytest.mark.parametrize("body", [b"", b"null", b"{}", b'{"type": 1}', b'{"object": "chat.completion"}', b"\xff"])
def test_what_is_no_event_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedResponseError, match="not an "):
        _client().decode(body)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_event_or_malformed(body: bytes) -> None:
    with suppress(MalformedResponseError):
        assert isinstance(_client().decode(body), Response)


def _record(*events: dict[str, Any], client: OpenAIResponsesClient) -> Record:
    request = Request(output_tokens=4, prompt="x")
    recorder = Recorder(summarise_schedule(Schedule((request,), (0,), 0)), client)
    bodies = [json.dumps(event).encode() for event in events]
    times = [1_000 * (k + 1) for k in range(len(bodies))]
    return recorder.record(Exchange(0, 0, 0, 10, 9_000, times, bodies, None, None), 0)


def test_the_first_token_is_the_first_delta_and_the_last_the_last_one() -> None:
    deltas = [_event("response.output_text.delta", delta=text) for text in ("All", " of", " it", "!")]
    before = [_event("response.created", response=_answer(status="in_progress")), _event("response.content_part.added")]
    after = [_event("response.output_text.done", text="All of it!"), _event("response.completed", response=_answer(**_CUT))]
    record = _record(*before, *deltas, *after, client=_client())
    assert record.outcome is Outcome.DONE
    assert (record.token_times_ns, record.token_counts) == ((3_000, 4_000, 5_000, 6_000), (1, 1, 1, 1))
    assert (record.output_tokens, record.output_tokens_source, record.input_tokens) == (4, TokenSource.SERVER, 3)
    assert (record.finish_reason, record.cached_input_tokens) == ("length", 2)
