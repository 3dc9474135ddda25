"""Repository of the embedded pipeline: five folders with a ``config.pbtxt`` and a one-line ``1/model.py`` each.

The configurations are serialized from Triton's ``ModelConfig`` message, so they are always well-formed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from tritonclient.grpc import model_config_pb2 as pb

from serving.engines import ENGINE_NAMES
from serving.engines.protocol import EngineOptions
from serving.errors import RepositoryError
from serving.repository import tensors
from serving.repository.model_config import add_ensemble_steps, add_parameters, add_tensors, write_config
from serving.repository.tensors import Release

CORE_MODEL_NAME = "tensorrt_llm"
DRAFT_MODEL_NAME = "tensorrt_llm_draft"
MODEL_NAMES = ("preprocessing", "tensorrt_llm", "postprocessing", "ensemble", "tensorrt_llm_bls")

OUT_OF_VOCABULARY_IDS = ("refuse", "wrap")
_OF_OPENVINO = ("step_log", "min_step_time")  # for the core model alone: a draft model writes no log, and keeps its own speed
_LOGITS_DATATYPES = ("FP32", "FP16")  # the embedded models use NumPy, which has no BF16

_MODEL_MODULES = {
    "preprocessing": "serving.models.preprocessing",
    "tensorrt_llm": "serving.models.core.model",
    DRAFT_MODEL_NAME: "serving.models.core.model",
    "postprocessing": "serving.models.postprocessing",
    "tensorrt_llm_bls": "serving.models.bls.model",
}


@dataclass(frozen=True)
class RepositorySpec:
    """Specification of a repository; field names are upstream's template variables where they exist.

    ``upstream_release`` is the release whose text models and ``postprocessing`` are declared. ``preprocessing`` and the core
    model are always the newest, whose further tensors are optional: our models use them between each other.
    ``out_of_vocabulary_ids`` is "refuse" or "wrap". ``core_instance_count`` instances of the core model share one engine.
    """

    engine_dir: Path
    tokenizer_dir: Path
    engine: str = "openvino"
    decoupled_mode: bool = True
    triton_max_batch_size: int = 128
    preprocessing_instance_count: int = 1
    core_instance_count: int = 1
    postprocessing_instance_count: int = 1
    bls_instance_count: int = 1
    max_queue_delay_microseconds: int = 0
    add_special_tokens: bool = True
    skip_special_tokens: bool = True
    exclude_input_in_output: bool = False
    accumulate_tokens: bool = False
    logits_datatype: str = "FP32"
    max_stream_interval: int = 4  # maximum number of tokens per streamed response when the sender is busy
    draft_engine_dir: Path | None = None  # engine of a second core model, the draft model of tensorrt_llm_bls
    upstream_release: Release = Release.NEWEST
    out_of_vocabulary_ids: str = "refuse"
    engine_options: EngineOptions = field(default_factory=EngineOptions)

    @property
    def model_names(self) -> tuple[str, ...]:
        """Names of the repository's models."""
        return MODEL_NAMES if self.draft_engine_dir is None else (*MODEL_NAMES, DRAFT_MODEL_NAME)


def write_repository(spec: RepositorySpec, folder: Path) -> Path:
    """Write the models into ``folder`` (created if missing, must be empty) and return it.

    Raises RepositoryError when a path does not exist, a number is out of range or the engine is unknown.
    """
    check_spec(spec)
    if folder.exists() and any(folder.iterdir()):
        raise RepositoryError(f"the model repository {folder} is not empty; give an empty or new folder")
    for config in model_configs(spec):
        version = write_config(config, folder)
        if config.name in _MODEL_MODULES:
            module = _MODEL_MODULES[config.name]
            (version / "model.py").write_text(f"from {module} import TritonPythonModel  # noqa: F401\n", encoding="utf-8")
    return folder


def check_spec(spec: RepositorySpec) -> None:
    """Raise RepositoryError for the first invalid field."""
    if spec.engine not in ENGINE_NAMES:
        raise RepositoryError(f"unknown engine {spec.engine!r}; known: {', '.join(ENGINE_NAMES)}")
    folders = {"engine_dir": spec.engine_dir, "tokenizer_dir": spec.tokenizer_dir, "draft_engine_dir": spec.draft_engine_dir}
    for name, folder in folders.items():
        if folder is not None and not folder.is_dir():
            raise RepositoryError(f"{name}: {folder} is not a folder")
    options = spec.engine_options
    _refuse_options_of_other_engines(spec)
    counts = {
        "triton_max_batch_size": spec.triton_max_batch_size,
        "core_instance_count": spec.core_instance_count,
        "preprocessing_instance_count": spec.preprocessing_instance_count,
        "postprocessing_instance_count": spec.postprocessing_instance_count,
        "bls_instance_count": spec.bls_instance_count,
        "max_stream_interval": spec.max_stream_interval,
        "max_num_sequences": options.max_num_sequences,
        "max_num_tokens": options.max_num_tokens,
        "max_tokens_in_paged_kv_cache": options.max_tokens_in_paged_kv_cache,
        "tensor_parallel_size": options.tensor_parallel_size,
    }
    for name, count in counts.items():
        if not 1 <= count < 2**31:
            raise RepositoryError(f"{name} must be at least 1, not {count}" if count < 1 else f"{name} {count} is too large")
    if spec.logits_datatype not in _LOGITS_DATATYPES:
        raise RepositoryError(f"logits_datatype must be one of {', '.join(_LOGITS_DATATYPES)}, not {spec.logits_datatype!r}")
    if spec.out_of_vocabulary_ids not in OUT_OF_VOCABULARY_IDS:
        known = " or ".join(OUT_OF_VOCABULARY_IDS)
        raise RepositoryError(f"out_of_vocabulary_ids must be {known}, not {spec.out_of_vocabulary_ids!r}")
    if spec.upstream_release is Release.V0_11 and spec.logits_datatype != "FP32":
        raise RepositoryError(f"logits_datatype {spec.logits_datatype}: release 0.11 has logits in FP32 alone")
    if spec.accumulate_tokens and not spec.decoupled_mode:
        raise RepositoryError("accumulate_tokens applies to streaming, which needs decoupled_mode")
    if spec.max_queue_delay_microseconds < 0:
        raise RepositoryError(f"max_queue_delay_microseconds must not be negative, not {spec.max_queue_delay_microseconds}")


def _refuse_options_of_other_engines(spec: RepositorySpec) -> None:
    for name in _OF_OPENVINO:
        if getattr(spec.engine_options, name) and spec.engine != "openvino":
            raise RepositoryError(f"{name}: only the engine openvino has it, not {spec.engine}")
    if spec.engine == "vllm":
        return
    default = EngineOptions()
    for name in ("engine_python", "tensor_parallel_size", "engine_arg"):
        if getattr(spec.engine_options, name) != getattr(default, name):
            raise RepositoryError(f"{name}: only the engine vllm has it, not {spec.engine}")
    if spec.core_instance_count > 1:
        raise RepositoryError(f"core_instance_count: instances share an engine of vllm alone; it must be 1 with {spec.engine}")


def model_configs(spec: RepositorySpec) -> tuple[pb.ModelConfig, ...]:
    """Configurations of the five models in the order of MODEL_NAMES, and of the draft model if there is one."""
    core = _core(spec, CORE_MODEL_NAME, spec.engine_dir)
    draft = () if spec.draft_engine_dir is None else (_core(spec, DRAFT_MODEL_NAME, spec.draft_engine_dir),)
    return (_preprocessing(spec), core, _postprocessing(spec), _ensemble(spec), _bls(spec), *draft)


def _preprocessing(spec: RepositorySpec) -> pb.ModelConfig:
    config = _python_model(spec, "preprocessing", spec.preprocessing_instance_count)
    _add_tensors(config, tensors.PREPROCESSING_INPUTS, tensors.PREPROCESSING_OUTPUTS, spec)
    _add_batching(config, spec)
    add_parameters(config, {"tokenizer_dir": spec.tokenizer_dir, "add_special_tokens": spec.add_special_tokens})
    return config


def _postprocessing(spec: RepositorySpec) -> pb.ModelConfig:
    """Without Triton's batcher, which answers cancelled requests with an error.

    An ensemble of Triton 24.10 in which a step fails while the core model still streams never ends: it would stay in memory,
    and the server would wait for it when it stops.
    """
    config = _python_model(spec, "postprocessing", spec.postprocessing_instance_count)
    _add_tensors(config, tensors.POSTPROCESSING_INPUTS, tensors.POSTPROCESSING_OUTPUTS, spec, _text_release(spec))
    add_parameters(config, {"tokenizer_dir": spec.tokenizer_dir, "skip_special_tokens": spec.skip_special_tokens})
    return config


def _core(spec: RepositorySpec, name: str, engine_dir: Path) -> pb.ModelConfig:
    options = spec.engine_options
    instances = spec.core_instance_count
    config = _python_model(spec, name, instances)
    config.model_transaction_policy.decoupled = spec.decoupled_mode
    _add_tensors(config, tensors.CORE_INPUTS, tensors.CORE_OUTPUTS, spec)
    _add_batching(config, spec)
    parameters = {
        "gpt_model_type": "inflight_fused_batching",
        "gpt_model_path": engine_dir,
        "engine": spec.engine,
        "tokenizer_dir": spec.tokenizer_dir,
        "exclude_input_in_output": spec.exclude_input_in_output,
        "max_stream_interval": spec.max_stream_interval,
        "max_tokens_in_paged_kv_cache": options.max_tokens_in_paged_kv_cache,
        "max_num_sequences": options.max_num_sequences,
        "max_num_tokens": options.max_num_tokens,
        "enable_kv_cache_reuse": options.enable_kv_cache_reuse,
        "enable_chunked_context": options.enable_chunked_context,
        "kv_cache_free_gpu_mem_fraction": options.kv_cache_free_gpu_mem_fraction,
        "batch_scheduler_policy": options.batch_scheduler_policy.value,
        "max_queue_size": options.max_queue_size,
        "max_beam_width": options.max_beam_width,
        "guided_decoding_backend": options.guided_decoding_backend or "none",
        "lora_cache_host_memory_bytes": options.lora_cache_host_memory_bytes,
        "upstream_release": spec.upstream_release.value,
        "out_of_vocabulary_ids": spec.out_of_vocabulary_ids,
    }
    shared = {"core_instance_count": instances} if instances > 1 else {}
    own = _OF_OPENVINO if name == CORE_MODEL_NAME else ()
    given = {option: value for option in own if (value := getattr(options, option))}
    add_parameters(config, parameters | shared | given | _other_environment(spec))
    return config


def _other_environment(spec: RepositorySpec) -> dict[str, object]:
    """Parameters of an engine that runs in another environment."""
    options = spec.engine_options
    if not options.engine_python:
        return {}
    return {
        "engine_python": options.engine_python,
        "tensor_parallel_size": options.tensor_parallel_size,
        "engine_arg": json.dumps(options.engine_arg),
    }


def _bls(spec: RepositorySpec) -> pb.ModelConfig:
    config = _python_model(spec, "tensorrt_llm_bls", spec.bls_instance_count)
    config.model_transaction_policy.decoupled = spec.decoupled_mode
    _add_tensors(config, tensors.BLS_INPUTS, tensors.TEXT_OUTPUTS, spec, _text_release(spec))
    _add_batching(config, spec)
    parameters = {
        "tensorrt_llm_model_name": CORE_MODEL_NAME,
        "accumulate_tokens": spec.accumulate_tokens,
        "exclude_input_in_output": spec.exclude_input_in_output,
        "tokenizer_dir": spec.tokenizer_dir,
        "skip_special_tokens": spec.skip_special_tokens,
        "upstream_release": spec.upstream_release.value,
    }
    if spec.draft_engine_dir is not None:
        parameters["tensorrt_llm_draft_model_name"] = DRAFT_MODEL_NAME
    add_parameters(config, parameters)
    return config


def _python_model(spec: RepositorySpec, name: str, instance_count: int) -> pb.ModelConfig:
    config = pb.ModelConfig(name=name, backend="python", max_batch_size=spec.triton_max_batch_size)
    config.model_transaction_policy.decoupled = False
    config.instance_group.add(count=instance_count, kind=pb.ModelInstanceGroup.KIND_CPU)
    return config


def _add_batching(config: pb.ModelConfig, spec: RepositorySpec) -> None:
    """Triton's batcher with batches of one request.

    The Python backend fails every request of a batch in which one has malformed strings. Larger batches would gain nothing:
    the models submit a request and return, and the engine forms the batches.
    """
    config.dynamic_batching.max_queue_delay_microseconds = spec.max_queue_delay_microseconds
    config.dynamic_batching.preferred_batch_size.append(1)


def _ensemble(spec: RepositorySpec) -> pb.ModelConfig:
    config = pb.ModelConfig(name="ensemble", platform="ensemble", max_batch_size=spec.triton_max_batch_size)
    config.model_transaction_policy.decoupled = spec.decoupled_mode
    _add_tensors(config, tensors.ENSEMBLE_INPUTS, tensors.TEXT_OUTPUTS, spec, _text_release(spec))
    core_outputs = {tensor.name for tensor in tensors.parse_tensors(tensors.CORE_OUTPUTS)}
    add_ensemble_steps(config, core_outputs, _postprocessing(spec))
    return config


def _text_release(spec: RepositorySpec) -> Release | None:
    """The release of the models that clients of text call; None also accepts the older names of the newest."""
    return None if spec.upstream_release is Release.NEWEST else spec.upstream_release


def _add_tensors(
    config: pb.ModelConfig, inputs: str, outputs: str, spec: RepositorySpec, release: Release | None = None
) -> None:
    datatypes = tensors.Datatypes(logits=spec.logits_datatype)
    add_tensors(config, *(tensors.parse_tensors(table, datatypes, release) for table in (inputs, outputs)))
