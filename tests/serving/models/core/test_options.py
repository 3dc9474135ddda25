from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from serving.engines.protocol import EngineOptions, SchedulerPolicy
from serving.errors import ServingError


def _read(**values: str) -> Any:
    from serving.models.core.options import engine_options
    from serving.models.parameters import Parameters

    parameters = {key: {"string_value": value} for key, value in values.items()}
    return engine_options(Parameters(json.dumps({"parameters": parameters})))


def test_unset_parameters_have_their_defaults() -> None:
    assert _read() == EngineOptions()
    assert _read(max_queue_size="${max_queue_size}", batch_scheduler_policy="${batch_scheduler_policy}") == EngineOptions()


def test_parameters_become_options() -> None:
    options = _read(
        batch_scheduler_policy="max_utilization", kv_cache_free_gpu_mem_fraction="0.25", max_queue_size="3",
        max_tokens_in_paged_kv_cache="640", max_beam_width="2", guided_decoding_backend="none",
        engine_python="/vllm/bin/python", tensor_parallel_size="2", engine_arg='["dtype=float16", "seed=3"]',
    )  # fmt: skip
    assert (options.engine_python, options.tensor_parallel_size) == ("/vllm/bin/python", 2)
    assert options.engine_arg == ("dtype=float16", "seed=3")
    assert options.batch_scheduler_policy is SchedulerPolicy.MAX_UTILIZATION
    assert (options.kv_cache_free_gpu_mem_fraction, options.max_queue_size) == (0.25, 3)
    assert (options.max_tokens_in_paged_kv_cache, options.max_beam_width, options.guided_decoding_backend) == (640, 2, "")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("gpt_model_type", "V1", "Invalid gpt_model_type 'V1'"),
        ("batch_scheduler_policy", "static_batch", "batch_scheduler_policy must be guaranteed_no_evict or max_utilization"),
        ("kv_cache_free_gpu_mem_fraction", "1.5", "kv_cache_free_gpu_mem_fraction must lie in (0, 1], not 1.5"),
        ("kv_cache_free_gpu_mem_fraction", "nan", "kv_cache_free_gpu_mem_fraction must lie in (0, 1], not nan"),
        ("kv_cache_free_gpu_mem_fraction", "most", "kv_cache_free_gpu_mem_fraction must be a number, not 'most'"),
        ("max_queue_size", "-1", "max_queue_size must lie in [0"),
        ("max_num_sequences", "0", "max_num_sequences must lie in [1"),
        ("max_tokens_in_paged_kv_cache", "many", "max_tokens_in_paged_kv_cache must be a whole number, not 'many'"),
        ("guided_decoding_backend", "outlines", "guided_decoding_backend must be xgrammar or none, not 'outlines'"),
        ("enable_kv_cache_reuse", "maybe", "enable_kv_cache_reuse must be true or false, not 'maybe'"),
    ],
)
def test_invalid_parameter_error_names_it(key: str, value: str, message: str) -> None:
    with pytest.raises(ServingError) as raised:
        _read(**{key: value})
    assert message in str(raised.value)


@pytest.mark.parametrize(("declared", "dtype"), [("TYPE_FP32", np.float32), ("TYPE_FP16", np.float16)])
def test_logits_have_the_declared_type(declared: str, dtype: Any) -> None:
    from serving.models.core.options import logits_dtype

    assert logits_dtype(json.dumps({"output": [{"name": "generation_logits", "data_type": declared}]})) is dtype


def test_logits_type_without_numpy_equivalent_is_rejected_at_load() -> None:
    from serving.models.core.options import logits_dtype

    with pytest.raises(ServingError, match="logits_datatype TYPE_BF16 is not supported"):
        logits_dtype(json.dumps({"output": [{"name": "generation_logits", "data_type": "TYPE_BF16"}]}))
