"""Requests of the ``llmapi`` target's model: parsing and validation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import triton_python_backend_utils as pb_utils

from serving.errors import RequestError
from serving.models.parameters import scalar

_PREFIX = "sampling_param_"
_SCALARS = (
    "best_of", "temperature", "top_k", "top_p", "frequency_penalty", "presence_penalty", "max_tokens", "seed",
    "exclude_input_from_output", "return_perf_metrics",
)  # fmt: skip
_RETURNED = ("finish_reason", "stop_reason", "cumulative_logprob")
_LORA_NAMES = {"lora_name": "lora_name", "lora_id": "lora_int_id", "lora_path": "lora_path"}


@dataclass(frozen=True, slots=True)
class LlmApiRequest:
    """A validated request; ``sampling`` and ``lora`` are arguments of the LLM API's SamplingParams and LoRARequest."""

    prompt: str
    streaming: bool
    sampling: Mapping[str, object]
    lora: Mapping[str, object] | None
    returned: frozenset[str]
    wanted_outputs: frozenset[str]


def parse_llmapi_request(request: Any, decoupled: bool) -> LlmApiRequest:
    """Parse a Triton request. Raises RequestError with the tensor's name and the problem."""
    prompts = _texts(request, "text_input")
    if len(prompts) != 1 or not prompts[0]:
        raise RequestError(f"text_input must hold one non-empty prompt, but holds {len(prompts)} texts")
    streaming = bool(scalar(request, "streaming"))
    if streaming and not decoupled:
        raise RequestError("Streaming is only supported if model is deployed using decoupled mode.")
    returned = frozenset(name for name in _RETURNED if scalar(request, f"return_{name}"))
    sampling: dict[str, object] = {"exclude_input_from_output": False}
    for name in _SCALARS:
        value = scalar(request, _PREFIX + name)
        if value is not None:
            sampling[name] = value
    max_tokens = scalar(request, f"{_PREFIX}max_tokens")
    if max_tokens is not None and max_tokens < 1:
        raise RequestError(f"{_PREFIX}max_tokens must be at least 1, not {max_tokens}")
    if stop := [text for text in _texts(request, _PREFIX + "stop") if text]:
        sampling["stop"] = stop
    if "cumulative_logprob" in returned:
        sampling["logprobs"] = 1  # without log probabilities the LLM API does not compute their sum
    requested = frozenset(request.requested_output_names())
    return LlmApiRequest(prompts[0], streaming, sampling, _lora(request), returned, requested)


def _lora(request: Any) -> dict[str, object] | None:
    values = {name: scalar(request, name) for name in _LORA_NAMES}
    sent = [name for name, value in values.items() if value is not None]
    if not sent:
        if scalar(request, "lora_ckpt_source") is not None:
            raise RequestError("lora_ckpt_source needs lora_name, lora_id and lora_path")
        return None
    if len(sent) < len(values):
        raise RequestError(f"{sent[0]} was sent alone: lora_name, lora_id and lora_path belong together")
    lora = {_LORA_NAMES[name]: _decoded(name, value) if isinstance(value, bytes) else value for name, value in values.items()}
    source = scalar(request, "lora_ckpt_source")
    if source is not None:
        if source not in (b"hf", b"nemo"):
            raise RequestError(f"lora_ckpt_source must be hf or nemo, not {source.decode('utf-8', 'replace')}")
        lora["lora_ckpt_source"] = source.decode()
    return lora


def _texts(request: Any, name: str) -> list[str]:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    if tensor is None:
        return []
    return [_decoded(name, value) for value in tensor.as_numpy().reshape(-1)]


def _decoded(name: str, value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"{name} is not valid UTF-8: {error}") from error
