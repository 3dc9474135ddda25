"""Repository for TensorRT-LLM's LLM API: one Python-backend model, ``tensorrt_llm``, with text input and output.

It needs no prebuilt engine: ``model.yaml`` contains the arguments of ``LLM(...)``, such as the model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from serving.errors import RepositoryError
from serving.repository.model_config import add_parameters, add_tensors, write_config
from serving.repository.tensors import parse_tensors
from serving.repository.values import Kind, Parameter
from serving.repository.vendoring import write_self_contained_model

LLMAPI_INPUTS = """
text_input                                 STRING -1
streaming?                                 BOOL   1
sampling_param_best_of?                    INT32  1
sampling_param_temperature?                FP32   1
sampling_param_top_k?                      INT32  1
sampling_param_top_p?                      FP32   1
sampling_param_frequency_penalty?          FP32   1
sampling_param_presence_penalty?           FP32   1
sampling_param_max_tokens?                 INT32  1
sampling_param_stop?                       STRING -1
sampling_param_seed?                       UINT64 1
sampling_param_exclude_input_from_output?  BOOL   1
sampling_param_return_perf_metrics?        BOOL   1
return_finish_reason?                      BOOL   1
return_stop_reason?                        BOOL   1
return_cumulative_logprob?                 BOOL   1
stop?                                      BOOL   1
lora_id?                                   UINT64 1
lora_name?                                 STRING 1
lora_path?                                 STRING 1
lora_ckpt_source?                          STRING 1
"""

LLMAPI_OUTPUTS = """
text_output                  STRING -1
finish_reason                STRING -1
stop_reason                  STRING -1
cumulative_logprob           FP32   -1
kv_cache_reused_block        INT32  -1
kv_cache_missed_block        INT32  -1
kv_cache_alloc_new_blocks    INT32  -1
kv_cache_alloc_total_blocks  INT32  -1
kv_cache_hit_rate            FP32   -1
arrival_time_ns              INT64  1
first_scheduled_time_ns      INT64  1
first_token_time_ns          INT64  1
last_token_time_ns           INT64  1
acceptance_rate              FP32   1
total_accepted_draft_tokens  INT32  1
total_draft_tokens           INT32  1
"""

# Arguments of TensorRT-LLM's ``LLM(...)``, which rejects unknown ones. Source: its API-stability reference, 1.2/1.3.
LLM_ARGUMENTS = frozenset(
    """
    model tokenizer tokenizer_mode custom_tokenizer skip_tokenizer_init trust_remote_code dtype revision tokenizer_revision
    load_format model_kwargs checkpoint_format checkpoint_loader mm_encoder_only
    tensor_parallel_size pipeline_parallel_size context_parallel_size cp_config pp_partition gpus_per_node
    moe_tensor_parallel_size moe_expert_parallel_size moe_cluster_parallel_size enable_attention_dp attention_dp_config
    enable_lm_head_tp_in_adp orchestrator_type
    max_batch_size max_input_len max_seq_len max_beam_width max_num_tokens
    kv_cache_config scheduler_config enable_chunked_prefill peft_cache_config cache_transceiver_config kv_connector_config
    sparse_attention_config batch_wait_timeout_ms batch_wait_timeout_iters batch_wait_max_tokens_ratio
    speculative_config guided_decoding_backend batched_logits_processor sampler_type gather_generation_logits reasoning_parser
    enable_lora lora_config
    backend cuda_graph_config torch_compile_config disable_overlap_scheduler attn_backend moe_config allreduce_strategy
    enable_autotuner enable_min_latency force_dynamic_quantization garbage_collection_gen0_threshold
    fail_fast_on_attention_window_too_large stream_interval num_postprocess_workers postprocess_tokenizer_dir
    otlp_traces_endpoint
    enable_iter_perf_stats enable_iter_req_stats return_perf_metrics perf_metrics_max_requests iter_stats_max_iterations
    request_stats_max_iterations print_iter_log enable_layerwise_nvtx_marker
    """.split()  # noqa: SIM905  a list of literals would be a page
)

_GPUS = Parameter("gpu_device_ids", Kind.GROUPS, "")
_RANKS = ("tensor_parallel_size", "pipeline_parallel_size", "context_parallel_size")


@dataclass(frozen=True)
class LlmApiSpec:
    """Specification of the repository: ``model`` is a folder or a Hugging Face id, ``llm`` further arguments of ``LLM(...)``.

    ``gpu_device_ids`` ("0,1;2,3") has one group of GPUs per instance; None is one instance on all GPUs.
    """

    model: str
    decoupled_mode: bool = True
    accumulate_tokens: bool = False
    cancellation_check_period_ms: int = 100
    gpu_device_ids: str | None = None
    llm: Mapping[str, Any] = field(default_factory=dict)
    check_paths: bool = True


def write_llmapi_repository(spec: LlmApiSpec, folder: Path) -> Path:
    """Validate ``spec``, write the model into ``folder`` (created if missing, must be empty) and return it.

    Raises RepositoryError.
    """
    config = llmapi_model_config(spec)
    if folder.exists() and any(folder.iterdir()):
        raise RepositoryError(f"the model repository {folder} is not empty; give an empty or new folder")
    version = write_config(config, folder)
    write_self_contained_model(version, "serving.models.llmapi.model")
    (version / "model.yaml").write_text(_model_yaml(spec), encoding="utf-8")
    return folder


def llmapi_model_config(spec: LlmApiSpec) -> pb.ModelConfig:
    """Configuration of the model. Raises RepositoryError for an invalid specification."""
    _check(spec)
    config = pb.ModelConfig(name="tensorrt_llm", backend="python", max_batch_size=0)
    config.model_transaction_policy.decoupled = spec.decoupled_mode
    add_tensors(config, parse_tensors(LLMAPI_INPUTS), parse_tensors(LLMAPI_OUTPUTS))
    if spec.gpu_device_ids is not None:
        add_parameters(config, {"gpu_device_ids": spec.gpu_device_ids})
    instances = (spec.gpu_device_ids or "").count(";") + 1
    config.instance_group.add(count=instances, kind=pb.ModelInstanceGroup.KIND_CPU)
    return config


def parse_llm_argument(text: str) -> tuple[str, Any]:
    """Parse ``key=value`` or ``key.key=value``; the value is JSON, otherwise text. Raises RepositoryError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip("."):
        raise RepositoryError(f"--set must be key=value, not {text!r}")
    top = key.split(".")[0]
    if top not in LLM_ARGUMENTS:
        raise RepositoryError(f"--set {key}: LLM() has no argument {top}")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def nested(arguments: Iterable[tuple[str, object]]) -> Mapping[str, object]:
    """Nest dotted keys: ``a.b=1`` and ``a.c=2`` become ``{"a": {"b": 1, "c": 2}}``. Raises RepositoryError."""
    result: dict[str, Any] = {}
    for key, value in arguments:
        *outer, last = key.split(".")
        place = result
        for name in outer:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise RepositoryError(f"--set {key}: {name} already has a value and cannot have sub-keys")
        if last in place:
            raise RepositoryError(f"--set {key} is given twice")
        place[last] = value
    return result


def _check(spec: LlmApiSpec) -> None:
    if not spec.model:
        raise RepositoryError("--model must be a folder or a Hugging Face id")
    looks_like_path = spec.model.startswith(("/", ".", "~"))
    if looks_like_path and spec.check_paths and not Path(spec.model).is_dir():
        raise RepositoryError(f"--model: {spec.model} is not a folder; for a path inside the container add --no_check_paths")
    if spec.cancellation_check_period_ms < 1:
        raise RepositoryError(f"--cancellation_check_period_ms must be at least 1, not {spec.cancellation_check_period_ms}")
    if spec.accumulate_tokens and not spec.decoupled_mode:
        raise RepositoryError("--accumulate_tokens applies to streaming, which needs --decoupled_mode")
    for name in spec.llm:
        if name == "model":
            raise RepositoryError("--set model: use --model instead")
        if name not in LLM_ARGUMENTS:
            raise RepositoryError(f"--set {name}: LLM() has no such argument")
    _check_gpus(spec)


def _check_gpus(spec: LlmApiSpec) -> None:
    ranks = 1
    for name in _RANKS:
        size = spec.llm.get(name, 1)
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise RepositoryError(f"--set {name} must be a whole number of at least 1, not {size!r}")
        ranks *= size
    if spec.gpu_device_ids is not None:
        for group in str(_GPUS.parse(spec.gpu_device_ids)).split(";"):
            if len(group.split(",")) != ranks:
                raise RepositoryError(f"--gpu_device_ids gives an instance the GPUs {group}, but the model runs on {ranks}")


def _model_yaml(spec: LlmApiSpec) -> str:
    """Content of ``model.yaml``; JSON values are valid YAML."""
    triton = {
        "max_batch_size": 0,
        "decoupled": spec.decoupled_mode,
        "cancellation_check_period_ms": spec.cancellation_check_period_ms,
        "accumulate_tokens": spec.accumulate_tokens,
    }
    model = spec.model
    if spec.check_paths and Path(model).is_dir():
        model = str(Path(model).resolve())
    lines = ["# Arguments of tensorrt_llm.LLM(...); triton_config belongs to the Triton model and repeats config.pbtxt."]
    lines += [f"{key}: {json.dumps(value)}" for key, value in {"model": model, **spec.llm, "triton_config": triton}.items()]
    return "\n".join(lines) + "\n"
