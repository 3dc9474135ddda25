"""Requests and answers of Triton's generate extension; the answers are those of a real server, or possible ones."""

from __future__ import annotations

import asyncio
import json
import pickle
from dataclasses import replace
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from bench_records.record import Outcome
from harness.calibration.null_server.server import NullServerOptions, null_server
from harness.clients.protocol import MalformedResponseError, Response
from harness.clients.server_times import STAMPS, ServerTimes
from harness.clients.transport.url import Origin
from harness.clients.triton.http import TritonHttpClient, inspect_model
from harness.clients.triton.model import TritonModel, check_inputs
from harness.errors import TargetError
from harness.protocols.triton_http import TritonHttp
from tests.harness.clients.scripted_http import EVENTS_HEAD, Peer, Script, chunked, exchange, plain, serving
from workloads.elements.request import Request, Variant

_ORIGIN = Origin("http", "127.0.0.1", 8000)
_CORE = TritonModel(
    name="tensorrt_llm",
    decoupled=True,
    inputs=frozenset(
        {"input_ids", "input_lengths", "request_output_len", "streaming", "end_id", "pad_id", "exclude_input_in_output"}
        | {"return_num_output_tokens", "temperature"}
    ),
    outputs=frozenset({"output_ids", "sequence_length"}),
    parameters=(),
)
_TEXT = TritonModel(
    name="ensemble",
    decoupled=True,
    inputs=frozenset(
        {"text_input", "max_tokens", "stream", "end_id", "pad_id", "exclude_input_in_output"}
        | {"return_num_input_tokens", "return_num_output_tokens"}
    ),
    outputs=frozenset({"text_output", "num_input_tokens", "num_output_tokens"}),
    parameters=(),
)
_BARE = TritonModel("old one", False, frozenset({"input_ids", "input_lengths", "request_output_len"}), frozenset(), ())


def _client(model: TritonModel, **settings: Any) -> TritonHttpClient:
    return TritonHttpClient(_ORIGIN, model, **{"streaming": True, **settings})


def _encoded(client: TritonHttpClient, request: Request, index: int = 17) -> tuple[str, dict[str, Any]]:
    """The request's first line and its fields."""
    head, _, body = client.encode(index, request).partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    return head.split(b"\r\n")[0].decode(), json.loads(body)


# ---- the inputs of every request


@pytest.mark.parametrize("model", [_CORE, _TEXT, _BARE])
def test_a_model_with_the_inputs_of_every_request_is_driven(model: TritonModel) -> None:
    check_inputs(model)


@pytest.mark.parametrize(
    ("model", "missing", "named"),
    [
        (_TEXT, {"max_tokens"}, "--model ensemble: it has no input max_tokens, which every request of bench sets"),
        (_TEXT, {"text_input"}, "--model ensemble: it takes neither input_ids nor text_input"),
        (_CORE, {"request_output_len"}, "it has no input request_output_len, which"),
        (_CORE, {"input_lengths", "request_output_len"}, "it has no input input_lengths, request_output_len, which"),
        (_TEXT, {"max_tokens", "stream"}, "its inputs are end_id, exclude_input_in_output, pad_id, return_num_input_tokens, "),
    ],
)
def test_a_model_without_an_input_of_every_request_is_refused_by_its_name(
    model: TritonModel, missing: set[str], named: str
) -> None:
    with pytest.raises(TargetError) as refused:
        check_inputs(replace(model, inputs=model.inputs - missing))
    assert named in str(refused.value)


# ---- encoding


def test_a_class_asks_for_its_model_and_its_adapter() -> None:
    line, fields = _encoded(_client(_CORE), Request(output_tokens=20, input_ids=(5,), variant=Variant("other", 7)))
    assert (line, fields["lora_task_id"]) == ("POST /v2/models/other/generate_stream HTTP/1.1", 7)
    assert "lora_task_id" not in _encoded(_client(_CORE), Request(output_tokens=20, input_ids=(5,)))[1]


def test_core_request_has_the_fields_of_grpcs_tensors() -> None:
    line, fields = _encoded(_client(_CORE, end_id=2, pad_id=0), Request(output_tokens=20, input_ids=(5, 6, 7)))
    assert line == "POST /v2/models/tensorrt_llm/generate_stream HTTP/1.1"
    assert fields == {
        "id": "17",
        "input_ids": [5, 6, 7],
        "input_lengths": 3,
        "request_output_len": 20,
        "streaming": True,
        "end_id": 2,
        "pad_id": 0,
        "exclude_input_in_output": True,
    }


def test_text_request_that_is_not_streamed() -> None:
    request = Request(output_tokens=9, prompt="Grüße, \ud800 Welt", input_ids=(5, 6))
    line, fields = _encoded(_client(_TEXT, streaming=False, end_id=2), request)
    assert line == "POST /v2/models/ensemble/generate HTTP/1.1"
    assert fields == {
        "id": "17",
        "text_input": "Grüße, ? Welt",
        "max_tokens": 9,
        "stream": False,
        "end_id": 2,
        "exclude_input_in_output": True,
        "return_num_input_tokens": True,
        "return_num_output_tokens": True,
    }


def test_nothing_is_sent_that_the_model_does_not_take() -> None:
    line, fields = _encoded(_client(_BARE, streaming=False, end_id=2, pad_id=0), Request(output_tokens=1, input_ids=(5,)))
    assert line == "POST /v2/models/old%20one/generate HTTP/1.1"
    assert set(fields) == {"id", "input_ids", "input_lengths", "request_output_len"}
    assert not _client(_BARE).excludes_prompt
    assert _client(_CORE).excludes_prompt


def test_ignore_eos_asks_for_an_end_that_no_token_is() -> None:
    _, fields = _encoded(_client(_CORE, end_id=2), Request(output_tokens=1, input_ids=(5,), ignore_eos=True))
    assert fields["end_id"] == -1


@pytest.mark.parametrize(("model", "request_"), [(_CORE, Request(1, prompt="x")), (_TEXT, Request(1, input_ids=(1,)))])
def test_request_without_what_the_model_takes_is_a_fault_of_ours(model: TritonModel, request_: Request) -> None:
    with pytest.raises(ValueError, match="this request has none"):
        _client(model).encode(0, request_)


@given(st.text(), st.integers(1, 2**31 - 1))
def test_any_text_is_sent_as_json(text: str, tokens: int) -> None:
    _, fields = _encoded(_client(_TEXT), Request(output_tokens=tokens, prompt=text))
    assert (fields["text_input"], fields["max_tokens"]) == (text.encode("utf-8", "replace").decode(), tokens)


def test_client_can_be_sent_to_a_worker() -> None:
    client = _client(_TEXT, headers={"X-Route": "a"})
    copy = pickle.loads(pickle.dumps(client))
    assert copy == client
    assert b"x-route: a\r\n" in copy.encode(0, Request(output_tokens=1, prompt="x"))


# ---- decoding


@pytest.mark.parametrize(
    ("body", "response"),
    [
        ({"output_ids": 2117, "sequence_length": 1, "id": "3"}, Response(token_ids=(2117,), request_id="3")),
        ({"output_ids": [7, 8, 0, 0], "sequence_length": 2}, Response(token_ids=(7, 8))),
        ({"output_ids": [7, 8], "sequence_length": [2]}, Response(token_ids=(7, 8))),
        ({"output_ids": [7, 8], "id": ""}, Response(token_ids=(7, 8))),
        ({"output_ids": [], "sequence_length": 0}, Response(token_ids=())),
        (
            {"text_output": "In", "num_input_tokens": 7, "num_output_tokens": 1, "sequence_id": 0, "cum_log_probs": 0.0},
            Response(text="In", server_tokens=1, server_input_tokens=7),
        ),
        ({"text_output": ["one", "two"], "num_output_tokens": [3, 4]}, Response(text="one", server_tokens=3)),
        ({"text_output": "", "num_output_tokens": 0}, Response(text="", server_tokens=0)),
        ({"text_output": "x", "finish_reason": "length"}, Response(text="x", finish_reasons=("length",))),
        ({"text_output": "x", "finish_reason": ["None"]}, Response(text="x")),
        (
            {"text_output": "x", "finish_reason": "cancelled"},
            Response(error="the server broke the answer off: its finish_reason is cancelled"),
        ),
        ({"error": "the engine failed"}, Response(error="the engine failed")),
        ({"error": {"message": "the engine failed"}}, Response(error="the engine failed")),
        ({"text_output": "x", "error": ""}, Response(text="x")),
        ({"error": "Exceeds maximum queue size"}, Response(error="Exceeds maximum queue size", refused=True)),
    ],
)
def test_answers_of_every_shape(body: dict[str, Any], response: Response) -> None:
    assert _client(_CORE).decode(json.dumps(body).encode()) == response


def test_the_engines_times_are_read_where_they_were_asked_for() -> None:
    body = json.dumps({"output_ids": 7} | dict(zip(STAMPS, (100, 130, 180, 400), strict=True))).encode()
    asking = replace(_CORE, inputs=_CORE.inputs | {"return_perf_metrics"}, outputs=_CORE.outputs | {*STAMPS}).asking_for_times()
    assert _client(asking).decode(body).server_times == ServerTimes(30, 50, 220, 100)
    for wrong in ("x", "", "-1", "1.5", "٣", "1" * 5_000, True, 1.5, None, [], [[1]], {}):
        odd = json.dumps(json.loads(body) | {STAMPS[0]: wrong}).encode()
        assert _client(asking).decode(odd).server_times is None
    assert _client(_CORE).decode(body).server_times is None
    assert _encoded(_client(asking), Request(output_tokens=1, input_ids=(5,)))[1]["return_perf_metrics"] is True


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"output_ids": "7"}',
        b'{"output_ids": 7, "sequence_length": -1}',
        b'{"text_output": "x", "y": ' + b"[" * 1_200,
        b'{"output_ids": [7, 2147483648]}',
        b'{"text_output": "x", "num_output_tokens": 1000000000000000000000000000000}',
        b'{"status": "ok"}',
        b'{"error": ""}',
        b"\xff",
    ],
)
def test_what_is_no_answer_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedResponseError, match="not a Triton response") as caught:
        _client(_CORE).decode(body)
    assert (repr(body[:200]) if body else "the body of the answer is empty") in str(caught.value)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_answer_or_malformed(body: bytes) -> None:
    try:
        response = _client(_TEXT).decode(body)
    except MalformedResponseError:
        return
    assert isinstance(response, Response)


# ---- against servers


def test_answer_goes_from_the_socket_to_its_tokens() -> None:
    async def script(peer: Peer) -> None:
        _, body = await peer.read_request()
        tokens = json.loads(body)["request_output_len"]
        events = (b'data: {"output_ids":%d,"sequence_length":1}\n\n' % token for token in range(tokens))
        await peer.send(EVENTS_HEAD + chunked(*events))

    async def run() -> None:
        async with serving(script) as origin:
            client = TritonHttpClient(origin, _CORE, streaming=True)
            connection = await client.connect(5.0)
            bodies, outcome, _ = await exchange(connection, client.encode(0, Request(output_tokens=4, input_ids=(1, 2))))
            await connection.close()
            assert outcome is None
            assert [client.decode(body).token_ids for body in bodies] == [(0,), (1,), (2,), (3,)]

    uvloop.run(run())


def test_stream_needs_no_marker_but_its_end() -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(EVENTS_HEAD + chunked(b'data: {"output_ids":1}\n\n')[:-5])

    async def run() -> None:
        async with serving(script) as origin:
            client = TritonHttpClient(origin, _CORE, streaming=True)
            connection = await client.connect(5.0)
            bodies, outcome, _ = await exchange(connection, client.encode(0, Request(output_tokens=4, input_ids=(1, 2))))
            await connection.close()
            assert (len(bodies), outcome) == (1, Outcome.STREAM_CUT)

    uvloop.run(run())


def test_null_server_describes_its_models_as_triton_does() -> None:
    with null_server(NullServerOptions()) as addresses:
        origin = TritonHttp().address(addresses.http, None)
        model = inspect_model(origin, "ensemble", {})
        assert (model.name, model.decoupled, model.takes_token_ids) == ("ensemble", True, False)
        assert {"text_input", "max_tokens", "stream"} <= model.inputs
        assert "num_output_tokens" in model.outputs
        assert not inspect_model(origin, "tensorrt_llm_unary", {}).decoupled


async def _inspecting(script: Script, timeout_s: float) -> TritonModel:
    async with serving(script) as origin:
        return await asyncio.to_thread(inspect_model, origin, "gpt", {"X-Route": "a"}, timeout_s)


def _inspected(answer: bytes, timeout_s: float = 5.0) -> TritonModel:
    async def script(peer: Peer) -> None:
        head = await peer.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"GET /v2/models/gpt/config HTTP/1.1\r\n")
        assert b"X-Route: a\r\n" in head
        await peer.send(answer)
        if not answer:
            await peer.reader.read()

    return uvloop.run(_inspecting(script, timeout_s))


def test_configuration_is_read() -> None:
    config = {
        "name": "gpt",
        "max_batch_size": 8,
        "input": [{"name": "input_ids", "data_type": "TYPE_INT32", "dims": [-1]}],
        "output": [{"name": "output_ids"}],
        "model_transaction_policy": {"decoupled": True},
        "parameters": {"tokenizer_dir": {"string_value": "/models/t"}, "a": {"string_value": "b"}},
    }
    found = _inspected(plain(json.dumps(config).encode()))
    parameters = (("a", "b"), ("tokenizer_dir", "/models/t"))
    assert found == TritonModel("gpt", True, frozenset({"input_ids"}), frozenset({"output_ids"}), parameters)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (plain(b'{"error":"Request for unknown model: \'gpt\' is not found"}', b"404 Not Found"), "--model gpt: the server at"),
        (plain(b'{"detail":"Not Found"}', b"404 Not Found"), "HTTP status 404: Not Found; is it a Triton server?"),
        (plain(b"", b"404 Not Found"), "HTTP status 404: the body of the answer is empty; is it a Triton server?"),
        (plain(b"", b"308 Moved", b"Location: https://there/\r\n"), "HTTP status 308: the server redirects to https://there/;"),
        (plain(b"<html>", headers=b"Content-Type: text/html\r\n"), "is not JSON"),
        (plain(b'{"object": "list"}'), "not a Triton configuration"),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", "is this the server's HTTP port?"),
    ],
)
def test_server_that_cannot_be_inspected(answer: bytes, words: str) -> None:
    with pytest.raises(TargetError) as caught:
        _inspected(answer)
    assert words in str(caught.value)


def test_server_that_does_not_answer() -> None:
    with pytest.raises(TargetError, match=r"no whole answer within 0\.3 s"):
        _inspected(b"", timeout_s=0.3)


def test_no_server() -> None:
    with pytest.raises(TargetError, match=r"--url http://127\.0\.0\.1:1: no server answers there \(Connection refused\)"):
        inspect_model(Origin("http", "127.0.0.1", 1), "gpt", {})
