"""The requests of upstream's own clients, tensor for tensor, in both modes: they must work unchanged.

Sources: ``benchmark_core_model.py``, ``inflight_batcher_llm_client.py`` and ``end_to_end_grpc_client.py``. None of them asks
for empty final responses, and the core model's clients name no outputs, which asks for all.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import np_to_triton_dtype

from serving.launch.server import Server
from tests.end_to_end.triton_calls import generated_tokens, wait_until_busy, wait_until_idle

BOTH_MODES = pytest.mark.parametrize("mode", ["decoupled_server", "plain_server"])


def tensor(name: str, value: Any) -> grpcclient.InferInput:
    data = np.array(value) if not isinstance(value, np.ndarray) else value
    made = grpcclient.InferInput(name, data.shape, np_to_triton_dtype(data.dtype))
    made.set_data_from_numpy(data)
    return made


def i32(*values: int) -> np.ndarray:
    return np.array([values], dtype=np.int32)


def f32(value: float) -> np.ndarray:
    return np.array([[value]], dtype=np.float32)


def boolean(value: bool) -> np.ndarray:
    return np.array([[value]], dtype=bool)


def text(value: str) -> np.ndarray:
    return np.array([[value]], dtype=object)


def benchmark_inputs(ids: Sequence[int], output_tokens: int) -> list[grpcclient.InferInput]:
    """``benchmark_core_model.py``: five tensors, never ``streaming``."""
    return [
        tensor("input_ids", i32(*ids)),
        tensor("input_lengths", i32(len(ids))),
        tensor("request_output_len", i32(output_tokens)),
        tensor("pad_id", i32(0)),
        tensor("end_id", i32(1)),
    ]


def client_inputs(ids: Sequence[int], output_tokens: int, streaming: bool) -> list[grpcclient.InferInput]:
    """``inflight_batcher_llm_client.py`` with its defaults: beam 1, temperature 1, top_k 1, top_p 0, nothing returned."""
    inputs = [
        tensor("input_ids", i32(*ids)),
        tensor("input_lengths", i32(len(ids))),
        tensor("request_output_len", i32(output_tokens)),
        tensor("beam_width", i32(1)),
        tensor("temperature", f32(1.0)),
        tensor("streaming", boolean(streaming)),
        tensor("runtime_top_k", i32(1)),
        tensor("runtime_top_p", f32(0.0)),
        tensor("return_log_probs", boolean(False)),
        tensor("return_context_logits", boolean(False)),
        tensor("return_generation_logits", boolean(False)),
        tensor("end_id", i32(-1)),
        tensor("pad_id", i32(0)),
    ]
    return inputs if streaming else [made for made in inputs if made.name() != "streaming"]


def stop_inputs() -> list[grpcclient.InferInput]:
    """Its ``stop`` request: one uninitialized id, lengths of zero."""
    return [
        tensor("input_ids", np.empty([1, 1], np.int32)),
        tensor("input_lengths", i32(0)),
        tensor("request_output_len", i32(0)),
        tensor("stop", boolean(True)),
    ]


def text_inputs(prompt: str, output_tokens: int, streaming: bool) -> list[grpcclient.InferInput]:
    """``end_to_end_grpc_client.py``."""
    return [
        tensor("text_input", text(prompt)),
        tensor("max_tokens", i32(output_tokens)),
        tensor("stream", boolean(streaming)),
        tensor("beam_width", i32(1)),
        tensor("temperature", f32(1.0)),
        tensor("return_log_probs", boolean(False)),
        tensor("return_context_logits", boolean(False)),
        tensor("return_generation_logits", boolean(False)),
        tensor("end_id", i32(-1)),
        tensor("pad_id", i32(0)),
    ]


@contextmanager
def stream(server: Server) -> Iterator[tuple[grpcclient.InferenceServerClient, queue.Queue[Any]]]:
    answers: queue.Queue[Any] = queue.Queue()
    with grpcclient.InferenceServerClient(server.addresses.grpc) as client:
        client.start_stream(lambda result, error: answers.put(result if error is None else error))
        yield client, answers
        client.stop_stream()


def ids_of(result: grpcclient.InferResult) -> list[int]:
    ids: list[int] = result.as_numpy("output_ids")[0, 0].tolist()
    assert result.as_numpy("sequence_length").tolist() == [[len(ids)]]
    return ids


def greedy(server: Server, ids: Sequence[int], output_tokens: int) -> list[int]:
    with stream(server) as (client, answers):
        client.async_stream_infer("tensorrt_llm", client_inputs(ids, output_tokens, False))
        return ids_of(answers.get(timeout=120))[len(ids) :]


def test_benchmark_gets_one_response_per_request_over_one_stream(decoupled_server: Server) -> None:
    prompts = [range(10 + k, 40 + k) for k in range(24)]
    with stream(decoupled_server) as (client, answers):
        for number, ids in enumerate(prompts):
            client.async_stream_infer("tensorrt_llm", benchmark_inputs(ids, 5 + number), request_id=str(number))
    # The stream is closed and drained: no further response can arrive.
    results = [answers.get_nowait() for _ in range(answers.qsize())]
    assert sorted(int(result.get_response().id) for result in results) == list(range(24))
    for result in results:
        number = int(result.get_response().id)
        first_output = result.get_response().outputs[0]  # the benchmark reads the number of tokens from its shape
        assert first_output.name == "output_ids"
        ids = ids_of(result)
        assert list(first_output.shape) == [1, 1, len(ids)]
        assert ids[:30] == list(prompts[number])
        assert len(ids) == 35 + number or ids[-1] == 1  # the benchmark's end_id


def test_benchmark_gets_its_futures_without_decoupled_models(plain_server: Server) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    with grpcclient.InferenceServerClient(plain_server.addresses.grpc) as client:
        for number in range(16):
            inputs = benchmark_inputs(range(10, 30), 6)
            client.async_infer(
                "tensorrt_llm", inputs, callback=lambda result, error: answers.put(result or error), request_id=str(number)
            )
        results = [answers.get(timeout=120) for _ in range(16)]
    assert {len(ids_of(result)) for result in results} == {26}
    assert len({tuple(ids_of(result)) for result in results}) == 1


@BOTH_MODES
def test_the_core_client_unstreamed(request: pytest.FixtureRequest, mode: str) -> None:
    server: Server = request.getfixturevalue(mode)
    inputs = client_inputs(range(10, 30), 16, False)
    if mode == "plain_server":
        with grpcclient.InferenceServerClient(server.addresses.grpc) as client:
            answers: queue.Queue[Any] = queue.Queue()
            client.async_infer(
                "tensorrt_llm", inputs, callback=lambda result, error: answers.put(result or error), request_id=""
            )
            result = answers.get(timeout=120)
    else:
        with stream(server) as (client, answers):
            client.async_stream_infer("tensorrt_llm", inputs)
            result = answers.get(timeout=120)
    ids = ids_of(result)
    assert ids[:20] == list(range(10, 30))
    assert len(ids) == 36


def test_the_core_client_streamed_gets_every_token_once(decoupled_server: Server) -> None:
    expected = greedy(decoupled_server, range(10, 30), 16)
    with stream(decoupled_server) as (client, answers):
        client.async_stream_infer("tensorrt_llm", client_inputs(range(10, 30), 16, True), request_id="1")
    results = [answers.get_nowait() for _ in range(answers.qsize())]
    assert [token for result in results for token in ids_of(result)] == expected


def test_stop_on_the_stream_gets_one_empty_response(decoupled_server: Server) -> None:
    with stream(decoupled_server) as (client, answers):
        client.async_stream_infer("tensorrt_llm", client_inputs(range(10, 30), 2000, True), request_id="stop me")
        first = answers.get(timeout=120)
        client.async_stream_infer("tensorrt_llm", stop_inputs(), request_id="stop me", parameters={"Streaming": True})
    results = [first, *(answers.get_nowait() for _ in range(answers.qsize()))]
    empty = [result for result in results if result.as_numpy("output_ids") is None]
    assert len(empty) == 1
    assert 0 < sum(len(ids_of(result)) for result in results if result not in empty) < 2000


def test_stop_without_decoupled_models_ends_the_request_with_its_tokens_so_far(plain_server: Server) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    wait_until_idle(plain_server)
    with grpcclient.InferenceServerClient(plain_server.addresses.grpc) as client:
        client.async_infer(
            "tensorrt_llm",
            client_inputs(range(10, 30), 3000, False),
            callback=lambda result, error: answers.put(result or error),
            request_id="9",
        )
        wait_until_busy(plain_server)
        stopped = client.infer("tensorrt_llm", stop_inputs(), request_id="9", parameters={"Streaming": False})
        assert not stopped.get_response().outputs
        ids = ids_of(answers.get(timeout=120))
    assert ids[:20] == list(range(10, 30))
    assert len(ids) < 3020


@BOTH_MODES
@pytest.mark.parametrize("request_id", ["finished", "never seen"])
def test_stop_of_a_finished_or_unknown_id_succeeds_without_effect(
    request: pytest.FixtureRequest, mode: str, request_id: str
) -> None:
    server: Server = request.getfixturevalue(mode)
    before = greedy(server, range(10, 30), 8)
    with stream(server) as (client, answers):
        client.async_stream_infer("tensorrt_llm", client_inputs(range(10, 30), 8, False), request_id="finished")
        assert ids_of(answers.get(timeout=120))[20:] == before
        client.async_stream_infer("tensorrt_llm", stop_inputs(), request_id=request_id, parameters={"Streaming": True})
        assert not answers.get(timeout=120).get_response().outputs
    assert answers.empty()
    assert greedy(server, range(10, 30), 8) == before


def test_cancelling_the_future_ends_the_request(plain_server: Server) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    before = generated_tokens(wait_until_idle(plain_server))
    with grpcclient.InferenceServerClient(plain_server.addresses.grpc) as client:
        context = client.async_infer(
            "tensorrt_llm",
            client_inputs(range(10, 30), 3000, False),
            callback=lambda result, error: answers.put(error),
            request_id="9",
        )
        wait_until_busy(plain_server)
        context.cancel()
        assert "Locally cancelled" in str(answers.get(timeout=120))
    assert generated_tokens(wait_until_idle(plain_server)) - before < 2000
    assert len(greedy(plain_server, range(10, 30), 4)) == 4


@BOTH_MODES
@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_the_text_client_unstreamed(request: pytest.FixtureRequest, mode: str, model: str) -> None:
    server: Server = request.getfixturevalue(mode)
    with stream(server) as (client, answers):
        client.async_stream_infer(model, text_inputs("What is machine learning?", 20, False), request_id="")
    [result] = [answers.get_nowait() for _ in range(answers.qsize())]
    output = result.as_numpy("text_output")
    assert output.shape == (1,)  # a string a beam, without a batch dimension
    assert output[0].decode().startswith("What is machine learning?")


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_the_text_client_streamed_joins_to_the_unstreamed(decoupled_server: Server, model: str) -> None:
    prompt = "What is machine learning?"
    texts = []
    for streaming in (True, False):
        with stream(decoupled_server) as (client, answers):
            client.async_stream_infer(model, text_inputs(prompt, 40, streaming), request_id="1")
        results = [answers.get_nowait() for _ in range(answers.qsize())]
        texts.append("".join(result.as_numpy("text_output")[0].decode() for result in results))
    assert prompt + texts[0] == texts[1]


@BOTH_MODES
def test_manual_pipeline_and_ensemble_are_equal_in_upstreams_end_to_end_test(request: pytest.FixtureRequest, mode: str) -> None:
    server: Server = request.getfixturevalue(mode)
    with grpcclient.InferenceServerClient(server.addresses.grpc) as client:
        query = [tensor("QUERY", text("Tell me a story")), tensor("REQUEST_OUTPUT_LEN", i32(12))]
        before = client.infer("preprocessing", query)
        passed = (
            ("input_ids", "INPUT_ID"),
            ("input_lengths", "REQUEST_INPUT_LEN"),
            ("request_output_len", "REQUEST_OUTPUT_LEN"),
        )
        core = [tensor(name, before.as_numpy(source)) for name, source in passed]
        with stream(server) as (streaming, answers):
            streaming.async_stream_infer("tensorrt_llm", core)
            made = answers.get(timeout=120)
        after = client.infer(
            "postprocessing",
            [tensor("TOKENS_BATCH", made.as_numpy("output_ids")), tensor("SEQUENCE_LENGTH", made.as_numpy("sequence_length"))],
        )
    with stream(server) as (client, answers):
        client.async_stream_infer("ensemble", [tensor("text_input", text("Tell me a story")), tensor("max_tokens", i32(12))])
        ensemble = answers.get(timeout=120)
    assert after.as_numpy("OUTPUT").tolist() == ensemble.as_numpy("text_output").tolist()
