"""``model.py`` of two models that others wrote, without their engines: vllm_backend's, and that of TensorRT-LLM's LLM API.

Tensors, shapes, data types and rules are those of their sources (triton-inference-server/vllm_backend ``src/utils/request.py``;
NVIDIA/TensorRT-LLM ``triton_backend/all_models/llmapi``), surprising ones included. Each counts: the answer of four tokens to
"Say" is " 0 1 2 3". After every answer it appends the id of its request, its tokens and how it ended to a log.

A request is odd by its prompt: "explode" fails after two tokens, "early" ends its sequence after three.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

_STEP_S = 0.004
_FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
_EARLY = 3


@dataclass(frozen=True)
class Asked:
    """What a request asks for; ``returned`` are the names of further outputs."""

    prompt: str
    streaming: bool
    tokens: int
    ignores_eos: bool
    with_prompt: bool
    returned: frozenset[str]


class TritonPythonModel:
    """Answers each request on a thread of its own."""

    def initialize(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self._decoupled = pb_utils.using_decoupled_model_transaction_policy(config)
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        self._rules: Any = {"vllm": _Vllm(), "llmapi": _LlmApi()}[parameters["rules"]]
        self._log, self._lock = parameters["log"], threading.Lock()

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            threading.Thread(target=self._answer, args=(request, request.get_response_sender())).start()

    def _answer(self, request: Any, sender: Any) -> None:
        sent, end = 0, "done"
        try:
            asked = self._rules.read(request)
            if asked.streaming and not self._decoupled:
                raise ValueError("Streaming is only supported in decoupled mode.")
            last = None
            for sent, is_last in _tokens(asked):
                if sender.is_cancelled():
                    end = "cancelled"
                    break
                last = self._rules.response(asked, sent, is_last)
                if asked.streaming and not is_last:
                    sender.send(last)
            if end == "cancelled":
                last = _error("Request was cancelled", pb_utils.TritonError.CANCELLED)
            sender.send(last, flags=_FINAL)
        except Exception as error:
            end = "failed"
            sender.send(_error(f"Error generating stream: {error}", pb_utils.TritonError.INTERNAL), flags=_FINAL)
        with self._lock, open(self._log, "a", encoding="utf-8") as log:
            log.write(f"{request.request_id()} {sent} {end}\n")


def _tokens(asked: Asked) -> Iterator[tuple[int, bool]]:
    """How many tokens there are so far, and whether the last is among them."""
    last = _EARLY if asked.prompt == "early" and not asked.ignores_eos else asked.tokens
    for number in range(1, last + 1):
        if asked.prompt == "explode" and number > 2:
            raise RuntimeError("the engine is gone")
        time.sleep(_STEP_S)
        yield number, number == last


class _Vllm:
    """``sampling_parameters`` is a JSON object; counts are unsigned, that of the prompt without a dimension."""

    def read(self, request: Any) -> Asked:
        streaming = bool(_first(request, "stream"))
        exclude = _first(request, "exclude_input_in_output")
        with_prompt = not streaming if exclude is None else not exclude
        if with_prompt and streaming:
            raise ValueError("When streaming, `exclude_input_in_output` = False is not allowed.")
        parameters = json.loads(_first(request, "sampling_parameters").decode())
        if unknown := set(parameters) - {"max_tokens", "ignore_eos", "temperature"}:
            raise ValueError(f"unexpected keyword arguments {unknown}")
        counts = frozenset(name for name in ("num_input_tokens", "num_output_tokens") if _first(request, f"return_{name}"))
        return Asked(
            _prompt(request), streaming, parameters["max_tokens"], parameters.get("ignore_eos", False), with_prompt, counts
        )

    def response(self, asked: Asked, so_far: int, _: bool) -> Any:
        new = range(so_far - 1, so_far) if asked.streaming else range(so_far)
        tensors = [_texts((asked.prompt if asked.with_prompt else "") + "".join(f" {number}" for number in new))]
        if "num_input_tokens" in asked.returned:
            tensors.append(pb_utils.Tensor("num_input_tokens", np.asarray(len(asked.prompt.split()), np.uint32)))
        if "num_output_tokens" in asked.returned:
            tensors.append(pb_utils.Tensor("num_output_tokens", np.asarray([len(new)], np.uint32)))
        return pb_utils.InferenceResponse(tensors)


class _LlmApi:
    """A streamed response has the whole text so far, and a number is sent as a text. There are no counts."""

    def read(self, request: Any) -> Asked:
        timed = _first(request, "sampling_param_return_perf_metrics")
        return Asked(
            _prompt(request),
            bool(_first(request, "streaming")),
            int(_first(request, "sampling_param_max_tokens")),
            False,
            not _first(request, "sampling_param_exclude_input_from_output"),
            frozenset([*(["times"] if timed else ()), *(["finish_reason"] if _first(request, "return_finish_reason") else ())]),
        )

    def response(self, asked: Asked, so_far: int, is_last: bool) -> Any:
        lead = asked.prompt if asked.with_prompt else ""
        tensors = [_texts(lead + "".join(f" {number}" for number in range(so_far)))]
        if "finish_reason" in asked.returned:
            reason = "None" if not is_last else "length" if so_far == asked.tokens else "stop"
            tensors.append(_texts(reason, "finish_reason"))
        if "times" in asked.returned and is_last:
            names = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")
            values = (1_000, 31_000, 81_000, 301_000)
            tensors += [_texts(str(value), name) for name, value in zip(names, values, strict=True)]
        return pb_utils.InferenceResponse(tensors)


def _prompt(request: Any) -> str:
    tensor = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()
    if tensor.ndim > 1:
        raise ValueError("The current implementation only supports text_input being a 1D tensor.")
    return str(tensor[0].decode())


def _first(request: Any, name: str) -> Any:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        return None
    if tensor.as_numpy().ndim > 1:
        raise ValueError(f"{name} has a dimension too many")
    return tensor.as_numpy()[0]


def _texts(text: str, name: str = "text_output") -> Any:
    return pb_utils.Tensor(name, np.asarray([text.encode()], np.object_))


def _error(message: str, code: Any) -> Any:
    return pb_utils.InferenceResponse([], error=pb_utils.TritonError(message, code))
