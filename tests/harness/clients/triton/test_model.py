"""What bench reads of a Triton model's configuration."""

from __future__ import annotations

import pytest
from tritonclient.grpc import model_config_pb2

from harness.clients.protocol import Repetition
from harness.clients.triton.model import TritonModel
from harness.clients.triton.model_kinds import Ends
from workloads.elements.request import Request

_TEXT = {"text_input": [1], "max_tokens": [1]}
_LLM_API = {"text_input": [1], "sampling_param_max_tokens": [1]}


def _model(inputs: dict[str, list[int]], max_batch_size: int = 0, **parameters: str) -> TritonModel:
    config = model_config_pb2.ModelConfig(max_batch_size=max_batch_size)
    for name, dims in inputs.items():
        config.input.add(name=name, dims=dims)
    for key, value in parameters.items():
        config.parameters[key].string_value = value
    return TritonModel.of_config("m", config)


def _shapes(model: TritonModel, request: Request) -> dict[str, tuple[int, ...]]:
    return {tensor.name: model.shape(tensor) for tensor in model.tensors(request, True, Ends(None, None))}


def test_inputs_that_are_not_sent_have_no_effect_on_shapes() -> None:
    text = {"text_input": [1], "sampling_parameters": [1], "prompt_embeds": [-1, -1]}
    request = Request(output_tokens=9, prompt="Hi")
    assert _shapes(_model(text), request) == {"text_input": (1,), "sampling_parameters": (1,)}
    core = {"input_ids": [-1], "input_lengths": [1], "request_output_len": [1], "bad_words_list": [2, -1]}
    request = Request(output_tokens=9, input_ids=(5, 6, 7))
    assert _shapes(_model(core), request) == {"input_ids": (3,), "input_lengths": (1,), "request_output_len": (1,)}


def test_each_input_has_as_many_dimensions_as_the_configuration_gives_it() -> None:
    core = {"input_ids": [1, -1], "input_lengths": [1], "request_output_len": [1, 1]}
    request = Request(output_tokens=9, input_ids=(5, 6, 7))
    assert _shapes(_model(core), request) == {"input_ids": (1, 3), "input_lengths": (1,), "request_output_len": (1, 1)}
    batched = _model({"input_ids": [-1], "input_lengths": [1], "request_output_len": [1]}, max_batch_size=8)
    assert _shapes(batched, request) == {"input_ids": (1, 3), "input_lengths": (1, 1), "request_output_len": (1, 1)}


@pytest.mark.parametrize("value", ["true", "True", " TRUE ", "1", "t", "y", "Yes"])
def test_accumulate_tokens_makes_repetition_certain(value: str) -> None:
    assert _model(_TEXT, accumulate_tokens=value).repetition is Repetition.CERTAIN
    assert _model(_LLM_API, accumulate_tokens=value).repetition is Repetition.CERTAIN


@pytest.mark.parametrize(
    "parameters", [{}, *({"accumulate_tokens": value} for value in ("false", "0", "", "${accumulate_tokens}"))]
)
def test_without_it_only_the_llm_api_may_repeat(parameters: dict[str, str]) -> None:
    assert _model(_TEXT, **parameters).repetition is Repetition.NONE
    assert _model(_LLM_API, **parameters).repetition is Repetition.POSSIBLE
