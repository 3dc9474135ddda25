"""Requests and chunks of OpenAI's completions, with the shapes that vLLM, SGLang, llama.cpp and OpenAI give them.

What they share with the chat completions, ``test_openai_chat.py`` tests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from bench_records.record import Outcome, Record, TokenSource
from harness.clients.openai_completions import OpenAICompletionsClient
from harness.clients.protocol import MalformedResponseError, Response
from harness.clients.transport.url import Origin
from harness.journal.worker_journal import Exchange
from harness.recording.recorder import Recorder
from harness.recording.schedule_summary import summarise_schedule
from tests.harness.clients.scripted_http import EVENTS_HEAD, Peer, chunked, exchange, plain, serving
from workloads.elements.request import Request, Variant
from workloads.elements.token_ids import token_ids
from workloads.schedule.schedule import Schedule


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def _client(**settings: Any) -> OpenAICompletionsClient:
    return OpenAICompletionsClient(Origin("http", "127.0.0.1", 8000), "llama", **settings)


def _encoded(client: OpenAICompletionsClient, request: Request) -> tuple[str, dict[str, Any]]:
    head, _, body = client.encode(3, request).partition(b"\r\n\r\n")
    return head.decode(), json.loads(body)


# ---- encoding


_REQUEST = Request(output_tokens=20, prompt="Grüße\ud800", input_ids=token_ids((5, 70_000, 7)))


@pytest.mark.parametrize(("as_ids", "prompt"), [(True, [5, 70_000, 7]), (False, "Grüße?")])
def test_a_prompt_is_sent_in_one_form_with_what_every_server_takes_and_no_more(as_ids: bool, prompt: object) -> None:
    head, fields = _encoded(_client(token_ids=as_ids), _REQUEST)
    assert head.startswith("POST /v1/completions HTTP/1.1\r\n")
    assert "authorization" not in head
    assert fields == {
        "model": "llama",
        "prompt": prompt,
        "max_tokens": 20,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_running_counts_are_asked_for_where_the_trial_found_them() -> None:
    _, fields = _encoded(_client(continuous_usage=True), _REQUEST)
    assert fields["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_request_that_is_not_streamed_has_no_options_of_streams() -> None:
    head, fields = _encoded(_client(streaming=False), _REQUEST)
    assert "accept: application/json\r\n" in head
    assert (fields["stream"], "stream_options" in fields) == (False, False)


def test_what_the_user_asks_for_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    client = _client(path="/proxy/go", headers={"X-Route": "a"}, extra={"temperature": 0, "min_tokens": 3}).for_run("0123")
    variant = Variant("adapter")
    head, fields = _encoded(client, Request(output_tokens=20, prompt="x", ignore_eos=True, variant=variant))
    assert head.startswith("POST /proxy/go HTTP/1.1\r\n")
    for line in ("x-route: a", "x-request-id: 01230000-0000-4000-8000-000000000003", "authorization: Bearer sk-secret"):
        assert f"\r\n{line}\r\n" in head
    assert (fields["model"], fields["ignore_eos"], fields["temperature"], fields["min_tokens"]) == ("adapter", True, 0, 3)


@pytest.mark.parametrize(("as_ids", "request_"), [(True, Request(1, prompt="x")), (False, Request(1, input_ids=(1,)))])
def test_the_prompt_is_needed_in_the_form_in_which_it_is_sent(as_ids: bool, request_: Request) -> None:
    with pytest.raises(ValueError, match="this request has none"):
        _client(token_ids=as_ids).encode(0, request_)


# ---- decoding


def _text(text: str | None, reason: object = None, **others: Any) -> dict[str, Any]:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason, "stop_reason": None}
    return {"id": "cmpl-1", "object": "text_completion", "choices": [choice], **others}


_COUNTS = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
_USAGE = {"id": "cmpl-1", "object": "text_completion", "choices": [], "usage": _COUNTS}


@pytest.mark.parametrize(
    ("chunk", "response"),
    [
        (_text("The"), Response(text="The")),
        (_text(""), Response(text="")),
        (_text(None), Response()),
        (_text("The", usage=None), Response(text="The")),
        (_text(" sea", "length"), Response(text=" sea", finish_reasons=("length",))),
        (_text("", "stop"), Response(text="", finish_reasons=("stop",))),
        (_text("A", usage=_COUNTS), Response(text="A", server_tokens_so_far=4, server_input_tokens=3)),
        (_USAGE, Response(server_tokens_so_far=4, server_input_tokens=3)),
        (_USAGE | {"usage": _COUNTS | {"prompt_tokens_details": {"cached_tokens": 2}}},
         Response(server_tokens_so_far=4, server_input_tokens=3, server_cached_tokens=2)),
        (_text("All of it", "stop", usage=_COUNTS),
         Response(text="All of it", finish_reasons=("stop",), server_tokens_so_far=4, server_input_tokens=3)),
        ({"choices": [{"index": 1, "text": "B"}]}, Response(text="B", choices=2)),
        (_text("", "abort"), Response(error="the server broke the answer off: its finish_reason is abort")),
        ({"error": {"message": "no", "code": 400}}, Response(error="no")),
        ({"object": "error", "message": "The request queue is full."},
         Response(error="The request queue is full.", refused=True)),
    ],
)  # fmt: skip
def test_chunks_of_every_shape(chunk: dict[str, Any], response: Response) -> None:
    assert _client().decode(json.dumps(chunk).encode()) == response


@pytest.mark.parametrize("body", [b"", b"null", b"[DONE]", b"{}", b'{"choices": 1}', b'{"choices":[{"text":1}]}', b"\xff"])
def test_what_is_no_chunk_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedResponseError, match="not a completion"):
        _client().decode(body)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_chunk_or_malformed(body: bytes) -> None:
    with suppress(MalformedResponseError):
        assert isinstance(_client().decode(body), Response)


# ---- records


def _record(chunks: Sequence[tuple[int, dict[str, Any]]], request: Request | None = None, as_ids: bool = True) -> Record:
    request = request or Request(output_tokens=4, input_ids=token_ids((5, 6, 7)), input_tokens=3)
    recorder = Recorder(summarise_schedule(Schedule((request,), (0,), seed=0)), _client(token_ids=as_ids), None)
    bodies = [json.dumps(chunk).encode() for _, chunk in chunks]
    return recorder.record(Exchange(0, 1, 1, 2, 9_999, [ns for ns, _ in chunks], bodies, None, None), 0)


def test_each_chunk_has_a_token_where_the_last_one_has_the_finish_reason() -> None:
    """As vLLM sends them: the third has a character that is not complete yet."""
    record = _record([(10, _text("The")), (20, _text(" s")), (30, _text("")), (40, _text("é", "length")), (50, _USAGE)])
    assert (record.outcome, record.finish_reason) == (Outcome.DONE, "length")
    assert (record.token_times_ns, record.token_counts) == ((10, 20, 30, 40), (1, 1, 1, 1))
    assert (record.output_tokens, record.output_tokens_source) == (4, TokenSource.SERVER)
    assert (record.input_tokens, record.server_counted_input, record.prompt_echoed) == (3, True, None)


def test_an_empty_chunk_that_ends_the_answer_carries_no_token() -> None:
    """As llama.cpp sends it, with the usage."""
    record = _record([*((10 * k, _text(word)) for k, word in enumerate("abcd", 1)), (50, _text("", "stop", usage=_COUNTS))])
    assert (record.token_times_ns, record.token_counts) == ((10, 20, 30, 40), (1, 1, 1, 1))
    assert (record.finish_reason, record.output_tokens) == ("stop", 4)


def test_running_counts_give_each_chunks_tokens() -> None:
    steps = [("The sea", 2, None), (" is", 3, None), ("", 4, "stop")]
    chunks = [
        (10 * k, _text(text, reason, usage=_COUNTS | {"completion_tokens": count}))
        for k, (text, count, reason) in enumerate(steps, 1)
    ]
    record = _record([*chunks, (50, _USAGE)])
    assert (record.token_times_ns, record.token_counts) == ((10, 20, 30), (2, 1, 1))


def test_an_echoed_prompt_is_seen() -> None:
    prompt = "Write of the sea, and of the wind"
    request = Request(output_tokens=4, prompt=prompt, input_ids=token_ids(range(9)), input_tokens=9)
    assert _record([(10, _text(f"{prompt} The sea")), (50, _USAGE)], request).prompt_echoed is True
    assert _record([(10, _text("The sea")), (50, _USAGE)], request, as_ids=False).prompt_echoed is False


@pytest.mark.parametrize(
    ("echo", "is_echo"), [("The prompt, and its end \u00e9", True), ("Another text, of the same length", False)]
)
def test_a_prompt_of_ids_that_ends_within_a_character_is_seen_in_an_answer(echo: str, is_echo: bool) -> None:
    """vLLM repeats such a prompt as text, with the character that the answer completes."""
    request = Request(output_tokens=4, input_ids=token_ids((5, 6, 7)), input_tokens=3)
    schedule = Schedule((request,), (0,), seed=0)
    summary = summarise_schedule(schedule, lambda ids: f"The prompt, and its end {chr(0xFFFD) * (len(ids) - 2)}")
    recorder = Recorder(summary, _client(token_ids=True), lambda text: len(text.split()))
    bodies = [json.dumps(chunk).encode() for chunk in (_text(f"{echo} sea"), _text(" is", "length"), _USAGE)]
    record = recorder.record(Exchange(0, 1, 1, 2, 9_999, [10, 20, 30], bodies, None, None), 0)
    assert (record.prompt_echoed, record.output_tokens) == (is_echo, 4)
    assert record.text_tokens == (3 if is_echo else 8)


# ---- against a server


def test_a_stream_and_an_error_of_a_server() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        events = [json.dumps(chunk).encode() for chunk in (_text("The"), _text(" sea", "length"), _USAGE)]
        await peer.send(EVENTS_HEAD + chunked(*(b"data: " + event + b"\n\n" for event in (*events, b"[DONE]"))))
        await peer.read_request()
        await peer.send(plain(b'{"error":{"message":"prompt: 9999 is out of vocabulary"}}', b"400 Bad Request"))

    async def run() -> None:
        async with serving(script) as origin:
            client = OpenAICompletionsClient(origin, "llama", token_ids=True)
            connection = await client.connect(5.0)
            payload = client.encode(0, _REQUEST)
            bodies, outcome, _ = await exchange(connection, payload)
            assert ([client.decode(body).text for body in bodies], outcome) == (["The", " sea", None], None)
            _, outcome, message = await exchange(connection, payload)
            assert (outcome, message) == (Outcome.SERVER_ERROR, "HTTP status 400: prompt: 9999 is out of vocabulary")
            await connection.close()

    uvloop.run(run())
