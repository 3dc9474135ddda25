"""Messages are compared with tritonclient's own; exchanges run against a real gRPC server on a loopback port."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import InferResult, service_pb2
from tritonclient.utils import serialize_byte_tensor

from bench_records.record import Outcome
from harness.clients.protocol import Connection, ExchangeFailedError, MalformedResponseError, Repetition, Response
from harness.clients.server_times import STAMPS, ServerTimes
from harness.clients.triton.grpc import TritonGrpcClient, TritonModel, inspect_model
from harness.errors import TargetError
from tests.faults.peer_server import peer_server
from tests.free_port import closed_port, free_port
from tests.harness.clients.transport import http2_peer
from tests.harness.scripted_server import SERVICE, Act, ScriptedServer, scripted
from workloads.elements.request import Request, Variant

_CORE = TritonModel(
    name="tensorrt_llm",
    decoupled=True,
    inputs=frozenset(
        {"input_ids", "input_lengths", "request_output_len", "streaming", "end_id", "pad_id", "exclude_input_in_output"}
        | {"return_num_output_tokens", "temperature"}
    ),
    outputs=frozenset({"output_ids", "sequence_length", "cum_log_probs", "num_output_tokens"}),
    parameters=(),
)
_TEXT = TritonModel(
    name="ensemble",
    decoupled=True,
    inputs=frozenset(
        {"text_input", "max_tokens", "stream", "end_id", "pad_id", "exclude_input_in_output"}
        | {"return_num_input_tokens", "return_num_output_tokens"}
    ),
    outputs=frozenset({"text_output", "num_input_tokens", "num_output_tokens", "context_logits"}),
    parameters=(),
)
_BARE = TritonModel("old", False, frozenset({"input_ids", "input_lengths", "request_output_len"}), frozenset(), ())
_VLLM = TritonModel(
    name="vllm_model",
    decoupled=True,
    inputs=frozenset({"text_input", "stream", "sampling_parameters", "exclude_input_in_output", "return_num_output_tokens"}),
    outputs=frozenset({"text_output", "num_output_tokens", "finish_reason"}),
    parameters=(),
    flat_inputs=frozenset(
        {"text_input", "stream", "sampling_parameters", "exclude_input_in_output", "return_num_output_tokens"}
    ),
)
_LLM_API = TritonModel(
    name="tensorrt_llm",
    decoupled=True,
    inputs=frozenset(
        {"text_input", "streaming", "sampling_param_max_tokens", "sampling_param_exclude_input_from_output", "stop"}
        | {"return_finish_reason"}
        | {"sampling_param_return_perf_metrics"}
    ),
    outputs=frozenset({"text_output", "finish_reason", *STAMPS}),
    parameters=(),
    flat_inputs=frozenset(
        {"text_input", "streaming", "sampling_param_max_tokens", "sampling_param_exclude_input_from_output"}
        | {"return_finish_reason", "sampling_param_return_perf_metrics"}
    ),
    repetition=Repetition.POSSIBLE,
)
_INT32 = st.integers(-(2**31), 2**31 - 1)


def _client(model: TritonModel, address: str = "127.0.0.1:1", **settings: Any) -> TritonGrpcClient:
    return TritonGrpcClient(address, model, **{"streaming": True, **settings})


# ---- encoding


_Tensor = tuple[str, list[int], bytes]  # data type, shape, content


def _encoded(client: TritonGrpcClient, request: Request, index: int = 17) -> tuple[Any, dict[str, _Tensor]]:
    message = service_pb2.ModelInferRequest.FromString(client.encode(index, request))
    assert len(message.inputs) == len(message.raw_input_contents)
    pairs = zip(message.inputs, message.raw_input_contents, strict=True)
    tensors = {tensor.name: (tensor.datatype, list(tensor.shape), raw) for tensor, raw in pairs}
    assert len(tensors) == len(message.inputs)
    return message, tensors


def _int(value: int) -> _Tensor:
    return ("INT32", [1, 1], np.array([[value]], dtype=np.int32).tobytes())


_TRUE = ("BOOL", [1, 1], np.array([[True]]).tobytes())
_FALSE = ("BOOL", [1, 1], np.array([[False]]).tobytes())


def test_core_request_has_upstreams_tensors() -> None:
    message, tensors = _encoded(_client(_CORE, end_id=2, pad_id=0), Request(output_tokens=20, input_ids=(5, 6, 7)))
    assert (message.model_name, message.id, message.model_version) == ("tensorrt_llm", "17", "")
    assert tensors == {
        "input_ids": ("INT32", [1, 3], np.array([[5, 6, 7]], dtype=np.int32).tobytes()),
        "input_lengths": _int(3),
        "request_output_len": _int(20),
        "streaming": _TRUE,
        "end_id": _int(2),
        "pad_id": _int(0),
        "exclude_input_in_output": _TRUE,
    }
    assert [output.name for output in message.outputs] == ["output_ids", "sequence_length"]


def test_a_class_asks_for_its_model_and_its_adapter() -> None:
    request = Request(output_tokens=20, input_ids=(5,), traffic_class="code", variant=Variant("other", 7))
    message, tensors = _encoded(_client(_CORE), request)
    assert message.model_name == "other"
    assert tensors["lora_task_id"] == ("UINT64", [1, 1], np.array([[7]], dtype=np.uint64).tobytes())
    plain, tensors = _encoded(_client(_CORE), replace(request, variant=None))
    assert (plain.model_name, "lora_task_id" in tensors) == ("tensorrt_llm", False)


def test_text_request_has_upstreams_tensors() -> None:
    client = _client(_TEXT, streaming=False, end_id=2)
    message, tensors = _encoded(client, Request(output_tokens=9, prompt="Grüße, Welt", input_ids=(5, 6)))
    text = "Grüße, Welt".encode()
    assert tensors == {
        "text_input": ("BYTES", [1, 1], struct.pack("<I", len(text)) + text),
        "max_tokens": _int(9),
        "stream": _FALSE,
        "end_id": _int(2),
        "exclude_input_in_output": _TRUE,
        "return_num_input_tokens": _TRUE,
        "return_num_output_tokens": _TRUE,
    }
    assert [output.name for output in message.outputs] == ["text_output", "num_input_tokens", "num_output_tokens"]


_FLAT_TRUE = ("BOOL", [1], b"\x01")


def _flat_text(text: str) -> _Tensor:
    return ("BYTES", [1], serialize_byte_tensor(np.array([text.encode()], dtype=np.object_)).item())


def test_a_request_to_vllm_backend_has_its_sampling_as_json() -> None:
    message, tensors = _encoded(_client(_VLLM, end_id=2, pad_id=0), Request(9, prompt="Hi", ignore_eos=True))
    assert tensors == {
        "text_input": _flat_text("Hi"),
        "stream": _FLAT_TRUE,
        "sampling_parameters": _flat_text('{"max_tokens":9,"ignore_eos":true}'),
        "exclude_input_in_output": _FLAT_TRUE,
        "return_num_output_tokens": _FLAT_TRUE,
    }
    assert [output.name for output in message.outputs] == ["text_output", "num_output_tokens"]
    _, ordinary = _encoded(_client(_VLLM), Request(9, prompt="Hi"))
    assert ordinary["sampling_parameters"] == _flat_text('{"max_tokens":9}')


def test_a_request_to_the_model_of_the_llm_api() -> None:
    message, tensors = _encoded(_client(_LLM_API.asking_for_times(), streaming=False, end_id=2), Request(9, prompt="Hi"))
    assert tensors == {
        "text_input": _flat_text("Hi"),
        "streaming": ("BOOL", [1], b"\x00"),
        "sampling_param_max_tokens": ("INT32", [1], struct.pack("<i", 9)),
        "sampling_param_exclude_input_from_output": _FLAT_TRUE,
        "sampling_param_return_perf_metrics": _FLAT_TRUE,
        "return_finish_reason": _FLAT_TRUE,
    }
    assert [output.name for output in message.outputs] == ["text_output", "finish_reason", *STAMPS]


def test_nothing_is_sent_that_the_model_does_not_take() -> None:
    message, tensors = _encoded(_client(_BARE, streaming=False, end_id=2, pad_id=0), Request(output_tokens=1, input_ids=(5,)))
    assert set(tensors) == {"input_ids", "input_lengths", "request_output_len"}
    assert list(message.outputs) == []
    assert not _client(_BARE).excludes_prompt
    assert _client(_CORE).excludes_prompt


def test_ignore_eos_asks_for_an_end_that_no_token_is() -> None:
    _, tensors = _encoded(_client(_CORE, end_id=2), Request(output_tokens=1, input_ids=(5,), ignore_eos=True))
    assert tensors["end_id"] == _int(-1)


def test_unknown_end_and_pad_are_not_sent() -> None:
    _, tensors = _encoded(_client(_CORE), Request(output_tokens=1, input_ids=(5,)))
    assert not {"end_id", "pad_id"} & set(tensors)


@given(st.lists(_INT32, min_size=1, max_size=50), st.integers(1, 2**31 - 1), st.integers(0, 10**9))
def test_any_token_ids_and_length_come_out_as_they_went_in(ids: list[int], output_tokens: int, index: int) -> None:
    request = Request(output_tokens=output_tokens, input_ids=tuple(ids))
    message, tensors = _encoded(_client(_CORE), request, index)
    assert np.frombuffer(tensors["input_ids"][2], dtype=np.int32).tolist() == ids
    assert (tensors["input_lengths"], tensors["request_output_len"]) == (_int(len(ids)), _int(output_tokens))
    assert message.id == str(index)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_is_laid_out_as_tritonclient_lays_it_out(text: str) -> None:
    _, tensors = _encoded(_client(_TEXT), Request(output_tokens=1, prompt=text))
    assert tensors["text_input"][2] == serialize_byte_tensor(np.array([[text.encode()]], dtype=np.object_)).item()


def test_half_a_surrogate_pair_out_of_a_json_file_can_be_sent() -> None:
    _, tensors = _encoded(_client(_TEXT), Request(output_tokens=1, prompt="a\ud83d"))
    assert tensors["text_input"][2] == struct.pack("<I", 2) + b"a?"


def test_request_of_the_other_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match="token ids"):
        _client(_CORE).encode(0, Request(output_tokens=1, prompt="text alone"))
    with pytest.raises(ValueError, match="text"):
        _client(_TEXT).encode(0, Request(output_tokens=1, input_ids=(1,)))


def _timed(model: TritonModel) -> TritonModel:
    return replace(model, inputs=model.inputs | {"return_perf_metrics"}, outputs=model.outputs | {*STAMPS}).asking_for_times()


@pytest.mark.parametrize("model", [_CORE, _TEXT])
def test_a_request_that_asks_for_times_names_their_outputs(model: TritonModel) -> None:
    request = Request(output_tokens=1, input_ids=(5,), prompt="x")
    plain, tensors = _encoded(_client(model), request)
    asking, more = _encoded(_client(_timed(model)), request)
    assert more == tensors | {"return_perf_metrics": _TRUE}
    assert [output.name for output in asking.outputs] == [*(output.name for output in plain.outputs), *STAMPS]


def test_a_model_that_has_no_times_is_refused_by_its_name() -> None:
    with pytest.raises(TargetError, match="--server_timings: the model tensorrt_llm has no input return_perf_metrics"):
        _CORE.asking_for_times()


# ---- decoding


def _response(outputs: dict[str, _Tensor]) -> service_pb2.ModelInferResponse:
    message = service_pb2.ModelInferResponse(model_name="m", id="17")
    for name, (datatype, shape, raw) in outputs.items():
        message.outputs.add(name=name, datatype=datatype, shape=shape)
        message.raw_output_contents.append(raw)
    return message


def _ids_output(ids: list[int]) -> _Tensor:
    return ("INT32", [1, 1, len(ids)], np.array(ids, dtype=np.int32).tobytes())


def _text_output(text: str) -> _Tensor:
    return ("BYTES", [1, 1], serialize_byte_tensor(np.array([[text.encode()]], dtype=np.object_)).item())


def _both_ways(message: service_pb2.ModelInferResponse) -> Response:
    """Decode as a streamed and as a single response; they must agree."""
    streamed = service_pb2.ModelStreamInferResponse(infer_response=message).SerializeToString()
    alone = _client(TritonModel("m", False, _CORE.inputs, _CORE.outputs, ())).decode(message.SerializeToString())
    assert _client(_CORE).decode(streamed) == alone
    return alone


@given(st.lists(_INT32, max_size=30), st.integers(0, 40))
def test_ids_are_read_up_to_the_sequence_length(ids: list[int], length: int) -> None:
    message = _response({"output_ids": _ids_output(ids), "sequence_length": _int(length)})
    assert InferResult(message).as_numpy("output_ids").reshape(-1).tolist() == ids  # tritonclient reads what we wrote
    assert _both_ways(message) == Response(token_ids=tuple(ids[:length]), request_id="17")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_is_read_as_tritonclient_reads_it(text: str) -> None:
    message = _response({"text_output": _text_output(text)})
    assert InferResult(message).as_numpy("text_output").item().decode() == text
    assert _both_ways(message) == Response(text=text, request_id="17")


def test_counts_of_the_server_are_read_whatever_the_order_of_outputs() -> None:
    counts = {"num_output_tokens": _int(3), "text_output": _text_output("x"), "num_input_tokens": _int(12)}
    assert _both_ways(_response(counts)) == Response(text="x", server_tokens=3, server_input_tokens=12, request_id="17")


def _long(value: int) -> _Tensor:
    return ("INT64", [1, 1], np.array([[value]], dtype=np.int64).tobytes())


def test_the_engines_times_are_read() -> None:
    stamps = dict(zip(STAMPS, map(_long, (100, 130, 180, 400)), strict=True))
    times = ServerTimes(queue_ns=30, prefill_ns=50, decode_ns=220, arrival_ns=100)
    assert _both_ways(_response({"output_ids": _ids_output([7]), **stamps})).server_times == times
    del stamps[STAMPS[1]]
    assert _both_ways(_response({"output_ids": _ids_output([7]), **stamps})).server_times is None


@pytest.mark.parametrize(("text", "reasons"), [("length", ("length",)), ("None", ()), ("", ())])
def test_the_finish_reason_is_read_once_there_is_one(text: str, reasons: tuple[str, ...]) -> None:
    outputs = {"text_output": _text_output("x"), "finish_reason": _text_output(text)}
    assert _both_ways(_response(outputs)) == Response(text="x", request_id="17", finish_reasons=reasons)


@pytest.mark.parametrize("reason", ["cancelled", "timeout"])
def test_an_answer_that_the_server_broke_off_is_an_error(reason: str) -> None:
    outputs = {"text_output": _text_output("x"), "finish_reason": _text_output(reason)}
    error = f"the server broke the answer off: its finish_reason is {reason}"
    assert _both_ways(_response(outputs)) == Response(error=error, request_id="17")


def test_times_as_texts_are_read_and_fail_no_request() -> None:
    texts = dict(zip(STAMPS, map(_text_output, ("100", "130", "180", "400")), strict=True))
    message = _response({"text_output": _text_output("x"), **texts})
    assert _both_ways(message).server_times == ServerTimes(queue_ns=30, prefill_ns=50, decode_ns=220, arrival_ns=100)
    not_utf8 = ("BYTES", [1, 1], b"\1\0\0\0\xff")
    for wrong in (*map(_text_output, ("soon", "", "-1", "1.5", "٣", "1" * 5_000)), not_utf8):
        message = _response({"text_output": _text_output("x"), **texts, STAMPS[0]: wrong})
        assert _both_ways(message) == Response(text="x", request_id="17")


def test_counts_without_a_sign_and_without_a_shape_are_read() -> None:
    count = np.array(3, np.uint32).tobytes()
    counts = {"num_output_tokens": ("UINT32", [1], count), "num_input_tokens": ("UINT32", [], count)}
    response = _both_ways(_response({"text_output": _text_output("x"), **counts}))
    assert (response.server_tokens, response.server_input_tokens) == (3, 3)


def test_empty_outputs_are_no_tokens_and_no_text() -> None:
    empty = {"output_ids": ("INT32", [1, 1, 0], b""), "text_output": ("BYTES", [1, 0], b"")}
    assert _both_ways(_response(empty)) == Response(token_ids=(), text="", request_id="17")


def test_error_in_the_stream_is_read_and_distinguished_from_a_full_queue() -> None:
    def decode(message: str) -> Response:
        return _client(_CORE).decode(service_pb2.ModelStreamInferResponse(error_message=message).SerializeToString())

    assert decode("input_ids is missing") == Response(error="input_ids is missing", refused=False)
    assert decode("Exceeds maximum queue size") == Response(error="Exceeds maximum queue size", refused=True)


@pytest.mark.parametrize("decoupled", [True, False])
def test_bytes_that_are_no_message_are_malformed(decoupled: bool) -> None:
    with pytest.raises(MalformedResponseError):
        _client(TritonModel("m", decoupled, _CORE.inputs, _CORE.outputs, ())).decode(b"\xff\xff no message")


_BROKEN = [
    {"output_ids": ("INT32", [1, 1, 1], b"\x01\x02\x03")},
    {"sequence_length": ("INT32", [1, 1], b"\x01")},
    {"text_output": ("BYTES", [1, 1], b"\x01\x00")},
    {"text_output": ("BYTES", [1, 1], struct.pack("<I", 1) + b"\xff")},
    {"output_ids": ("INT64", [1, 1, 1], bytes(8))},  # two tokens, if it were read as INT32
    {"output_ids": ("INT32", [1, 1, 4], bytes(12))},  # a token short of its shape
    {"output_ids": ("INT32", [2, 1], bytes(4))},  # a row short of its shape
    {"output_ids": ("INT32", [2**62] * 300, bytes(4))},  # a shape of 5,600 digits
    {"num_output_tokens": ("INT32", [], bytes(7)), "text_output": ("BYTES", [1, 1], bytes(4))},  # a count and three quarters
    {"sequence_length": ("INT32", [1, 1], struct.pack("<i", -1))},
    {"num_output_tokens": ("INT32", [1, 1], struct.pack("<i", -5))},
    {"outputXids": ("INT32", [1, 1, 1], bytes(4))},  # no answer at all
]


@pytest.mark.parametrize("outputs", _BROKEN)
def test_broken_tensor_of_a_single_response_is_malformed(outputs: dict[str, _Tensor]) -> None:
    client = _client(TritonModel("m", False, _CORE.inputs, _CORE.outputs, ()))
    with pytest.raises(MalformedResponseError):
        client.decode(_response(outputs).SerializeToString())


@pytest.mark.parametrize("outputs", _BROKEN)
def test_broken_tensor_of_a_streamed_response_is_malformed(outputs: dict[str, _Tensor]) -> None:
    streamed = service_pb2.ModelStreamInferResponse(infer_response=_response(outputs)).SerializeToString()
    with pytest.raises(MalformedResponseError):
        _client(_CORE).decode(streamed)


def test_outputs_without_their_contents_are_malformed() -> None:
    message = _response({"output_ids": _ids_output([7]), "sequence_length": _int(1)})
    del message.raw_output_contents[0]
    with pytest.raises(MalformedResponseError, match="2 outputs with 1 contents"):
        _both_ways(message)


@pytest.mark.parametrize("final", [True, False])
def test_the_servers_word_on_the_last_response_is_read(final: bool) -> None:
    message = _response({"output_ids": _ids_output([7])})
    message.parameters["triton_final_response"].bool_param = final
    assert _both_ways(message) == Response(token_ids=(7,), request_id="17", final=final)


def test_responses_that_differ_in_one_part_alone_are_distinguished() -> None:
    """What responses have in common is read once; twice each, so that every one is met when it is known already."""
    last, short, long = (_response({"output_ids": _ids_output(ids)}) for ids in ([7], [7], [7, 8]))
    last.parameters["triton_final_response"].bool_param = True
    renamed = _response({"outputXids": _ids_output([7]), "text_output": _text_output("x")})
    for _ in range(2):
        assert _both_ways(last) == Response(token_ids=(7,), request_id="17", final=True)
        assert _both_ways(short) == Response(token_ids=(7,), request_id="17")
        assert _both_ways(long) == Response(token_ids=(7, 8), request_id="17")
        assert _both_ways(renamed) == Response(text="x", request_id="17")


def test_parameters_of_every_response_s_own_and_large_outputs_are_read_and_not_kept() -> None:
    message = _response({"output_ids": _ids_output([7])})
    message.parameters["note"].string_param = "not triton_final_response"
    message.parameters["triton_final_response"].bool_param = True
    message.outputs[0].contents.bytes_contents.append(bytes(100_000))
    for number in range(20):
        message.parameters["number"].int64_param = number
        assert _both_ways(message) == Response(token_ids=(7,), request_id="17", final=True)


def test_text_shorter_than_its_length_is_malformed() -> None:
    client = _client(TritonModel("m", False, _TEXT.inputs, _TEXT.outputs, ()))
    cut = _response({"text_output": ("BYTES", [1, 1], struct.pack("<I", 9) + b"half")})
    with pytest.raises(MalformedResponseError):
        client.decode(cut.SerializeToString())


@settings(max_examples=300)
@given(st.binary(max_size=80), st.booleans())
def test_no_bytes_whatever_are_anything_but_a_response_or_malformed(body: bytes, decoupled: bool) -> None:
    try:
        response = _client(TritonModel("m", decoupled, _CORE.inputs, _CORE.outputs, ())).decode(body)
    except MalformedResponseError:
        return
    assert isinstance(response, Response)


# ---- exchanges

_Stream = Callable[[AsyncIterator[bytes], Any], AsyncIterator[bytes]]
_Unary = Callable[[bytes, Any], Awaitable[bytes]]


@asynccontextmanager
async def _serving(stream: _Stream | None = None, unary: _Unary | None = None, port: int = 0) -> AsyncIterator[str]:
    server = grpc.aio.server(options=(("grpc.max_send_message_length", -1),))
    handlers = {}
    if stream is not None:
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(stream)
    if unary is not None:
        handlers["ModelInfer"] = grpc.unary_unary_rpc_method_handler(unary)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@asynccontextmanager
async def _connected(address: str, decoupled: bool = True) -> AsyncIterator[Connection]:
    connection = await _client(TritonModel("m", decoupled, frozenset(), frozenset(), ()), address).connect(5.0)
    try:
        yield connection
    finally:
        await connection.close()


async def _exchange(
    connection: Connection, payload: bytes = b"ask", timeout_s: float = 10.0
) -> tuple[list[bytes], Outcome | None, str]:
    bodies: list[bytes] = []
    try:
        await connection.exchange(payload, lambda _, arrived: bodies.extend(arrived), timeout_s)
    except ExchangeFailedError as error:
        return bodies, error.outcome, str(error)
    return bodies, None, ""


def _ask(
    stream: _Stream | None = None, unary: _Unary | None = None, timeout_s: float = 10.0
) -> tuple[list[bytes], Outcome | None, str]:
    async def run() -> tuple[list[bytes], Outcome | None, str]:
        async with _serving(stream, unary) as address, _connected(address, decoupled=unary is None) as connection:
            return await _exchange(connection, timeout_s=timeout_s)

    return asyncio.run(run())


def test_streamed_bodies_arrive_unread_and_in_order() -> None:
    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        asked = [raw async for raw in requests]  # ends, since the client closes its side
        for body in (*asked, b"", b"\xff three"):
            yield body

    assert _ask(stream) == ([b"ask", b"", b"\xff three"], None, "")


def test_unary_answer_is_one_body() -> None:
    async def unary(raw: bytes, context: Any) -> bytes:
        return raw + b" answered"

    assert _ask(unary=unary) == ([b"ask answered"], None, "")


def test_response_larger_than_grpcs_default_limit_is_taken() -> None:
    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield bytes(8 << 20)

    bodies, outcome, _ = _ask(stream)
    assert (outcome, [len(body) for body in bodies]) == (None, [8 << 20])


def test_answer_without_a_response_ends_without_failure() -> None:
    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        for nothing in ():
            yield nothing

    assert _ask(stream) == ([], None, "")


def test_server_that_hangs_is_a_timeout_and_its_partial_answer_is_kept() -> None:
    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield b"one"
        await asyncio.sleep(60)

    bodies, outcome, message = _ask(stream, timeout_s=2.0)
    assert (bodies, outcome) == ([b"one"], Outcome.TIMEOUT)
    assert "DEADLINE_EXCEEDED" in message


def test_unary_server_that_hangs_is_a_timeout() -> None:
    async def unary(raw: bytes, context: Any) -> bytes:
        await asyncio.sleep(60)
        return b""

    assert _ask(unary=unary, timeout_s=0.2)[:2] == ([], Outcome.TIMEOUT)


_STATUSES = [
    (grpc.StatusCode.INTERNAL, "boom", Outcome.SERVER_ERROR),
    (grpc.StatusCode.INVALID_ARGUMENT, "no such tensor", Outcome.SERVER_ERROR),
    (grpc.StatusCode.NOT_FOUND, "no such model", Outcome.SERVER_ERROR),
    (grpc.StatusCode.UNIMPLEMENTED, "", Outcome.SERVER_ERROR),
    (grpc.StatusCode.DEADLINE_EXCEEDED, "too slow", Outcome.TIMEOUT),
    (grpc.StatusCode.CANCELLED, "not any more", Outcome.STREAM_CUT),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "full", Outcome.REFUSED),
    (grpc.StatusCode.RESOURCE_EXHAUSTED, "gRPC message exceeds maximum size 4194304: 5000000", Outcome.SERVER_ERROR),
    (grpc.StatusCode.UNAVAILABLE, "Exceeds maximum queue size", Outcome.REFUSED),
    (grpc.StatusCode.UNAVAILABLE, "Maximum queue size of 8", Outcome.REFUSED),
    (grpc.StatusCode.UNAVAILABLE, "Socket closed", Outcome.STREAM_CUT),
]


@pytest.mark.parametrize(("code", "details", "outcome"), _STATUSES)
def test_status_of_the_server_decides_the_kind_of_failure(code: grpc.StatusCode, details: str, outcome: Outcome) -> None:
    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield b"one"
        await context.abort(code, details)

    async def unary(raw: bytes, context: Any) -> bytes:
        await context.abort(code, details)
        return b""

    for bodies, found, message in (_ask(stream), _ask(unary=unary)):
        assert found is outcome
        assert message.startswith(code.name)
        assert details in message
        assert bodies in ([b"one"], [])


def test_a_request_that_is_too_large_for_the_server_does_not_show_that_it_is_full() -> None:
    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for raw in requests:
            yield raw

    async def run() -> tuple[list[bytes], Outcome | None, str]:
        async with _serving(stream) as address, _connected(address) as connection:
            return await _exchange(connection, b"x" * (5 << 20))  # gRPC takes 4 MiB by default

    bodies, outcome, message = asyncio.run(run())
    assert (bodies, outcome) == ([], Outcome.SERVER_ERROR)
    assert message.startswith("RESOURCE_EXHAUSTED: ")


def test_status_before_the_request_was_read_is_reported_too() -> None:
    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        await context.abort(grpc.StatusCode.INTERNAL, "not even looked at")
        yield b""

    assert _ask(stream) == ([], Outcome.SERVER_ERROR, "INTERNAL: not even looked at")


@asynccontextmanager
async def _cutting_proxy(address: str) -> AsyncIterator[tuple[str, Callable[[], None]]]:
    """A TCP relay in front of ``address``, and a function that resets every connection through it."""
    host, _, port = address.partition(":")
    writers: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        writers.extend((writer, there_writer))
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer), return_exceptions=True)

    def cut() -> None:
        for writer in writers:
            writer.transport.abort()

    relaying = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{relaying.sockets[0].getsockname()[1]}", cut
    finally:
        cut()
        relaying.close()


def test_connection_that_breaks_in_mid_answer_is_a_cut_stream() -> None:
    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"
        await asyncio.sleep(60)

    bodies: list[bytes] = []

    async def run() -> None:
        async with _serving(stream) as address, _cutting_proxy(address) as (relayed, cut), _connected(relayed) as connection:

            def keep(_: object, arrived: Sequence[bytes]) -> None:
                bodies.extend(arrived)
                if bodies[-1] == b"two":
                    asyncio.get_running_loop().call_soon(cut)

            await connection.exchange(b"ask", keep, 30.0)

    with pytest.raises(ExchangeFailedError, match=r"^UNAVAILABLE") as failed:
        asyncio.run(run())
    assert (bodies, failed.value.outcome) == ([b"one", b"two"], Outcome.STREAM_CUT)


def test_server_that_went_away_between_requests_cannot_be_connected_to() -> None:
    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield b"one"

    async def run() -> tuple[list[bytes], Outcome | None, str]:
        async with _serving(stream, port=free_port()) as address:
            connection = await _client(_CORE, address).connect(5.0)
            assert await _exchange(connection) == ([b"one"], None, "")
        await asyncio.sleep(0.05)
        answer = await _exchange(connection)
        await connection.close()
        return answer

    bodies, outcome, message = asyncio.run(run())
    assert (bodies, outcome) == ([], Outcome.CONNECT)
    assert "refused" in message


def test_a_server_that_does_not_listen_fails_to_connect_at_once() -> None:
    async def run() -> None:
        await _client(_CORE, f"127.0.0.1:{closed_port()}").connect(60.0)

    with pytest.raises(ExchangeFailedError, match="cannot connect: Connection refused") as caught:
        asyncio.run(run())
    assert caught.value.outcome is Outcome.CONNECT


def test_listener_that_never_speaks_fails_to_connect_within_the_time_allowed() -> None:
    async def run() -> None:
        silent = await asyncio.start_server(lambda reader, writer: asyncio.sleep(60), "127.0.0.1", 0)
        await _client(_CORE, f"127.0.0.1:{silent.sockets[0].getsockname()[1]}").connect(0.3)

    with pytest.raises(ExchangeFailedError) as caught:
        asyncio.run(run())
    assert caught.value.outcome is Outcome.CONNECT


def test_cancelling_an_exchange_notifies_the_server() -> None:
    notified = asyncio.Event()

    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        yield b"one"
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            notified.set()
            raise

    async def run() -> list[bytes]:
        async with _serving(stream) as address, _connected(address) as connection:
            bodies: list[bytes] = []
            task = asyncio.create_task(connection.exchange(b"ask", lambda _, arrived: bodies.extend(arrived), 30.0))
            while not bodies:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(notified.wait(), 60.0)
            return bodies

    assert asyncio.run(run()) == [b"one"]


def test_many_exchanges_share_a_connection_and_do_not_mix() -> None:
    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for raw in requests:
            for part in (b" a", b" b", b" c"):
                await asyncio.sleep(0)
                yield raw + part

    async def run() -> None:
        async with _serving(stream) as address, _connected(address) as connection:
            answers = await asyncio.gather(*(_exchange(connection, b"%d" % number) for number in range(200)))
        for number, answer in enumerate(answers):
            assert answer == ([b"%d a" % number, b"%d b" % number, b"%d c" % number], None, "")

    asyncio.run(run())


# ---- the whole client against the scripted server


@pytest.mark.parametrize("streaming", [True, False])
def test_encoded_request_gets_an_answer_that_decodes(server: ScriptedServer, streaming: bool) -> None:
    async def run() -> list[Response]:
        client = TritonGrpcClient(server.address, inspect_model(server.address, "scripted"), streaming)
        connection = await client.connect(5.0)
        bodies: list[bytes] = []
        await connection.exchange(client.encode(0, scripted(Act.ANSWER, 3)), lambda _, arrived: bodies.extend(arrived), 10.0)
        await connection.close()
        return [client.decode(body) for body in bodies]

    groups = [(5000,), (5001,), (5002,)] if streaming else [(5000, 5001, 5002)]
    assert asyncio.run(run()) == [Response(token_ids=group, request_id="0", final=group[-1] == 5_002) for group in groups]


# ---- asking for a model


def test_inspected_model_is_that_of_its_configuration(server: ScriptedServer) -> None:
    assert inspect_model(server.address, "scripted") == TritonModel(
        name="scripted",
        decoupled=True,
        inputs=frozenset(
            {"input_ids", "input_lengths", "request_output_len", "streaming", "end_id", "exclude_input_in_output"}
        ),
        outputs=frozenset({"output_ids", "sequence_length"}),
        parameters=(("engine", "script"),),
    )
    assert inspect_model(server.address, "scripted").takes_token_ids
    text = inspect_model(server.address, "text")
    assert (text.takes_token_ids, text.decoupled) == (False, True)
    assert not inspect_model(server.address, "unary").decoupled


def test_inspecting_without_a_server_names_the_option_and_the_address() -> None:
    address = f"127.0.0.1:{closed_port()}"
    with pytest.raises(TargetError, match=f"--url {address}: no server answers there"):
        inspect_model(address, "tensorrt_llm")


def test_inspecting_an_unknown_model_names_the_option_and_the_model(server: ScriptedServer) -> None:
    with pytest.raises(TargetError, match=r"--model nosuch: the server at 127\.0\.0\.1:\d+ has no such model"):
        inspect_model(server.address, "nosuch")


def test_inspecting_a_server_that_is_too_slow_is_an_error(server: ScriptedServer) -> None:
    with pytest.raises(TargetError, match=r"no answer within [\d.]+ s"):
        inspect_model(server.address, "slow", timeout_s=0.3)


def test_inspecting_a_server_that_ends_within_its_answer_is_an_error() -> None:
    script = http2_peer.answering(http2_peer.end_within_a_message)
    with peer_server(script) as address, pytest.raises(TargetError, match="without a message"):
        inspect_model(address, "m")


def test_inspecting_a_server_that_fails_passes_its_words_on(server: ScriptedServer) -> None:
    with pytest.raises(TargetError, match="INTERNAL: scripted error"):
        inspect_model(server.address, "broken")


@contextmanager
def _http_server() -> Iterator[str]:
    """Something that speaks HTTP/1.1, as Triton's HTTP port does."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def test_inspecting_the_http_port_asks_whether_it_is_the_grpc_port() -> None:
    with _http_server() as address, pytest.raises(TargetError, match="its gRPC port"):
        inspect_model(address, "tensorrt_llm", timeout_s=3.0)
