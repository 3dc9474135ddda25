"""What is wrong with a repository for NVIDIA's container, found before it is written. Every sentence names the option."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from serving.errors import RepositoryError
from serving.repository.engine_config import EngineConfig, read_engine_config
from serving.repository.ngc_parameters import PARAMETERS, TOKENIZER_KEY
from serving.repository.ngc_spec import DATATYPES, TENSOR_NAMES, NgcSpec
from serving.repository.values import Kind

_XGRAMMAR_KEYS = ("encoded_vocab", "tokenizer_str", "stop_token_ids")
_LORA_FILES = ("model.lora_weights.npy", "model.lora_config.npy")
_LIMIT = 2**31


class CheckedSpec(NamedTuple):
    """``paths`` as they are written, by option; ``triton_max_batch_size`` as it was set or as the engine has it."""

    paths: dict[str, Path]
    triton_max_batch_size: int


def check_ngc_spec(spec: NgcSpec) -> CheckedSpec:
    """Raise RepositoryError for the first thing that cannot work."""
    for complaint in (*_numbers(spec), *_names(spec), *_combinations(spec)):
        raise RepositoryError(complaint)
    paths = {option: _checked_path(option, path, spec.check_paths) for option, path in _paths(spec).items()}
    if not spec.check_paths:
        if spec.triton_max_batch_size is None:
            raise RepositoryError("--triton_max_batch_size must be given where the engine cannot be read (--no_check_paths)")
        return CheckedSpec(paths, spec.triton_max_batch_size)
    engine = read_engine_config(paths["engine_dir"])
    if "encoder_engine_dir" in paths:
        read_engine_config(paths["encoder_engine_dir"], "encoder_engine_dir")
    for complaint in (*_against_engine(spec, engine), *_against_world_size(spec, engine), *_files(paths)):
        raise RepositoryError(complaint)
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
            raise RepositoryError(f"--{option}: {path} must be absolute, as the server inside the container sees it")
        return path
    is_file = option in PARAMETERS and PARAMETERS[option].kind is Kind.FILE
    if not (path.is_file() if is_file else path.is_dir()):
        what = "file" if is_file else "folder"
        raise RepositoryError(f"--{option}: {path} is not a {what}; where it exists in the container alone: --no_check_paths")
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
            yield f"--{name} must not be negative and below 2^31, not {count}"


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
    """What excludes or needs what, whatever the engine."""
    given = spec.parameters
    mode = given.get("decoding_mode")
    beams = int(str(given.get("max_beam_width", 1)))
    if spec.accumulate_tokens and not spec.decoupled_mode:
        yield "--accumulate_tokens concerns streaming, which needs --decoupled_mode"
    if given.get("batching_strategy") == "V1":
        if spec.decoupled_mode:
            yield "--batching_strategy V1 (static) answers a whole batch at once and cannot stream: add --no_decoupled_mode"
        if given.get("enable_chunked_context"):
            yield "--enable_chunked_context needs in-flight batching; --batching_strategy V1 has none"
    sizes = [name for name in PARAMETERS if name.startswith("lookahead_")]
    if mode == "lookahead" and (missing := [name for name in sizes if name not in given]):
        yield f"--decoding_mode lookahead needs --{missing[0]}"
    for name in sizes:
        if name in given and mode != "lookahead":
            yield f"--{name} has no effect without --decoding_mode lookahead"
    for name, needed in (("medusa_choices", "medusa"), ("eagle_choices", "eagle")):
        if name in given and mode != needed:
            yield f"--{name} has no effect without --decoding_mode {needed}"
    if mode is not None and beams > 1 and mode != "beam_search":
        yield f"--decoding_mode {mode} works with one beam, but --max_beam_width is {beams}"
    yield from _dependants(spec)


def _dependants(spec: NgcSpec) -> Iterator[str]:
    given = spec.parameters
    if given.get("cuda_graph_cache_size") and not given.get("cuda_graph_mode"):
        yield "--cuda_graph_cache_size has no effect without --cuda_graph_mode true"
    if "cross_kv_cache_fraction" in given and "encoder_engine_dir" not in given:
        yield "--cross_kv_cache_fraction is for encoder-decoder models: give --encoder_engine_dir too"
    if given.get("speculative_decoding_fast_logits") and "participant_ids" not in given:
        yield "--speculative_decoding_fast_logits needs orchestrator mode without spawned workers: give --participant_ids"
    if ("guided_decoding_backend" in given) != ("xgrammar_tokenizer_info_path" in given):
        yield "--guided_decoding_backend and --xgrammar_tokenizer_info_path need each other"
    smallest, largest = given.get("lora_cache_optimal_adapter_size", 8), given.get("lora_cache_max_adapter_size", 64)
    if int(str(smallest)) > int(str(largest)):
        yield f"--lora_cache_optimal_adapter_size {smallest} is larger than --lora_cache_max_adapter_size ({largest})"
    for option in ("gpu_device_ids", "participant_ids"):
        for group in _groups(spec, option):
            if len(set(group)) < len(group):
                yield f"--{option} names one of {','.join(group)} twice in an instance"


def _against_engine(spec: NgcSpec, engine: EngineConfig) -> Iterator[str]:
    given = spec.parameters
    beams = int(str(given.get("max_beam_width", 1)))
    static = given.get("batching_strategy") == "V1"
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
            yield f"--batching_strategy: in-flight batching needs an engine with {what}; build it so, or take V1"
    for option in ("enable_chunked_context", "enable_kv_cache_reuse"):
        if given.get(option) and engine.has_paged_context_fmha is False:
            yield f"--{option} needs an engine built with --use_paged_context_fmha enable"
    for option in given:
        if option.startswith("lora_") and engine.has_lora_plugin is False:
            yield f"--{option} needs an engine built with --lora_plugin"


def _against_world_size(spec: NgcSpec, engine: EngineConfig) -> Iterator[str]:
    ranks = engine.world_size
    participants = sum(len(group) for group in _groups(spec, "participant_ids"))
    if participants and spec.world_size is not None and spec.world_size <= participants:
        yield f"--world_size is {spec.world_size}, but the orchestrator and {participants} --participant_ids are more"
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
    """Files that the backend reads at its start, seen to be what it expects."""
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
                yield f"--lora_prefetch_dir: {folder} is not named by a task id (a whole number)"
            for name in _LORA_FILES:
                if not (folder / name).is_file():
                    yield f"--lora_prefetch_dir: {folder} has no {name}"
