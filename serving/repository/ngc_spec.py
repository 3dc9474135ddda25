"""Specification of a repository for NVIDIA's container, and its validation. Every error message names the option."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from serving.errors import RepositoryError
from serving.repository.engine_config import EngineConfig, read_engine_config
from serving.repository.ngc_parameters import PARAMETERS, TOKENIZER_KEY
from serving.repository.values import Kind, Value

TENSOR_NAMES = ("newest", "v0.19")
DATATYPES = ("FP32", "FP16", "BF16")
_XGRAMMAR_KEYS = ("encoded_vocab", "tokenizer_str", "stop_token_ids")
_LORA_FILES = ("model.lora_weights.npy", "model.lora_config.npy")
_LIMIT = 2**31


@dataclass(frozen=True)
class NgcSpec:
    """Specification of the repository; field names are upstream's template variables where they exist.

    ``parameters`` are those of ``ngc_parameters.PARAMETERS`` that are set, by option. ``triton_max_batch_size`` None means the
    engine's. ``world_size`` is the number of ranks that the server will be started with, if known. ``tensor_names`` is the
    container's version: "v0.19" (and older) has ``min_length`` and ``random_seed`` where "newest" has ``min_tokens`` and
    ``seed``. Without ``check_paths`` paths are used unchanged, as they exist in the container only.
    """

    tokenizer_dir: Path
    parameters: Mapping[str, Value]
    triton_max_batch_size: int | None = None
    decoupled_mode: bool = True
    max_queue_delay_microseconds: int = 0
    max_queue_size: int = 0
    preprocessing_instance_count: int = 1
    postprocessing_instance_count: int = 1
    bls_instance_count: int = 1
    logits_datatype: str = "FP32"
    prompt_embedding_table_data_type: str = "FP16"
    encoder_input_features_data_type: str = "FP16"
    add_special_tokens: bool = True
    skip_special_tokens: bool = True
    accumulate_tokens: bool = False
    tensorrt_llm_model_name: str = "tensorrt_llm"
    tensorrt_llm_draft_model_name: str | None = None
    tensor_names: str = "newest"
    world_size: int | None = None
    check_paths: bool = True


class CheckedSpec(NamedTuple):
    """Resolved ``paths`` by option, and ``triton_max_batch_size`` from the specification or the engine."""

    paths: dict[str, Path]
    triton_max_batch_size: int


def check_ngc_spec(spec: NgcSpec) -> CheckedSpec:
    """Resolve a valid specification; raise RepositoryError for the first problem."""
    for problem in (*_numbers(spec), *_names(spec), *_combinations(spec)):
        raise RepositoryError(problem)
    paths = {option: _checked_path(option, path, spec.check_paths) for option, path in _paths(spec).items()}
    if not spec.check_paths:
        if spec.triton_max_batch_size is None:
            raise RepositoryError("--triton_max_batch_size must be given with --no_check_paths, as the engine cannot be read")
        return CheckedSpec(paths, spec.triton_max_batch_size)
    engine = read_engine_config(paths["engine_dir"])
    if "encoder_engine_dir" in paths:
        read_engine_config(paths["encoder_engine_dir"], "encoder_engine_dir")
    for problem in (*_against_engine(spec, engine), *_against_world_size(spec, engine), *_files(paths)):
        raise RepositoryError(problem)
    batch_size = spec.triton_max_batch_size or engine.max_batch_size
    if batch_size is None:
        raise RepositoryError("--triton_max_batch_size must be given: the engine's config.json has no max_batch_size")
    return CheckedSpec(paths, batch_size)


def _paths(spec: NgcSpec) -> dict[str, Path]:
    return {TOKENIZER_KEY: spec.tokenizer_dir} | {
        option: value for option, value in spec.parameters.items() if isinstance(value, Path)
    }


def _checked_path(option: str, path: Path, must_exist: bool) -> Path:
    if not must_exist:
        if not path.is_absolute():
            raise RepositoryError(f"--{option}: {path} must be an absolute path inside the container")
        return path
    is_file = option in PARAMETERS and PARAMETERS[option].kind is Kind.FILE
    if not (path.is_file() if is_file else path.is_dir()):
        what = "file" if is_file else "folder"
        raise RepositoryError(f"--{option}: {path} is not a {what}; for a path inside the container add --no_check_paths")
    return path.resolve()


def _numbers(spec: NgcSpec) -> Iterator[str]:
    counts = {
        "triton_max_batch_size": spec.triton_max_batch_size,
        "preprocessing_instance_count": spec.preprocessing_instance_count,
        "postprocessing_instance_count": spec.postprocessing_instance_count,
        "bls_instance_count": spec.bls_instance_count,
        "world_size": spec.world_size,
    }
    for name, count in counts.items():
        if count is not None and not 1 <= count < _LIMIT:
            yield f"--{name} must be at least 1 and below 2^31, not {count}"
    for name, count in (
        ("max_queue_size", spec.max_queue_size),
        ("max_queue_delay_microseconds", spec.max_queue_delay_microseconds),
    ):
        if not 0 <= count < _LIMIT:
            yield f"--{name} must be at least 0 and below 2^31, not {count}"


def _names(spec: NgcSpec) -> Iterator[str]:
    for name in ("logits_datatype", "prompt_embedding_table_data_type", "encoder_input_features_data_type"):
        if getattr(spec, name) not in DATATYPES:
            yield f"--{name} must be one of {', '.join(DATATYPES)}, not {getattr(spec, name)!r}"
    if spec.tensor_names not in TENSOR_NAMES:
        yield f"--tensor_names must be one of {', '.join(TENSOR_NAMES)}, not {spec.tensor_names!r}"
    for option in spec.parameters:
        if option not in PARAMETERS:
            yield f"--{option}: the backend has no such parameter"
    if "engine_dir" not in spec.parameters:
        yield "--engine_dir must be given: the folder of the engine that the container serves"


def _combinations(spec: NgcSpec) -> Iterator[str]:
    """Problems with combinations of options, for any engine."""
    parameters = spec.parameters
    mode = parameters.get("decoding_mode")
    beams = int(str(parameters.get("max_beam_width", 1)))
    if spec.accumulate_tokens and not spec.decoupled_mode:
        yield "--accumulate_tokens applies to streaming, which needs --decoupled_mode"
    if parameters.get("batching_strategy") == "V1":
        if spec.decoupled_mode:
            yield "--batching_strategy V1 (static) returns a whole batch at once and cannot stream: add --no_decoupled_mode"
        if parameters.get("enable_chunked_context"):
            yield "--enable_chunked_context needs in-flight batching, which --batching_strategy V1 does not have"
    sizes = [name for name in PARAMETERS if name.startswith("lookahead_")]
    if mode == "lookahead" and (missing := [name for name in sizes if name not in parameters]):
        yield f"--decoding_mode lookahead needs --{missing[0]}"
    for name in sizes:
        if name in parameters and mode != "lookahead":
            yield f"--{name} has no effect without --decoding_mode lookahead"
    for name, needed in (("medusa_choices", "medusa"), ("eagle_choices", "eagle")):
        if name in parameters and mode != needed:
            yield f"--{name} has no effect without --decoding_mode {needed}"
    if mode is not None and beams > 1 and mode != "beam_search":
        yield f"--decoding_mode {mode} supports one beam, but --max_beam_width is {beams}"
    yield from _dependencies(spec)


def _dependencies(spec: NgcSpec) -> Iterator[str]:
    """Options without the options that they depend on, and duplicate ids."""
    parameters = spec.parameters
    if parameters.get("cuda_graph_cache_size") and not parameters.get("cuda_graph_mode"):
        yield "--cuda_graph_cache_size has no effect without --cuda_graph_mode true"
    if "cross_kv_cache_fraction" in parameters and "encoder_engine_dir" not in parameters:
        yield "--cross_kv_cache_fraction is for encoder-decoder models: add --encoder_engine_dir"
    if parameters.get("speculative_decoding_fast_logits") and "participant_ids" not in parameters:
        yield "--speculative_decoding_fast_logits needs orchestrator mode without spawned workers: add --participant_ids"
    if ("guided_decoding_backend" in parameters) != ("xgrammar_tokenizer_info_path" in parameters):
        yield "--guided_decoding_backend and --xgrammar_tokenizer_info_path must be used together"
    smallest = parameters.get("lora_cache_optimal_adapter_size", 8)
    largest = parameters.get("lora_cache_max_adapter_size", 64)
    if int(str(smallest)) > int(str(largest)):
        yield f"--lora_cache_optimal_adapter_size {smallest} is larger than --lora_cache_max_adapter_size ({largest})"
    for option in ("gpu_device_ids", "participant_ids"):
        for group in _groups(spec, option):
            if len(set(group)) < len(group):
                yield f"--{option} has a duplicate id in the instance {','.join(group)}"


def _against_engine(spec: NgcSpec, engine: EngineConfig) -> Iterator[str]:
    """Options that the engine was not built for."""
    parameters = spec.parameters
    beams = int(str(parameters.get("max_beam_width", 1)))
    static = parameters.get("batching_strategy") == "V1"
    if engine.max_batch_size and (spec.triton_max_batch_size or 0) > engine.max_batch_size:
        yield f"--triton_max_batch_size is {spec.triton_max_batch_size}, but the engine was built for {engine.max_batch_size}"
    if engine.max_beam_width and beams > engine.max_beam_width:
        yield f"--max_beam_width is {beams}, but the engine was built for {engine.max_beam_width}"
    needs = {
        "a paged KV cache (--kv_cache_type paged)": engine.kv_cache_is_paged,
        "packed input (--remove_input_padding enable)": engine.removes_input_padding,
        "the attention plugin (--gpt_attention_plugin)": engine.has_attention_plugin,
    }
    for what, present in needs.items():
        if not static and present is False:
            yield f"--batching_strategy: in-flight batching needs an engine with {what}; rebuild the engine, or use V1"
    for option in ("enable_chunked_context", "enable_kv_cache_reuse"):
        if parameters.get(option) and engine.has_paged_context_fmha is False:
            yield f"--{option} needs an engine built with --use_paged_context_fmha enable"
    for option in parameters:
        if option.startswith("lora_") and engine.has_lora_plugin is False:
            yield f"--{option} needs an engine built with --lora_plugin"


def _against_world_size(spec: NgcSpec, engine: EngineConfig) -> Iterator[str]:
    """Numbers of ranks that do not match the engine."""
    ranks = engine.world_size
    participants = sum(len(group) for group in _groups(spec, "participant_ids"))
    if participants and spec.world_size is not None and spec.world_size <= participants:
        yield f"--world_size is {spec.world_size}, less than the orchestrator and {participants} --participant_ids"
    if ranks is None:
        return
    if not participants and spec.world_size not in (None, ranks):
        yield f"--world_size is {spec.world_size}, but the engine was built for {ranks} ranks"
    for option, things in (("gpu_device_ids", "GPUs"), ("participant_ids", "ranks")):
        for group in _groups(spec, option):
            if len(group) != ranks:
                yield f"--{option} gives an instance {len(group)} {things}, but the engine was built for {ranks} ranks"


def _groups(spec: NgcSpec, option: str) -> list[list[str]]:
    return [group.split(",") for group in str(spec.parameters[option]).split(";")] if option in spec.parameters else []


def _files(paths: dict[str, Path]) -> Iterator[str]:
    """Problems with the files that the backend reads when it starts."""
    if (info := paths.get("xgrammar_tokenizer_info_path")) is not None:
        try:
            content = json.loads(info.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            yield f"--xgrammar_tokenizer_info_path: {info} is not JSON: {error}"
            return
        missing = [key for key in _XGRAMMAR_KEYS if not isinstance(content, dict) or key not in content]
        if missing:
            yield f"--xgrammar_tokenizer_info_path: {info} has no {missing[0]}"
    if (prefetch := paths.get("lora_prefetch_dir")) is not None:
        for folder in sorted(prefetch.iterdir()):
            if not folder.name.isdecimal():
                yield f"--lora_prefetch_dir: the name of {folder} is not a task id (a whole number)"
            for name in _LORA_FILES:
                if not (folder / name).is_file():
                    yield f"--lora_prefetch_dir: {folder} has no {name}"
