"""The client for single requests, against a scripted server in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from serving.client.request import GenerationRequest, ModelInterface
from serving.client.triton import CallOptions, EarlyStop, GenerationResult, TritonClient, add_input, encode
from serving.errors import ClientError

Script = Callable[[Iterator[Any], Any], Iterator[Any]]
CORE = ModelInterface(
    "tensorrt_llm",
    frozenset({"input_ids", "input_lengths", "request_output_len", "stop", "streaming", "beam_width"}),
    frozenset({"output_ids", "sequence_length"}),
)
TEXT = ModelInterface("ensemble", frozenset({"text_input", "max_tokens", "stream"}), frozenset({"text_output"}))
REQUEST = GenerationRequest(input_ids=((5, 6),), request_id="7")


class _Service(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    def __init__(self, script: Script) -> None:
        self._script = script

    def ModelStreamInfer(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        yield from self._script(requests, context)


@contextmanager
def scripted_client(script: Script) -> Iterator[TritonClient]:
    server = grpc.server(ThreadPoolExecutor(4))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Service(script), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with TritonClient(f"127.0.0.1:{port}") as client:
            yield client
    finally:
        server.stop(None)


def response(final: bool = True, **outputs: np.ndarray) -> Any:
    """A response of the stream; ``text_output`` is given as an array of bytes."""
    message = service_pb2.ModelStreamInferResponse()
    request = service_pb2.ModelInferRequest()
    for name, array in outputs.items():
        if array.dtype == np.int64 or array.dtype == np.float64:
            array = array.astype(np.int32 if array.dtype == np.int64 else np.float32)
        add_input(request, name, array)
    for tensor, raw in zip(request.inputs, request.raw_input_contents, strict=True):
        message.infer_response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        message.infer_response.raw_output_contents.append(raw)
    message.infer_response.parameters["triton_final_response"].bool_param = final
    return message


def ids(*tokens: int) -> np.ndarray:
    return np.array([[tokens]], dtype=np.int32)


def text(*values: str) -> np.ndarray:
    return np.array([[value.encode() for value in values]], dtype=object)


def replay(*messages: Any) -> Script:
    def script(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        next(requests)
        yield from messages

    return script


def generate(
    client: TritonClient, model: ModelInterface = CORE, request: GenerationRequest = REQUEST, **options: Any
) -> GenerationResult:
    return client.generate(model, request, encode(model, request), CallOptions(**options))


def test_streamed_tokens_are_concatenated_without_padding() -> None:
    first = response(False, output_ids=ids(1, 2, 0), sequence_length=np.array([[2]]))
    with scripted_client(
        replay(first, response(False, output_ids=ids(3), sequence_length=np.array([[1]])), response())
    ) as client:
        result = generate(client)
    assert result.sequences[0, 0].tokens == [[1, 2, 3]]
    assert (result.error, result.stopped, result.responses) == (None, False, 2)


def test_streamed_beams_replace_each_other() -> None:
    beams = [np.array([[[1, 0], [2, 0]]]), np.array([[[1, 5], [3, 4]]])]
    lengths = [np.array([[1, 1]]), np.array([[2, 2]])]
    messages = [response(k == 1, output_ids=beams[k], sequence_length=lengths[k]) for k in (0, 1)]
    with scripted_client(replay(*messages)) as client:
        result = generate(client, request=GenerationRequest(input_ids=((5,),), scalars={"beam_width": 2}))
    assert result.sequences[0, 0].tokens == [[1, 5], [3, 4]]


def test_interleaved_rows_and_sequences_are_separated() -> None:
    def part(row: int, number: int, piece: str, final: bool = False) -> Any:
        return response(final, text_output=text(piece), batch_index=np.array([[row]]), sequence_index=np.array([[number]]))

    messages = [part(1, 0, "b"), part(0, 1, "x"), part(0, 0, "a"), part(1, 0, "B"), part(0, 1, "X", final=True)]
    with scripted_client(replay(*messages)) as client:
        result = generate(client, TEXT, GenerationRequest(prompts=("p", "q")))
    assert {place: sequence.texts for place, sequence in result.sequences.items()} == {
        (1, 0): ["bB"],
        (0, 1): ["xX"],
        (0, 0): ["a"],
    }


@pytest.mark.parametrize(("overwrite", "whole"), [(False, "aab"), (True, "ab")])
def test_accumulated_text_replaces_the_previous_text(overwrite: bool, whole: str) -> None:
    with scripted_client(replay(response(False, text_output=text("a")), response(text_output=text("ab")))) as client:
        result = generate(client, TEXT, GenerationRequest(prompts=("p",)), overwrite_text=overwrite)
    assert result.sequences[0, 0].texts == [whole]


def test_parts_of_log_probs_and_logits_are_concatenated_and_counts_added() -> None:
    def part(k: int, final: bool) -> Any:
        return response(
            final,
            output_ids=ids(k),
            output_log_probs=np.full((1, 1, 1), float(k), np.float32),
            generation_logits=np.full((1, 1, 1, 3), float(k), np.float32),
            cum_log_probs=np.full((1, 1), float(k), np.float32),
            num_output_tokens=np.array([[1]]),
        )

    with scripted_client(replay(part(1, False), part(2, True))) as client:
        extras = generate(client).sequences[0, 0].extras
    assert extras["output_log_probs"].tolist() == [[[1.0, 2.0]]]
    assert extras["generation_logits"].shape == (1, 1, 2, 3)
    assert extras["cum_log_probs"].tolist() == [[2.0]]
    assert extras["num_output_tokens"].tolist() == [[2]]


def test_the_servers_error_is_in_the_result() -> None:
    with scripted_client(replay(service_pb2.ModelStreamInferResponse(error_message="no room"))) as client:
        assert generate(client).error == "no room"


def test_a_stream_that_breaks_is_an_error() -> None:
    def breaks(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        yield response(False, output_ids=ids(1))
        context.abort(grpc.StatusCode.INTERNAL, "it broke")

    with scripted_client(breaks) as client:
        result = generate(client)
    assert result.error == "INTERNAL: it broke"
    assert result.sequences[0, 0].tokens == [[1]]


def test_timeout_of_a_silent_server() -> None:
    over = threading.Event()

    def hangs(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        context.add_callback(over.set)
        over.wait(120)
        yield from ()

    with scripted_client(hangs) as client:
        result = generate(client, timeout_s=0.3)
    assert result.error is not None
    assert result.error.startswith("DEADLINE_EXCEEDED")


def test_stop_sends_upstreams_request_on_the_same_stream_and_waits_for_both_ends() -> None:
    received = []

    def stoppable(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        received.append(next(requests))
        yield response(False, output_ids=ids(1))
        received.append(next(requests))
        yield response()  # the final response of the stop request
        yield response(True, output_ids=ids(2))

    with scripted_client(stoppable) as client:
        result = generate(client, early_stop=EarlyStop(50, cancel_call=False))
    assert result.stopped
    assert result.sequences[0, 0].tokens == [[1, 2]]
    assert received[1].id == received[0].id == "7"
    assert [(t.name, t.datatype, list(t.shape)) for t in received[1].inputs] == [
        ("input_ids", "INT32", [1, 1]),
        ("input_lengths", "INT32", [1, 1]),
        ("request_output_len", "INT32", [1, 1]),
        ("stop", "BOOL", [1, 1]),
    ]
    assert list(received[1].raw_input_contents[1:]) == [bytes(4), bytes(4), b"\x01"]


def test_cancellation_reaches_the_server_and_is_not_an_error() -> None:
    cancelled = threading.Event()

    def endless(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        context.add_callback(cancelled.set)
        yield response(False, output_ids=ids(1))
        cancelled.wait(120)

    with scripted_client(endless) as client:
        result = generate(client, early_stop=EarlyStop(1000, cancel_call=True))
        assert cancelled.wait(120)
    assert (result.error, result.stopped, result.sequences[0, 0].tokens) == (None, True, [[1]])


def test_a_result_before_the_stop_time_is_not_stopped() -> None:
    with scripted_client(replay(response(output_ids=ids(1)))) as client:
        assert not generate(client, early_stop=EarlyStop(60_000, cancel_call=False)).stopped


def test_stop_is_refused_where_the_model_has_no_input_for_it() -> None:
    with (
        scripted_client(replay(response())) as client,
        pytest.raises(ClientError, match="the model ensemble has no input stop"),
    ):
        generate(client, TEXT, GenerationRequest(prompts=("p",)), early_stop=EarlyStop(1, cancel_call=False))


def test_an_interrupted_request_is_cancelled() -> None:
    cancelled = threading.Event()

    def endless(requests: Iterator[Any], context: Any) -> Iterator[Any]:
        context.add_callback(cancelled.set)
        yield response(False, output_ids=ids(1))
        cancelled.wait(120)

    def interrupt(sequence: Any, values: Any) -> None:
        raise KeyboardInterrupt

    message = encode(CORE, REQUEST)

    with scripted_client(endless) as client:
        with pytest.raises(KeyboardInterrupt):
            client.generate(CORE, REQUEST, message, on_response=interrupt)
        assert cancelled.wait(120)
