"""Reads and checks one request of the core model. What the embedded engine cannot do is refused, never ignored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from serving.engines.protocol import EngineLimits, Sampling
from serving.errors import RequestError
from serving.models.parameters import required_scalar, scalar

NO_END_ID = -1  # TensorRT-LLM's "no token ends the sequence"

_UNSUPPORTED_IF_TRUE = ("return_log_probs", "return_context_logits", "return_generation_logits", "return_perf_metrics")
_UNSUPPORTED_ABOVE_ONE = ("beam_width", "num_return_sequences")
_UNSUPPORTED_IF_NOT_EMPTY = (
    "encoder_input_features",
    "draft_input_ids",
    "draft_logits",
    "stop_words_list",
    "bad_words_list",
    "embedding_bias",
    "runtime_top_p_min",
    "runtime_top_p_decay",
    "runtime_top_p_reset_ids",
    "beam_search_diversity_rate",
    "prompt_embedding_table",
    "prompt_vocab_size",
    "prompt_table_extra_ids",
    "cross_attention_mask",
    "mrope_rotary_cos_sin",
    "mrope_position_deltas",
    "lora_task_id",
    "lora_weights",
    "lora_config",
    "context_phase_params",
    "skip_cross_attn_blocks",
    "retention_token_range_starts",
    "retention_token_range_ends",
    "retention_token_range_priorities",
    "retention_token_range_durations_ms",
    "retention_decode_priority",
    "retention_decode_duration_ms",
    "guided_decoding_guide_type",
    "guided_decoding_guide",
    "lookahead_window_size",
    "lookahead_ngram_size",
    "lookahead_verification_set_size",
)


@dataclass(frozen=True, slots=True)
class CoreRequest:
    """A checked request of the core model."""

    input_ids: list[int]
    sampling: Sampling
    streaming: bool
    exclude_input: bool  # streamed responses never repeat the prompt, as upstream's
    return_num_input_tokens: bool
    return_num_output_tokens: bool
    wanted_outputs: frozenset[str]


def parse_request(request: Any, limits: EngineLimits, decoupled: bool, exclude_input: bool) -> CoreRequest | None:
    """Read one Triton request; None when it is a ``stop`` request.

    ``exclude_input`` is the deployment's default for ``exclude_input_in_output``.
    Raises RequestError with the tensor's name and what is wrong with it.
    """
    if scalar(request, "stop"):
        return None
    _refuse_unsupported(request)
    streaming = bool(scalar(request, "streaming"))
    if streaming and not decoupled:
        raise RequestError("Streaming is only supported if model is deployed using decoupled mode.")
    input_ids = _input_ids(request, limits)
    sampling = _sampling(request, limits)
    if len(input_ids) + sampling.max_tokens > limits.context_tokens:
        raise RequestError(
            f"the prompt has {len(input_ids)} tokens and request_output_len is {sampling.max_tokens}: "
            f"together more than the context length of {limits.context_tokens} tokens"
        )
    excluded = scalar(request, "exclude_input_in_output")
    return CoreRequest(
        input_ids=input_ids,
        sampling=sampling,
        streaming=streaming,
        exclude_input=streaming or (exclude_input if excluded is None else bool(excluded)),
        return_num_input_tokens=bool(scalar(request, "return_num_input_tokens")),
        return_num_output_tokens=bool(scalar(request, "return_num_output_tokens")),
        wanted_outputs=frozenset(request.requested_output_names()),
    )


def _refuse_unsupported(request: Any) -> None:
    for name in _UNSUPPORTED_IF_TRUE:
        if scalar(request, name):
            raise RequestError(f"{name}: the embedded engine does not support it")
    for name in _UNSUPPORTED_ABOVE_ONE:
        value = scalar(request, name)
        if value is not None and value != 1:
            raise RequestError(f"{name} is {value}: the embedded engine supports 1 only")
    for name in _UNSUPPORTED_IF_NOT_EMPTY:
        tensor = pb_utils.get_input_tensor_by_name(request, name)
        if tensor is not None and tensor.as_numpy().size > 0:
            raise RequestError(f"{name}: the embedded engine does not support it")


def _input_ids(request: Any, limits: EngineLimits) -> list[int]:
    tensor = pb_utils.get_input_tensor_by_name(request, "input_ids")
    if tensor is None:
        raise RequestError("input_ids is missing")
    ids = tensor.as_numpy()
    if ids.ndim != 2 or ids.shape[0] != 1:
        raise RequestError(f"input_ids must have shape [1, length], but its shape is {list(ids.shape)}")
    length = required_scalar(request, "input_lengths")
    if not 1 <= length <= ids.shape[1]:
        raise RequestError(f"input_lengths is {length}, but input_ids holds {ids.shape[1]} tokens; a prompt needs at least one")
    ids = ids[0, :length]
    if int(ids.min()) < 0 or int(ids.max()) >= limits.vocabulary_size:
        wrong = ids[(ids < 0) | (ids >= limits.vocabulary_size)][0]
        raise RequestError(f"input_ids holds {wrong}, which is outside the vocabulary [0, {limits.vocabulary_size})")
    prompt: list[int] = ids.tolist()
    return prompt


def _sampling(request: Any, limits: EngineLimits) -> Sampling:
    max_tokens = required_scalar(request, "request_output_len")
    if max_tokens < 1:
        raise RequestError(f"request_output_len must be at least 1, not {max_tokens}")
    top_k = _in_range(request, "runtime_top_k", 0, 0, None)
    top_p = _in_range(request, "runtime_top_p", 0.0, 0.0, 1.0)
    temperature = _in_range(request, "temperature", 1.0, 0.0, None)
    min_tokens = _first(request, "min_tokens", "min_length", default=0)
    if not 0 <= min_tokens <= max_tokens:
        raise RequestError(f"min_tokens must lie in [0, request_output_len = {max_tokens}], not {min_tokens}")
    return Sampling(
        max_tokens=max_tokens,
        end_id=_end_id(request, limits),
        min_tokens=min_tokens,
        # TensorRT-LLM's rule: top_k 1, or neither top_k nor top_p, is greedy; one of them 0 means that only the other limits
        greedy=top_k == 1 or (top_k == 0 and top_p == 0.0) or temperature == 0.0,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p or 1.0,
        repetition_penalty=_in_range(request, "repetition_penalty", 1.0, np.nextafter(0.0, 1.0), None),
        presence_penalty=_in_range(request, "presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=_in_range(request, "frequency_penalty", 0.0, -2.0, 2.0),
        seed=_first(request, "seed", "random_seed", default=0),
    )


def _end_id(request: Any, limits: EngineLimits) -> int | None:
    end_id = scalar(request, "end_id")
    if end_id is None or end_id == NO_END_ID:
        return None
    if not 0 <= end_id < limits.vocabulary_size:
        raise RequestError(f"end_id is {end_id}: neither -1 (none) nor inside the vocabulary [0, {limits.vocabulary_size})")
    return int(end_id)


def _in_range(request: Any, name: str, default: Any, low: float, high: float | None) -> Any:
    value = scalar(request, name)
    if value is None:
        return default
    if not low <= value or (high is not None and value > high):  # `not low <=` also refuses NaN
        limits = f"at least {low:g}" if high is None else f"between {low:g} and {high:g}"
        raise RequestError(f"{name} must be {limits}, not {value:g}")
    return value


def _first(request: Any, *names: str, default: int) -> int:
    values = [value for name in names if (value := scalar(request, name)) is not None]
    return values[0] if values else default
