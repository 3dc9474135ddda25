"""Requests and chunks of OpenAI's chat completions, with the shapes that vLLM, trtllm-serve, SGLang and gateways give them."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from bench_records.record import Outcome, Record, TokenSource
from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.openai_server import choose_model, served_models, unlisted_model
from harness.clients.protocol import MalformedResponseError, Response
from harness.clients.server_times import ServerTimes
from harness.clients.transport.url import Origin
from harness.errors import TargetError
from harness.journal.worker_journal import Exchange
from harness.recording.recorder import CountTokens, Recorder
from harness.recording.schedule_summary import summarise_schedule
from tests.harness.clients.scripted_http import EVENTS_HEAD, Peer, chunked, exchange, plain, serving
from workloads.elements.request import Message, Request, Variant
from workloads.schedule.schedule import Schedule

_ORIGIN = Origin("http", "127.0.0.1", 8000)


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def _client(**settings: Any) -> OpenAIChatClient:
    return OpenAIChatClient(_ORIGIN, "llama", **settings)


def _encoded(client: OpenAIChatClient, request: Request) -> tuple[str, dict[str, Any]]:
    head, _, body = client.encode(3, request).partition(b"\r\n\r\n")
    return head.decode(), json.loads(body)


# ---- encoding


def test_streamed_request_has_what_every_server_takes_and_no_more() -> None:
    head, fields = _encoded(_client(), Request(output_tokens=20, prompt="Grüße"))
    assert head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert "authorization" not in head
    assert fields == {
        "model": "llama",
        "messages": [{"role": "user", "content": "Grüße"}],
        "max_tokens": 20,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_class_asks_for_its_model() -> None:
    _, fields = _encoded(_client(), Request(output_tokens=20, prompt="x", traffic_class="sql", variant=Variant("adapter")))
    assert fields["model"] == "adapter"


def test_a_history_goes_before_the_prompt() -> None:
    history = (Message("system", "Be brief."), Message("user", "a"), Message("assistant", "b\ud800"))
    messages = _encoded(_client(), Request(5, prompt="c", history=history))[1]["messages"]
    assert [(message["role"], message["content"]) for message in messages] == [
        ("system", "Be brief."), ("user", "a"), ("assistant", "b?"), ("user", "c"),
    ]  # fmt: skip


def test_request_that_is_not_streamed_has_no_options_of_streams() -> None:
    _, fields = _encoded(_client(streaming=False), Request(output_tokens=20, prompt="x"))
    assert fields["stream"] is False
    assert "stream_options" not in fields


def test_what_the_user_asks_for_is_added() -> None:
    client = _client(path="/proxy/chat", headers={"X-Route": "a"}, extra={"temperature": 0, "nvext": {"x": 1}})
    head, fields = _encoded(client, Request(output_tokens=20, prompt="x", ignore_eos=True))
    assert head.startswith("POST /proxy/chat HTTP/1.1\r\n")
    assert "x-route: a" in head
    assert (fields["ignore_eos"], fields["temperature"], fields["nvext"]) == (True, 0, {"x": 1})


def test_times_are_asked_for_only_where_they_are_wanted() -> None:
    request = Request(output_tokens=20, prompt="x")
    assert _encoded(_client(times_fields={"include_metrics": True}), request)[1]["include_metrics"] is True
    assert "include_metrics" not in _encoded(_client(), request)[1]


def test_key_is_sent_and_is_in_nothing_that_could_be_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", " sk-secret\n")
    client = _client()
    head, _ = _encoded(client, Request(output_tokens=1, prompt="x"))
    assert "\r\nauthorization: Bearer sk-secret\r\n" in head
    assert "sk-secret" not in repr(client)
    assert b"sk-secret" not in pickle.dumps(client)


def test_requests_of_a_run_have_its_id_and_their_number_unless_the_user_sets_another() -> None:
    request = Request(output_tokens=1, prompt="x")
    assert "x-request-id" not in _encoded(_client(), request)[0]  # of no run
    assert "\r\nx-request-id: 0123abcd-0000-4000-8000-000000000003\r\n" in _encoded(_client().for_run("0123abcd"), request)[0]
    own = _encoded(_client(headers={"X-Request-ID": "mine"}).for_run("0123abcd"), request)[0]
    assert own.lower().count("x-request-id") == 1
    assert "\r\nx-request-id: mine\r\n" in own


def test_prompt_is_needed() -> None:
    with pytest.raises(ValueError, match="this request has none"):
        _client().encode(0, Request(output_tokens=1, input_ids=(1,)))


# ---- decoding


def _delta(**delta: Any) -> dict[str, Any]:
    return {"id": "1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def _call(name: str | None, arguments: str | None) -> list[dict[str, Any]]:
    """A piece of a call of a tool."""
    return [{"index": 0, "id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}]


_USAGE = {"id": "1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}}


@pytest.mark.parametrize(
    ("chunk", "response"),
    [
        (_delta(role="assistant", content=""), Response(text="", opening=True)),
        (_delta(role="assistant"), Response(text="", opening=True)),
        (_delta(role="assistant", content="The"), Response(text="The")),
        (_delta(content=""), Response(text="")),
        (_delta(), Response()),
        (_delta(content="The"), Response(text="The")),
        (_delta(content=None, reasoning_content="Let me"), Response(text="Let me", reasoning_characters=6)),
        (_delta(reasoning="Let me", reasoning_content="Let me", content=None), Response(text="Let me", reasoning_characters=6)),
        (_delta(reasoning="Let me", content="The"), Response(text="Let meThe", reasoning_characters=6)),
        (_delta(role="assistant", content=None, tool_calls=_call("f", "")), Response(text="f")),
        (_delta(tool_calls=_call(None, '{"a":')), Response(text='{"a":')),
        (_delta(tool_calls=[*_call("f", "{}"), *_call("g", "[]")]), Response(text="f{}g[]")),
        (_delta(tool_calls=_call("f", "{}"), reasoning="So"), Response(text="Sof{}", reasoning_characters=2)),
        (_delta(content=[{"type": "text", "text": "The"}, {"type": "text", "text": " sea"}]), Response(text="The sea")),
        (
            _delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}, {"text": "The"}]),
            Response(text="HmThe", reasoning_characters=2),
        ),
        (_delta(content=[{"type": "thinking", "thinking": "Hm"}]), Response(text="Hm", reasoning_characters=2)),
        (_delta(content=[{"type": "image_url", "image_url": "x"}, 5, {"text": 7, "thinking": 8}]), Response(text="")),
        (_delta(function_call={"name": "f", "arguments": "{"}), Response(text="f{")),
        (_delta(refusal="No"), Response(text="No")),
        *((_delta(tool_calls=odd, refusal=7, function_call="f"), Response()) for odd in ([], "f", [None, {}, {"function": 3}])),
        (_delta(content="The") | {"usage": None}, Response(text="The")),
        (_delta(content="A") | {"usage": _USAGE["usage"]}, Response(text="A", server_tokens_so_far=4, server_input_tokens=9)),
        (_USAGE, Response(server_tokens_so_far=4, server_input_tokens=9)),
        (_USAGE | {"metrics": {"queue_time_ms": 2, "time_to_first_token_ms": 8.5, "generation_time_ms": None}},
         Response(server_tokens_so_far=4, server_input_tokens=9,
                  server_times=ServerTimes(queue_ns=2_000_000, prefill_ns=8_500_000))),
        (_USAGE | {"metrics": None}, Response(server_tokens_so_far=4, server_input_tokens=9)),
        (_USAGE | {"nvext": {"timing": {"request_received_ms": 1_795_310_631_000, "prefill_wait_time_ms": 3.5}}},
         Response(server_tokens_so_far=4, server_input_tokens=9, server_times=ServerTimes(queue_ns=3_500_000))),
        ({"metrics": {"queue_time_ms": 2}}, Response(server_times=ServerTimes(queue_ns=2_000_000))),
        ({"metrics": {}, "timings": {"predicted_ms": 2}}, Response(server_times=ServerTimes(decode_ns=2_000_000))),
        ({"nvext": {"worker_id": 3}}, Response()),
        (_delta(content="A") | {"timings": {"prompt_ms": 4.5, "predicted_ms": 0.25}},
         Response(text="A", server_times=ServerTimes(prefill_ns=4_500_000, decode_ns=250_000))),
        ({"choices": [], "prompt_filter_results": []}, Response()),
        *(
            ({"choices": [], "usage": {"prompt_tokens": 9, "prompt_tokens_details": details}},
             Response(server_input_tokens=9, server_cached_tokens=cached))
            for details, cached in (
                ({"cached_tokens": 8}, 8), ({"cached_tokens": 0, "audio_tokens": 1}, 0), (None, None), ({}, None), ([], None),
                ({"cached_tokens": None}, None), ({"cached_tokens": -1}, None), ({"cached_tokens": True}, None),
                ({"cached_tokens": 1.5}, None), ({"cached_tokens": 2**31}, None), ("8", None),
            )
        ),
        ({"choices": [{"message": {"role": "assistant", "content": "All"}}]} | {"usage": _USAGE["usage"]},
         Response(text="All", server_tokens_so_far=4, server_input_tokens=9)),
        (_delta() | {"choices": [{"index": 2, "delta": {"content": "A"}, "finish_reason": "stop"}]},
         Response(text="A", choices=3, finish_reasons=("stop",))),
        ({"error": {"message": "no", "code": 400}}, Response(error="no")),
        ({"error": "no"}, Response(error="no")),
        *((_delta(content="A") | {"error": nothing}, Response(text="A")) for nothing in (None, "", {}, False)),
        ({"object": "error", "message": "no"}, Response(error="no")),
        ({"error": {"message": "The request queue is full.", "code": 503}},
         Response(error="The request queue is full.", refused=True)),
        ({"error": {"message": "Rate limit reached for m", "code": 429}},  # within a stream, whose status is 200
         Response(error="Rate limit reached for m", refused=True)),
    ],
)  # fmt: skip
def test_chunks_of_every_shape(chunk: dict[str, Any], response: Response) -> None:
    assert _client().decode(json.dumps(chunk).encode()) == response


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"null", b"[DONE]", b"{}", b'{"choices": 1}', b"\xff"),
        b'{"choices":[],"x":' + b"[" * 1_200,
        b'{"choices":[],"usage":{"completion_tokens":-1}}',
        b'{"choices":[],"usage":{"completion_tokens":2147483648}}',
        b'{"choices":[],"usage":{"prompt_tokens":1000000000000000000000000000000}}',
    ],
)
def test_what_is_no_chunk_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedResponseError):
        _client().decode(body)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"<html>Log in", "not a chat completion: JSON is malformed: invalid character (byte 0): b'<html>Log in'"),
        (b"", "not a chat completion: the body of the answer is empty"),
        (b" \r\n", "not a chat completion: the body of the answer is empty"),
        (b"{" + b" " * 500, "not a chat completion: Input data was truncated: b'{" + " " * 199 + "'"),
    ],
)
def test_the_message_shows_what_came_in_place_of_a_chunk(body: bytes, problem: str) -> None:
    with pytest.raises(MalformedResponseError) as caught:
        _client().decode(body)
    assert str(caught.value) == problem


@pytest.mark.parametrize("half", [r"\ud83d", r"\uDE00"])
def test_half_of_a_surrogate_pair_is_a_question_mark(half: str) -> None:
    """As of a server that cuts UTF-16 between two events."""
    body = json.dumps(_delta(content="a\u00fc\\X") | {"usage": _USAGE["usage"]}).replace("X", half).encode()
    assert _client().decode(body) == Response(text="a\u00fc\\?", server_tokens_so_far=4, server_input_tokens=9)
    with pytest.raises(MalformedResponseError):
        _client().decode(body[:-1])


@pytest.mark.parametrize("body", [b'{"object":"error","message":"\xe4"}', b'{"error":"x","hint":"\xe4"}'])
def test_an_error_that_is_no_utf_8_is_still_one_of_the_server(body: bytes) -> None:
    assert _client().decode(body).error == body.decode("utf-8", "replace")


_TEXT = st.sampled_from([None, "", "Ha", "\u00fc"])
_NAMES = ("role", "content", "reasoning", "reasoning_content", "refusal")
_CHOICE = st.fixed_dictionaries(
    {"delta": st.fixed_dictionaries({}, optional=dict.fromkeys(_NAMES, _TEXT))},
    optional={
        "index": st.sampled_from([None, 0, 1, -1, 0.0, False, True, "0", []]),
        "finish_reason": st.sampled_from([None, "", "stop", 0, 7, []]),
    },
)


@given(st.lists(_CHOICE, max_size=2))
def test_a_chunk_that_has_nothing_besides_its_choices_is_read_as_any_other(choices: list[dict[str, Any]]) -> None:
    chunk: dict[str, Any] = {"object": "chat.completion.chunk", "choices": choices}
    alone, beside = (_client().decode(json.dumps(fields).encode()) for fields in (chunk, {**chunk, "usage": {}}))
    assert alone == beside


@given(st.binary(max_size=60))
def test_any_bytes_are_a_chunk_or_malformed(body: bytes) -> None:
    with suppress(MalformedResponseError):
        assert isinstance(_client().decode(body), Response)


# ---- records


def _record(
    chunks: Sequence[tuple[int, dict[str, Any]]],
    count_tokens: CountTokens | None = None,
    failure: Outcome | None = None,
    index: int = 0,
    error: str | None = None,
) -> Record:
    request = Request(output_tokens=4, prompt="Write of the sea", input_tokens=5)
    schedule = Schedule((request,) * (index + 1), tuple(range(index + 1)), seed=0)
    recorder = Recorder(summarise_schedule(schedule), _client(), count_tokens)
    bodies = [json.dumps(chunk).encode() for _, chunk in chunks]
    return recorder.record(Exchange(index, 1, 1, 2, 9_999, [ns for ns, _ in chunks], bodies, failure, error), 0)


def _words(text: str) -> int:
    return len(text.split())


def test_role_and_usage_are_no_tokens() -> None:
    record = _record(
        [(10, _delta(role="assistant", content="")), (20, _delta(content="The sea")), (40, _delta(content=" is")), (50, _USAGE)]
    )
    assert (record.outcome, record.token_times_ns) == (Outcome.DONE, (20, 40))
    assert (record.output_tokens, record.output_tokens_source) == (4, TokenSource.SERVER)
    assert record.token_counts is None  # four tokens in two chunks: how many in which is unknown
    assert record.input_tokens == 9
    assert record.prompt_echoed is False


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
@pytest.mark.parametrize(
    ("deltas", "first_output_ns"),
    [
        ([{"": "Hm"}, {"": ", so"}, {"content": "The"}, {"content": " sea"}], 30),
        ([{"": "Hm"}, {"": ", so", "content": "The"}, {"content": " sea"}, {"content": "."}], 20),
        ([{"": "Hm"}, {"content": ""}, {"content": "The"}, {"": "Wait"}], 30),  # an empty chunk shows nothing
        ([{"": "Hm"}, {"content": "\n\n"}, {"content": "The"}, {"content": " sea"}], 30),  # nor does white space
        ([{"": "Hm"}, {"": ", so"}, {"": " the"}, {"": " sea"}], None),
    ],
)
def test_reasoning_is_generated_like_any_other_token_and_is_no_output(
    deltas: list[dict[str, str]], first_output_ns: int | None, name: str
) -> None:
    chunks = [_delta(**{key or name: text for key, text in delta.items()}) for delta in deltas]
    record = _record([*((10 * k, chunk) for k, chunk in enumerate(chunks, 1)), (50, _USAGE)])
    assert record.token_times_ns == (10, 20, 30, 40)
    assert (record.has_reasoning, record.first_output_ns) == (True, first_output_ns)


def test_an_answer_without_reasoning_has_no_output_time_of_its_own() -> None:
    record = _record([(10, _delta(role="assistant", content="")), (20, _delta(content="The")), (50, _USAGE)])
    assert (record.has_reasoning, record.first_output_ns) == (False, None)
    assert _record([(20, {"error": "no"})]).has_reasoning is None


@pytest.mark.parametrize(
    ("usage", "deltas", "hidden", "counts"),
    [
        ({"completion_tokens": 12, "total_tokens": 21}, [{"content": "The"}, {"content": " sea"}], 10, (11, 1)),
        ({"completion_tokens": 12}, [{"content": "The"}, {"content": " sea"}], 10, (11, 1)),
        ({"completion_tokens": 13}, [{"content": "The"}, {"content": " sea"}], 10, None),  # three tokens in two chunks
        ({"completion_tokens": 10}, [], 10, None),  # nothing but reasoning
        ({"completion_tokens": 12}, [{"reasoning": "Hm"}, {"content": " sea"}], None, None),  # the server sent it
        ({"completion_tokens": 11}, [{"content": "<think>"}, {"content": "Hm"}], None, None),  # so it did in the text
        (
            {"completion_tokens": 12, "total_tokens": 31},
            [{"content": "The"}, {"content": " sea"}],
            None,
            None,
        ),  # not among them
        ({"completion_tokens": 9}, [{"content": "The"}, {"content": " sea"}], None, None),
    ],
)
def test_reasoning_that_is_counted_and_not_sent_is_hidden(
    usage: dict[str, int], deltas: list[dict[str, str]], hidden: int | None, counts: tuple[int, ...] | None
) -> None:
    last = {"choices": [], "usage": {"prompt_tokens": 9, **usage, "completion_tokens_details": {"reasoning_tokens": 10}}}
    record = _record([*((10 * k, _delta(**delta)) for k, delta in enumerate(deltas, 1)), (50, last)])
    assert (record.hidden_tokens, record.token_counts, record.output_tokens) == (hidden, counts, usage["completion_tokens"])
    assert record.token_times_ns == (10, 20)[: len(deltas)]


@pytest.mark.parametrize(
    "details", [None, [], {}, {"reasoning_tokens": None}, {"reasoning_tokens": 0}, {"reasoning_tokens": "5"}]
)
def test_details_without_a_number_of_reasoning_tokens_hide_none(details: object) -> None:
    last = {"choices": [], "usage": {"completion_tokens": 4, "completion_tokens_details": details, "total_tokens": "x"}}
    assert _record([(10, _delta(content="The sea")), (50, last)]).hidden_tokens is None


def test_as_many_chunks_as_tokens_have_one_each() -> None:
    record = _record([(10 * k, _delta(content=word)) for k, word in enumerate("abcd", 1)] + [(50, _USAGE)])
    assert (record.token_counts, record.token_times_ns) == ((1, 1, 1, 1), (10, 20, 30, 40))


def _running(*steps: tuple[str, int]) -> list[tuple[int, dict[str, Any]]]:
    return [
        (10 * k, _delta(content=text) | {"usage": {"prompt_tokens": 9, "completion_tokens": count}})
        for k, (text, count) in enumerate(steps, 1)
    ]


@pytest.mark.parametrize(
    ("steps", "counts", "times"),
    [
        ([("", 0), ("The sea", 2), (" is", 3), ("", 3)], (2, 1), (20, 30)),
        ([("The", 1), ("", 2), (" s", 4)], (1, 1, 2), (10, 20, 30)),  # an incomplete character has no text yet
        ([("The", 1), (" sea", 2), ("", 3)], (1, 1, 1), (10, 20, 30)),  # the last token ends the sequence and has no text
        ([("The", 0), (" sea is", 0), ("", 4)], None, (10, 20)),  # the total alone, in the last chunk
        ([("The", 3), (" sea", 2)], (3, 2), (10, 20)),  # they fall, so each chunk has its own
        ([("The", 3), (" sea", 2), (" is", 4)], (3, 2, 4), (10, 20, 30)),
        ([], None, ()),
    ],
)
def test_counts_that_run_along_give_each_chunks_tokens(
    steps: list[tuple[str, int]], counts: tuple[int, ...] | None, times: tuple[int, ...]
) -> None:
    record = _record(_running(*steps))
    assert (record.token_counts, record.token_times_ns) == (counts, times)
    is_own = counts is not None and len(counts) == len(steps) and counts[0] == 3
    assert record.output_tokens == (sum(counts or ()) if is_own else steps[-1][1] if steps else None)


def test_an_answer_ends_with_the_tool_that_it_calls() -> None:
    call = [(30, _delta(tool_calls=_call("f", ""))), (40, _delta(tool_calls=_call(None, '{"a"'))), (50, _delta())]
    record = _record([(10, _delta(role="assistant", content="")), (20, _delta(content="Let me see")), *call, (60, _USAGE)])
    assert (record.token_times_ns, record.output_tokens, record.token_counts) == ((20, 30, 40), 4, None)
    alone = _record([(10, _delta(role="assistant", content=None)), *call, (60, _USAGE)])
    assert (alone.token_times_ns, alone.output_tokens) == ((30, 40), 4)


def test_answer_that_is_not_streamed_has_all_its_tokens_in_one_response() -> None:
    whole = {"choices": [{"message": {"content": "The sea is wide"}}], "usage": _USAGE["usage"]}
    record = _record([(70, whole)])
    assert (record.token_times_ns, record.token_counts, record.output_tokens) == ((70,), (4,), 4)


@pytest.mark.parametrize(("count_tokens", "tokens"), [(_words, 3), (None, None)])
def test_server_that_does_not_count_leaves_it_to_us(count_tokens: CountTokens | None, tokens: int | None) -> None:
    record = _record([(20, _delta(content="The sea")), (40, _delta(content=" is"))], count_tokens)
    assert (record.output_tokens, record.text_tokens) == (tokens, None)
    assert record.output_tokens_source is (None if tokens is None else TokenSource.TEXT)


def test_a_count_of_0_beside_text_is_none() -> None:
    zero = {"usage": {"prompt_tokens": 0, "completion_tokens": 0}}
    texts = [(20, _delta(content="The sea")), (40, _delta(content=" is"))]
    for chunks in ([*texts, (50, {"choices": []} | zero)], [(ns, delta | zero) for ns, delta in texts]):
        record = _record(chunks, _words)
        assert (record.output_tokens, record.output_tokens_source, record.text_chunks) == (3, TokenSource.TEXT, 2)
        assert (record.token_times_ns, record.input_tokens, record.server_counted_input) == ((20, 40), 5, False)
    empty = _record([(10, _delta(role="assistant", content="")), (50, {"choices": []} | zero)], _words)
    assert (empty.output_tokens, empty.output_tokens_source) == (0, TokenSource.SERVER)


def test_a_count_that_came_before_the_text_of_an_answer_that_was_cut_is_none() -> None:
    opening = _delta(role="assistant", content="") | {"usage": {"prompt_tokens": 9, "completion_tokens": 0}}
    record = _record([(10, opening), (20, _delta(content="The")), (30, _delta(content=" sea"))], failure=Outcome.WITHDRAWN)
    assert (record.output_tokens, record.output_tokens_source, record.input_tokens) == (None, None, 9)


@pytest.mark.parametrize(("index", "checked"), [(0, 2), (1, None), (16, 2)])
def test_some_answers_are_tokenised_again_to_check_the_servers_count(index: int, checked: int | None) -> None:
    record = _record([(20, _delta(content="The sea")), (50, _USAGE)], _words, index=index)
    assert (record.output_tokens, record.text_tokens) == (4, checked)


def test_cut_stream_keeps_what_came_and_has_no_count() -> None:
    record = _record([(20, _delta(content="The"))], failure=Outcome.STREAM_CUT)
    assert (record.outcome, record.token_times_ns, record.output_tokens) == (Outcome.STREAM_CUT, (20,), None)


def test_error_in_the_stream_is_the_servers_though_the_stream_ended_well() -> None:
    record = _record([(20, _delta(content="The")), (30, {"error": {"message": "engine died"}})])
    assert (record.outcome, record.error, record.token_times_ns) == (Outcome.SERVER_ERROR, "engine died", (20,))


@pytest.mark.parametrize("reason", ["abort", "error", "cancelled", "timeout", "insufficient_system_resource"])
def test_an_answer_that_the_server_broke_off_is_no_success(reason: str) -> None:
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    record = _record([(20, _delta(content="The")), (30, last), (50, _USAGE)])
    assert (record.outcome, record.token_times_ns) == (Outcome.SERVER_ERROR, (20,))
    assert record.error == f"the server broke the answer off: its finish_reason is {reason}"


@pytest.mark.parametrize(
    ("reason", "recorded"),
    [
        (None, None), ("", None), ("stop", "stop"), ("length", "length"), ("tool_calls", "tool_calls"),
        ("content_filter", "content_filter"), ({"type": "stop"}, '{"type":"stop"}'), (3, "3"), ("x" * 500, "x" * 60),
    ],
)  # fmt: skip
def test_an_answer_that_ended_by_itself_is_one(reason: object, recorded: str | None) -> None:
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    record = _record([(20, _delta(content="The")), (30, last), (50, _USAGE)])
    assert (record.outcome, record.finish_reason, record.end_marker_missing) == (Outcome.DONE, recorded, False)


def _ends(*choices: tuple[object, str | None]) -> dict[str, Any]:
    """A chunk of several choices, which end for the given reasons."""
    return {"choices": [{"index": index, "delta": {"content": "a"}, "finish_reason": reason} for index, reason in choices]}


@pytest.mark.parametrize(
    ("chunks", "reason"),
    [
        ((_ends((0, None)), _ends((1, None)), _ends((1, "stop")), _ends((0, "length"))), "stop"),
        ((_ends((0, None), (1, None)), _ends((0, "length"), (1, "stop"))), "length"),
        ((_ends((0, None)), _ends((1, None)), _ends((1, "stop"))), None),  # the first choice was cut
        ((_ends((None, None)), _ends((None, "stop"))), "stop"),  # a server that does not number its only choice
        ((_ends(("0", None)), _ends((-1, "stop"))), "stop"),
        ((_ends((2**70, None)), _ends((0, "stop"))), "stop"),
    ],
)
def test_an_answer_has_ended_when_each_of_its_choices_has(chunks: tuple[dict[str, Any], ...], reason: str | None) -> None:
    assert _record([*((10 * k, chunk) for k, chunk in enumerate(chunks, 1)), (90, _USAGE)]).finish_reason == reason


def test_a_stream_without_its_marker_is_complete_where_it_has_a_finish_reason() -> None:
    missing, last = "the stream ended without [DONE]", {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    whole = _record([(20, _delta(content="The")), (30, last), (50, _USAGE)], error=missing)
    assert (whole.outcome, whole.error, whole.end_marker_missing, whole.output_tokens) == (Outcome.DONE, None, True, 4)
    cut = _record([(20, _delta(content="The")), (50, _USAGE)], error=missing)
    assert (cut.outcome, cut.error, cut.token_times_ns) == (Outcome.STREAM_CUT, missing, (20,))
    assert _record([], error=missing).outcome is Outcome.STREAM_CUT


def test_stream_of_nothing_but_its_end_is_malformed() -> None:
    assert _record([]).outcome is Outcome.MALFORMED


# ---- against a server


def test_stream_that_ends_without_its_marker_is_remarked() -> None:
    async def script(peer: Peer) -> None:
        for marker in (b"data: [DONE]\n\n", b""):
            await peer.read_request()
            event = json.dumps(_delta(content="The")).encode()
            await peer.send(
                EVENTS_HEAD + chunked(b"data: " + event + b"\n\n", marker) if marker else EVENTS_HEAD + b"0\r\n\r\n"
            )

    async def run() -> None:
        async with serving(script) as origin:
            client = OpenAIChatClient(origin, "llama")
            connection = await client.connect(5.0)
            payload = client.encode(0, Request(output_tokens=1, prompt="x"))
            bodies, outcome, _ = await exchange(connection, payload)
            assert ([client.decode(body).text for body in bodies], outcome) == (["The"], None)
            assert await exchange(connection, payload) == ([], None, "the stream ended without [DONE]")
            await connection.close()

    uvloop.run(run())


@pytest.mark.parametrize("cut", [30, -2, -1])
def test_a_stream_whose_connection_ends_within_an_event_is_cut(cut: int) -> None:
    """The end of the connection is the end of the body where the server gives no length."""
    event = b"data: " + json.dumps(_delta(content="The")).encode() + b"\n\n"

    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", event, event[:cut])

    async def run() -> tuple[list[bytes], Outcome | None, str]:
        async with serving(script) as origin:
            connection = await OpenAIChatClient(origin, "llama").connect(5.0)
            answered = await exchange(connection, _client().encode(0, Request(output_tokens=1, prompt="x")))
            await connection.close()
            return answered

    bodies, failure, problem = uvloop.run(run())
    recorder = Recorder(summarise_schedule(Schedule((Request(4, prompt="x"),), (0,), seed=0)), _client())
    times_ns = list(range(10, 10 + len(bodies)))
    record = recorder.record(Exchange(0, 0, 0, 0, 99, times_ns, bodies, failure, problem), 0)
    assert (record.outcome, record.error) == (Outcome.STREAM_CUT, "the stream ended without [DONE]")
    assert record.token_times_ns == ((10,) if cut > 0 else (10, 11))


def test_an_event_that_is_no_chunk_is_malformed_where_the_stream_goes_on_or_has_its_marker() -> None:
    recorder = Recorder(summarise_schedule(Schedule((Request(4, prompt="x"),), (0,), seed=0)), _client())
    good, cut, missing = json.dumps(_delta(content="The")).encode(), b'{"choices":', "the stream ended without [DONE]"
    for bodies, error in (([good, cut], None), ([cut, good], missing), ([good, b'{"detail": "no"}'], missing)):
        assert recorder.record(Exchange(0, 0, 0, 0, 99, [10, 11], bodies, None, error), 0).outcome is Outcome.MALFORMED


def test_streamed_reasoning_gets_the_times_of_its_arrival() -> None:
    deltas = [{"role": "assistant"}, {"reasoning": "Hm"}, {"reasoning": ", so"}, {"content": "The"}, {"content": " sea"}]

    async def script(peer: Peer) -> None:
        await peer.read_request()
        events = [b"data: " + json.dumps(_delta(**delta)).encode() + b"\n\n" for delta in deltas]
        await peer.send(EVENTS_HEAD, *(b"%x\r\n%b\r\n" % (len(event), event) for event in events))
        await peer.send(chunked(b"data: " + json.dumps(_USAGE).encode() + b"\n\n", b"data: [DONE]\n\n"))

    async def run() -> None:
        async with serving(script) as origin:
            client = OpenAIChatClient(origin, "llama")
            connection = await client.connect(5.0)
            arrivals: list[tuple[int, bytes]] = []
            request = Request(output_tokens=4, prompt="x")
            await connection.exchange(client.encode(0, request), lambda ns, b: arrivals.extend(zip(ns, b, strict=True)), 5.0)
            await connection.close()
        times_ns, bodies = zip(*arrivals, strict=True)
        recorder = Recorder(summarise_schedule(Schedule((request,), (0,), seed=0)), client)
        record = recorder.record(Exchange(0, 0, 0, 0, times_ns[-1], list(times_ns), list(bodies), None, None), 0)
        assert record.token_times_ns == times_ns[1:5]
        assert (record.has_reasoning, record.first_output_ns) == (True, times_ns[3])

    uvloop.run(run())


# ---- which models there are


def _models(answer: bytes, path: str = "/v1/chat/completions", seen: list[bytes] | None = None) -> tuple[str, ...] | None:
    async def script(peer: Peer) -> None:
        head = await peer.reader.readuntil(b"\r\n\r\n")
        if seen is not None:
            seen.append(head)
        await peer.send(answer)

    async def run() -> tuple[str, ...] | None:
        async with serving(script) as origin:
            return await asyncio.to_thread(served_models, origin, path, {"X-Route": "a"})

    return uvloop.run(run())


def test_models_are_asked_for_beside_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    seen: list[bytes] = []
    answer = plain(b'{"object":"list","data":[{"id":"a","owned_by":"x"},{"id":"b"}]}')
    assert _models(answer, seen=seen) == ("a", "b")
    assert _models(answer, "/openai/v1/chat/completions", seen=seen) == ("a", "b")
    assert _models(answer, "/openai/v1/completions", seen=seen) == ("a", "b")
    assert _models(answer, "/elsewhere", seen=seen) == ("a", "b")
    below = b"/openai/v1/models"
    assert [head.split(b" ")[1] for head in seen] == [b"/v1/models", below, below, b"/v1/models"]
    assert b"authorization: Bearer sk-secret\r\n" in seen[0]
    assert b"X-Route: a\r\n" in seen[0]


@pytest.mark.parametrize("answer", [plain(b"", b"404 Not Found"), plain(b'{"models": []}'), plain(b"[]")])
def test_server_that_does_not_list_its_models(answer: bytes) -> None:
    assert _models(answer) is None


@pytest.mark.parametrize("status", [b"401 Unauthorized", b"403 Forbidden"])
def test_server_that_refuses_the_key(status: bytes) -> None:
    with pytest.raises(TargetError, match=r"bad key.*OPENAI_API_KEY"):
        _models(plain(b'{"error": {"message": "bad key"}}', status))


@pytest.mark.parametrize(
    ("served", "warning"),
    [
        (None, None),
        (("a", "c"), None),
        (("a", "b"), "the server does not list c in /v1/models, which has a, b; it is used all the same"),
        ((), "the server does not list c in /v1/models, which has none; it is used all the same"),
    ],
)
def test_model_that_is_not_listed_is_remarked(served: tuple[str, ...] | None, warning: str | None) -> None:
    assert unlisted_model("c", served) == warning


def test_model_is_the_one_asked_for_or_the_only_one() -> None:
    assert choose_model("a", ("a", "b")) == "a"
    assert choose_model("a", None) == "a"
    assert choose_model("c", ("a", "b")) == choose_model("c", ()) == "c"
    assert choose_model(None, ("a",)) == "a"


@pytest.mark.parametrize(
    ("asked", "served", "message"),
    [
        (None, None, "--model: name the model"),
        (None, ("a", "b"), "--model: name the model; the server has a, b"),
        (None, tuple(str(k) for k in range(25)), "and 5 more"),
    ],
)
def test_model_that_is_not_there(asked: str | None, served: tuple[str, ...] | None, message: str) -> None:
    with pytest.raises(TargetError) as caught:
        choose_model(asked, served)
    assert message in str(caught.value)
