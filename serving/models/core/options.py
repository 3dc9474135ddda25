"""The core model's ``parameters``: parsing and validation, when the model is loaded."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from serving.engines.protocol import EngineOptions, SchedulerPolicy
from serving.errors import ServingError
from serving.models.parameters import Parameters

_GPT_MODEL_TYPES = ("inflight_fused_batching", "inflight_batching")
_DTYPES = {"TYPE_FP32": np.float32, "TYPE_FP16": np.float16}


def engine_options(parameters: Parameters) -> EngineOptions:
    """The engine's settings. Raises ServingError with the parameter's name and its allowed values."""
    default = EngineOptions()
    batching = parameters.text("gpt_model_type", _GPT_MODEL_TYPES[0])
    if batching not in _GPT_MODEL_TYPES:
        known_types = " or ".join(_GPT_MODEL_TYPES)
        raise ServingError(f"Invalid gpt_model_type {batching!r}; this engine batches in flight: {known_types}")
    policy = parameters.text("batch_scheduler_policy", default.batch_scheduler_policy.value)
    policies = [known.value for known in SchedulerPolicy]
    if policy not in policies:
        raise ServingError(f"parameter batch_scheduler_policy must be {' or '.join(policies)}, not {policy!r}")
    backend = parameters.text("guided_decoding_backend", default.guided_decoding_backend)
    if backend not in ("xgrammar", "none"):
        raise ServingError(f"parameter guided_decoding_backend must be xgrammar or none, not {backend!r}")
    fraction = parameters.number("kv_cache_free_gpu_mem_fraction", default.kv_cache_free_gpu_mem_fraction)
    if not 0.0 < fraction <= 1.0:
        raise ServingError(f"parameter kv_cache_free_gpu_mem_fraction must lie in (0, 1], not {fraction:g}")
    further = json.loads(parameters.text("engine_arg", "[]"))
    return EngineOptions(
        max_tokens_in_paged_kv_cache=_count(parameters, "max_tokens_in_paged_kv_cache", default.max_tokens_in_paged_kv_cache),
        max_num_sequences=_count(parameters, "max_num_sequences", default.max_num_sequences),
        max_num_tokens=_count(parameters, "max_num_tokens", default.max_num_tokens),
        enable_kv_cache_reuse=parameters.boolean("enable_kv_cache_reuse", default.enable_kv_cache_reuse),
        enable_chunked_context=parameters.boolean("enable_chunked_context", default.enable_chunked_context),
        kv_cache_free_gpu_mem_fraction=fraction,
        batch_scheduler_policy=SchedulerPolicy(policy),
        max_queue_size=_count(parameters, "max_queue_size", default.max_queue_size, least=0),
        max_beam_width=_count(parameters, "max_beam_width", default.max_beam_width),
        guided_decoding_backend="" if backend == "none" else backend,
        lora_cache_host_memory_bytes=_count(
            parameters, "lora_cache_host_memory_bytes", default.lora_cache_host_memory_bytes, most=2**63
        ),
        step_log=parameters.text("step_log", default.step_log),
        min_step_time=parameters.text("min_step_time", default.min_step_time),
        engine_python=parameters.file_name("engine_python", default.engine_python),
        tensor_parallel_size=_count(parameters, "tensor_parallel_size", default.tensor_parallel_size),
        engine_arg=tuple(map(str, further)),
    )


def logits_dtype(model_config: str) -> Any:
    """NumPy dtype of the logits in the model's configuration. Raises ServingError for a type without NumPy equivalent."""
    outputs = {output["name"]: output["data_type"] for output in json.loads(model_config).get("output", [])}
    declared = outputs.get("generation_logits", "TYPE_FP32")
    if declared not in _DTYPES:
        raise ServingError(f"logits_datatype {declared} is not supported by the embedded engine; use TYPE_FP32 or TYPE_FP16")
    return _DTYPES[declared]


def wraps_ids(parameters: Parameters) -> bool:
    """Whether ids beyond the vocabulary are taken modulo its size. Raises ServingError for an unknown value."""
    handling = parameters.text("out_of_vocabulary_ids", "refuse")
    if handling not in ("refuse", "wrap"):
        raise ServingError(f"parameter out_of_vocabulary_ids must be refuse or wrap, not {handling!r}")
    return handling == "wrap"


def _count(parameters: Parameters, key: str, default: int, least: int = 1, most: int = 2**31 - 1) -> int:
    value = parameters.integer(key, default)
    if not least <= value <= most:
        raise ServingError(f"parameter {key} must lie in [{least}, {most}], not {value}")
    return value
