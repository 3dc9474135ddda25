"""A request as the tensors of Triton's core model, and the tensors of a response as tokens."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from serving.client.request import ModelInterface
from serving.client.triton import add_input, encode
from serving.errors import RequestError
from serving.front_end.api_error import ApiError
from serving.front_end.core_client import read_response
from serving.front_end.core_events import can_stream, event_body, read_event
from serving.front_end.core_request import core_request
from serving.front_end.generation import Generation, Sampling
from serving.front_end.request_times import STAMP_OUTPUTS, Stamps
from serving.repository.tensors import CORE_INPUTS, CORE_OUTPUTS, Release, parse_tensors


def _model(release: Release | None = None) -> ModelInterface:
    names = (frozenset(t.name for t in parse_tensors(text, release=release)) for text in (CORE_INPUTS, CORE_OUTPUTS))
    return ModelInterface("tensorrt_llm", *names)


def _tensors(generation: Generation, end_ids: tuple[int, ...] = (2,), model: ModelInterface | None = None) -> dict[str, Any]:
    model = model or _model()
    message = encode(model, core_request(model, [5, 6, 7], generation, end_ids, "r1"))
    assert (message.model_name, message.id) == ("tensorrt_llm", "r1")
    dtypes = {"INT32": np.int32, "FP32": np.float32, "BOOL": np.bool_, "UINT64": np.uint64}
    values: dict[str, Any] = {"outputs": [output.name for output in message.outputs]}
    for tensor, raw in zip(message.inputs, message.raw_input_contents, strict=True):
        if tensor.datatype == "BYTES":
            values[tensor.name] = raw[4:].decode()
        else:
            read = np.frombuffer(raw, dtypes[tensor.datatype]).reshape(tensor.shape)[0]
            values[tensor.name] = read.item() if read.size == 1 else read.tolist()
    return values


_GREEDY = Generation(Sampling(greedy=True, seed=0), max_tokens=9)


def test_greedy_request() -> None:
    assert _tensors(_GREEDY) == {
        "input_ids": [5, 6, 7],
        "input_lengths": 3,
        "request_output_len": 9,
        "end_id": 2,
        "streaming": False,
        "seed": 0,
        "exclude_input_in_output": True,
        "runtime_top_k": 1,
        "outputs": ["output_ids", "sequence_length"],
    }


def test_sampling_without_limits_is_not_greedy() -> None:
    tensors = _tensors(Generation(Sampling(seed=-1), max_tokens=9))
    assert (tensors["temperature"], tensors["runtime_top_p"], tensors["runtime_top_k"]) == (1.0, 1.0, 0)
    assert tensors["seed"] == 2**64 - 1


def test_requests_without_a_seed_have_different_ones() -> None:
    seeds = {_tensors(Generation(max_tokens=1))["seed"] for _ in range(4)}
    assert len(seeds) == 4


def test_penalties_and_limits_have_their_inputs() -> None:
    sampling = Sampling(False, 0.5, 0.75, 40, 1, 1.0, -1.0, 1.5, ("json_schema", "{}"))
    tensors = _tensors(Generation(sampling, n=3, max_tokens=9, min_tokens=4, stream=True))
    expected = {
        "temperature": 0.5,
        "runtime_top_p": 0.75,
        "runtime_top_k": 40,
        "presence_penalty": 1.0,
        "frequency_penalty": -1.0,
        "repetition_penalty": 1.5,
        "min_tokens": 4,
        "num_return_sequences": 3,
        "streaming": True,
        "guided_decoding_guide_type": "json_schema",
        "guided_decoding_guide": "{}",
    }
    assert {name: tensors[name] for name in expected} == expected
    assert tensors["outputs"] == ["output_ids", "sequence_length", "sequence_index"]


def test_further_end_ids_are_stop_words_and_none_is_no_end() -> None:
    assert _tensors(_GREEDY, (2, 9, 8))["stop_words_list"] == [[9, 8], [1, 2]]
    assert _tensors(_GREEDY, ())["end_id"] == -1


def test_further_end_ids_are_left_to_the_reader_where_there_is_a_least_length() -> None:
    tensors = _tensors(replace(_GREEDY, min_tokens=4), (2, 9, 8))
    assert "stop_words_list" not in tensors
    assert (tensors["end_id"], tensors["min_tokens"], tensors["streaming"]) == (2, 4, True)
    assert _tensors(replace(_GREEDY, min_tokens=4), (2,))["streaming"] is False


@pytest.mark.parametrize(("top", "switch", "output"), [
    (0, "return_log_probs", "output_log_probs"),
    (3, "return_generation_logits", "generation_logits"),
])  # fmt: skip
def test_log_probabilities(top: int, switch: str, output: str) -> None:
    tensors = _tensors(replace(_GREEDY, top_logprobs=top))
    assert tensors[switch] is True
    assert tensors["outputs"][-1] == output


def test_times_of_the_engine_are_requested_with_their_outputs() -> None:
    tensors = _tensors(replace(_GREEDY, include_metrics=True))
    assert tensors["return_perf_metrics"] is True
    assert tensors["outputs"] == ["output_ids", "sequence_length", *STAMP_OUTPUTS]
    assert can_stream(core_request(_model(), [5], replace(_GREEDY, stream=True, include_metrics=True), (2,), "r1"))


def test_times_are_refused_where_the_model_has_no_input_for_them() -> None:
    with pytest.raises(ApiError, match="'include_metrics' is not supported with this model") as caught:
        _tensors(replace(_GREEDY, include_metrics=True), model=_model(Release.V0_11))
    assert caught.value.status == 400


def test_stop_texts_are_looked_for_as_tokens_come() -> None:
    assert _tensors(replace(_GREEDY, stop=("x",)))["streaming"] is True


def test_core_model_of_release_0_11_streams_so_that_it_repeats_no_prompt() -> None:
    tensors = _tensors(replace(_GREEDY, min_tokens=2), model=_model(Release.V0_11))
    assert "exclude_input_in_output" not in tensors
    assert tensors["streaming"] is True
    assert (tensors["min_length"], tensors["random_seed"]) == (2, 0)


def test_what_the_model_has_no_input_for_is_refused() -> None:
    with pytest.raises(RequestError, match="guided_decoding_guide_type"):
        _tensors(replace(_GREEDY, sampling=Sampling(guide=("json", ""))), model=_model(Release.V0_11))


def _response(final: bool = False, **values: Any) -> Any:
    as_request = service_pb2.ModelInferRequest()
    for name, value in values.items():
        add_input(as_request, name, np.array(value))
    response = service_pb2.ModelInferResponse()
    for tensor, raw in zip(as_request.inputs, as_request.raw_input_contents, strict=True):
        response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        response.raw_output_contents.append(raw)
    response.parameters["triton_final_response"].bool_param = final
    return response


def test_tokens_of_a_response() -> None:
    read = read_response(
        _response(
            output_ids=np.array([[[4, 5, 0]]], np.int32),
            sequence_length=np.array([[2]], np.int32),
            sequence_index=np.array([[1]], np.int32),
            output_log_probs=np.array([[[-1.5, -2.5]]], np.float32),
        )
    )
    assert (read.index, read.token_ids, read.log_probs, read.is_final) == (1, [4, 5], [-1.5, -2.5], False)


def test_last_response_may_be_empty() -> None:
    read = read_response(_response(final=True))
    assert (read.token_ids, read.is_final) == ([], True)
    assert array("i").itemsize == 4  # as INT32


def test_stamps_of_a_response_are_all_or_none() -> None:
    response = _response()
    for ns, name in enumerate(STAMP_OUTPUTS, start=2**40):
        response.outputs.add(name=name, datatype="INT64", shape=[1, 1])
        response.raw_output_contents.append(ns.to_bytes(8, "little"))
    assert read_response(response).stamps == Stamps(2**40, 2**40 + 1, 2**40 + 2, 2**40 + 3)
    del response.outputs[2], response.raw_output_contents[2]
    assert read_response(response).stamps is None
    assert read_response(_response(output_ids=np.array([[[4]]], np.int32))).stamps is None


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_logits_have_a_row_a_token(dtype: Any) -> None:
    read = read_response(_response(generation_logits=np.arange(6).astype(dtype).reshape(1, 1, 2, 3)))
    assert read.logits is not None
    assert read.logits.tolist() == [[0, 1, 2], [3, 4, 5]]


# ---- over the generate extension


def test_body_of_the_generate_extension_has_the_same_tensors() -> None:
    request = core_request(_model(), [5, 6, 7], replace(_GREEDY, stream=True), (2,), "r1")
    assert can_stream(request)
    assert json.loads(event_body(_model(), request)) == {
        "id": "r1",
        "input_ids": [5, 6, 7],
        "input_lengths": 3,
        "request_output_len": 9,
        "end_id": 2,
        "streaming": True,
        "seed": 0,
        "exclude_input_in_output": True,
        "runtime_top_k": 1,
    }


@pytest.mark.parametrize("fields", [{"stream": False}, {"top_logprobs": 3}])
def test_other_requests_go_over_grpc(fields: dict[str, Any]) -> None:
    generation = replace(_GREEDY, **{"stream": True, **fields})
    assert not can_stream(core_request(_model(), [5], generation, (2,), "r1"))
    assert not can_stream(core_request(_model(), [5], replace(_GREEDY, stream=True), (2, 3), "r1"))  # two dimensions


def test_text_tensors_of_the_generate_extension() -> None:
    generation = replace(_GREEDY, stream=True, sampling=Sampling(guide=("json_schema", '{"a": "é"}')))
    body = json.loads(event_body(_model(), core_request(_model(), [5], generation, (2,), "r1")))
    assert (body["guided_decoding_guide"], body["input_ids"]) == ('{"a": "é"}', 5)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"output_ids": [4, 5, 0], "sequence_length": 2, "sequence_index": 1}, (1, [4, 5], [])),
        ({"output_ids": 4, "sequence_length": [1], "output_log_probs": -1.5, "model_name": "x"}, (0, [4], [-1.5])),
        ({"output_ids": [], "sequence_length": 0}, (0, [], [])),
    ],
)
def test_event_of_the_generate_extension(event: dict[str, Any], expected: tuple[int, list[int], list[float]]) -> None:
    read = read_event(b"data: " + json.dumps(event).encode())
    assert (read.index, read.token_ids, read.log_probs) == expected
    assert not read.is_final  # no event says so


@pytest.mark.parametrize(
    ("event", "stamps"),
    [
        (dict(zip(STAMP_OUTPUTS, (5, 6, 7, 8), strict=True)), Stamps(5, 6, 7, 8)),
        (dict(zip(STAMP_OUTPUTS, ([5], [6], [0], [0]), strict=True)), Stamps(5, 6, 0, 0)),
        ({"arrival_time_ns": 5}, None),
        ({"last_token_time_ns": 5}, None),
    ],
)
def test_stamps_of_an_event_are_all_or_none(event: dict[str, Any], stamps: Stamps | None) -> None:
    assert read_event(b"data: " + json.dumps(event | {"output_ids": 4, "sequence_length": 1}).encode()).stamps == stamps


@pytest.mark.parametrize(("status", "answered", "text"), [(400, 400, "no"), (500, 500, "no"), (500, 429, "Maximum queue size")])
def test_error_of_the_generate_extension(status: int, answered: int, text: str) -> None:
    with pytest.raises(ApiError, match=text) as caught:
        read_event(json.dumps({"error": text}).encode(), status)
    assert caught.value.status == answered


def test_error_of_an_engine_without_times_names_the_field_of_the_request() -> None:
    with pytest.raises(ApiError, match="'include_metrics' is not supported") as caught:
        read_event(json.dumps({"error": "return_perf_metrics: the tensorrt_llm engine does not support it"}).encode(), 500)
    assert (caught.value.status, json.loads(caught.value.body())["error"]["param"]) == (400, "include_metrics")
