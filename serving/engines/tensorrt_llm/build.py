"""Build of a TensorRT-LLM engine: the commands that convert and compile a checkpoint, and their execution.

Two steps: the model family's ``convert_checkpoint.py`` (or, for calibrated weights, ``quantization/quantize.py``) writes a
TensorRT-LLM checkpoint, and ``trtllm-build`` compiles it to an engine. Sources: the two scripts in TensorRT-LLM's ``examples``
and ``tensorrt_llm/commands/build.py``.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from serving.engines.tensorrt_llm.models import (
    FAMILIES,
    QUANTIZATIONS,
    Checkpoint,
    Family,
    converter_path,
    quantizer_path,
    read_checkpoint,
)
from serving.errors import EngineBuildError

DEFAULT_EXAMPLES_DIR = Path("/app/tensorrt_llm/examples")  # in NVIDIA's container

LORA_MODULES = (
    *("attn_qkv", "attn_q", "attn_k", "attn_v", "attn_dense", "mlp_h_to_4h", "mlp_4h_to_h", "mlp_gate"),
    *("cross_attn_qkv", "cross_attn_q", "cross_attn_k", "cross_attn_v", "cross_attn_dense"),
    *("moe_h_to_4h", "moe_4h_to_h", "moe_gate", "moe_router", "mlp_router", "mlp_gate_up"),
    *("shared_expert_h_to_4h", "shared_expert_4h_to_h", "shared_expert_gate", "mamba_in_proj", "mamba_out_proj"),
)


@dataclass(frozen=True, slots=True)
class TensorRtLlmBuild:
    """Parameters of an engine build, named after upstream's flags. None leaves a flag at the tool's default.

    ``moe_tp_size`` x ``moe_ep_size`` must equal ``tp_size``. ``max_draft_len`` above 0 builds a target model for draft tokens
    that are sent with each request.
    """

    model_dir: Path
    output_dir: Path
    checkpoint_dir: Path | None = None
    examples_dir: Path = DEFAULT_EXAMPLES_DIR
    model_family: str | None = None
    dtype: str = "auto"
    tp_size: int = 1
    pp_size: int = 1
    moe_tp_size: int | None = None
    moe_ep_size: int | None = None
    quantization: str = "none"
    kv_cache_dtype: str | None = None
    calib_dataset: str | None = None
    gather_context_logits: bool = False
    gather_generation_logits: bool = False
    gather_all_token_logits: bool = False
    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    max_input_len: int | None = None
    max_seq_len: int | None = None
    max_beam_width: int | None = None
    max_draft_len: int = 0
    lora_dir: tuple[Path, ...] = ()
    lora_target_modules: tuple[str, ...] = ()
    max_lora_rank: int | None = None
    workers: int = 1

    @property
    def world_size(self) -> int:
        """Number of GPUs that the engine runs on, one rank each."""
        return self.tp_size * self.pp_size

    @property
    def checkpoint(self) -> Path:
        """Folder of the intermediate TensorRT-LLM checkpoint."""
        return self.checkpoint_dir or self.output_dir.with_name(f"{self.output_dir.name}-checkpoint")


def build_commands(build: TensorRtLlmBuild) -> tuple[tuple[str, ...], ...]:
    """The two commands, in order. Raises EngineBuildError, naming the option, for an impossible build."""
    checkpoint = read_checkpoint(build.model_dir)
    name = build.model_family or checkpoint.family
    if name is None:
        raise EngineBuildError(
            f"{build.model_dir}: its model type {checkpoint.model_type!r} belongs to no known family "
            f"({', '.join(FAMILIES)}); select a converter that reads it with --model_family"
        )
    family = FAMILIES[name]
    _check_parallelism(build, family, checkpoint)
    _check_quantization(build, family)
    _check_limits(build)
    quantized = QUANTIZATIONS[build.quantization]
    convert = _quantize_command(build) if quantized.qformat else _convert_command(build, family)
    return convert, _trtllm_build_command(build)


def run_build(build: TensorRtLlmBuild) -> None:
    """Run both commands, with their output passed through. Raises EngineBuildError when one fails or a tool is missing."""
    convert, compile_ = build_commands(build)
    script = Path(convert[1])
    if not script.is_file():
        raise EngineBuildError(f"{script} does not exist; give the folder of TensorRT-LLM's examples with --examples_dir")
    if shutil.which("trtllm-build") is None:
        raise EngineBuildError(
            "trtllm-build is not on PATH; it is part of TensorRT-LLM: pip install 'inflight-bench[tensorrt-llm]', or use "
            "NVIDIA's container; --dry_run prints the commands for another machine"
        )
    for folder in (build.output_dir, build.checkpoint):
        if folder.exists() and any(folder.iterdir()):
            raise EngineBuildError(f"{folder} is not empty; give an empty or new folder")
    for command in (convert, compile_):
        try:
            subprocess.run(command, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise EngineBuildError(f"{Path(command[min(1, command[0] == 'python3')]).name} failed: {error}") from error


def _convert_command(build: TensorRtLlmBuild, family: Family) -> tuple[str, ...]:
    return (
        *("python3", str(converter_path(build.examples_dir, family))),
        *family.paths(build.model_dir, build.checkpoint),
        *family.parallelism(build.tp_size, build.pp_size),
        *_values(moe_tp_size=build.moe_tp_size, moe_ep_size=build.moe_ep_size),
        *_values(dtype=None if build.dtype == "auto" else build.dtype),
        *QUANTIZATIONS[build.quantization].converter_flags,
        *([f"--{build.kv_cache_dtype}_kv_cache"] if build.kv_cache_dtype else []),
        *_values(calib_dataset=build.calib_dataset),
    )


def _quantize_command(build: TensorRtLlmBuild) -> tuple[str, ...]:
    quantized = QUANTIZATIONS[build.quantization]
    return (
        *("python3", str(quantizer_path(build.examples_dir))),
        *("--model_dir", str(build.model_dir), "--output_dir", str(build.checkpoint)),
        *("--dtype", build.dtype, "--qformat", str(quantized.qformat)),
        *_values(kv_cache_dtype=build.kv_cache_dtype),
        *_values(tp_size=build.tp_size, pp_size=build.pp_size, calib_dataset=build.calib_dataset),
    )


def _trtllm_build_command(build: TensorRtLlmBuild) -> tuple[str, ...]:
    """Flags: in-flight batching needs packed inputs and a paged cache; reuse, chunked context and drafts need paged context."""
    lora = bool(build.lora_dir or build.lora_target_modules)
    return (
        *("trtllm-build", "--checkpoint_dir", str(build.checkpoint), "--output_dir", str(build.output_dir)),
        *("--gemm_plugin", "auto", "--remove_input_padding", "enable"),
        *("--kv_cache_type", "paged", "--use_paged_context_fmha", "enable"),
        *_values(max_batch_size=build.max_batch_size, max_num_tokens=build.max_num_tokens),
        *_values(max_input_len=build.max_input_len, max_seq_len=build.max_seq_len, max_beam_width=build.max_beam_width),
        *(["--gather_context_logits"] if build.gather_context_logits else []),
        *(["--gather_generation_logits"] if build.gather_generation_logits else []),
        *(["--gather_all_token_logits"] if build.gather_all_token_logits else []),
        *(["--speculative_decoding_mode", "draft_tokens_external"] if build.max_draft_len else []),
        *_values(max_draft_len=build.max_draft_len or None),
        *(["--lora_plugin", "auto"] if lora else []),
        *(["--lora_dir", *map(str, build.lora_dir)] if build.lora_dir else []),
        *(["--lora_target_modules", *build.lora_target_modules] if build.lora_target_modules else []),
        *_values(max_lora_rank=build.max_lora_rank, workers=build.workers),
    )


def _values(**flags: object) -> list[str]:
    return [word for name, value in flags.items() if value is not None for word in (f"--{name}", str(value))]


def _check_parallelism(build: TensorRtLlmBuild, family: Family, checkpoint: Checkpoint) -> None:
    if build.pp_size > 1 and not family.pipeline:
        raise EngineBuildError(
            f"--pp_size {build.pp_size}: TensorRT-LLM's converter of {family.name} does not support pipelines"
        )
    if checkpoint.attention_heads is not None and checkpoint.attention_heads % build.tp_size:
        raise EngineBuildError(
            f"--tp_size {build.tp_size}: the model's {checkpoint.attention_heads} attention heads cannot be divided evenly"
        )
    if checkpoint.layers is not None and build.pp_size > checkpoint.layers:
        raise EngineBuildError(f"--pp_size {build.pp_size}: the model has {checkpoint.layers} layers")
    if build.moe_tp_size is None and build.moe_ep_size is None:
        return
    if not family.experts:
        raise EngineBuildError(
            f"--moe_tp_size, --moe_ep_size: TensorRT-LLM's converter of {family.name} does not support experts"
        )
    if QUANTIZATIONS[build.quantization].qformat:
        raise EngineBuildError(
            f"--moe_tp_size, --moe_ep_size: quantize.py, which produces {build.quantization}, cannot distribute experts"
        )
    moe_tp, moe_ep = _moe_sizes(build)
    if moe_tp * moe_ep != build.tp_size:
        raise EngineBuildError(
            f"--moe_tp_size {moe_tp} x --moe_ep_size {moe_ep} is {moe_tp * moe_ep}; it must be --tp_size {build.tp_size}"
        )


def _moe_sizes(build: TensorRtLlmBuild) -> tuple[int, int]:
    """Both sizes; a missing one is derived from ``tp_size``, as in the converter."""
    moe_tp = build.moe_tp_size or build.tp_size // (build.moe_ep_size or 1)
    return moe_tp, build.moe_ep_size or build.tp_size // moe_tp


def _check_quantization(build: TensorRtLlmBuild, family: Family) -> None:
    quantized = QUANTIZATIONS[build.quantization]
    if quantized.converter_flags and build.quantization not in family.quantizations:
        raise EngineBuildError(
            f"--quantization {build.quantization}: TensorRT-LLM's converter of {family.name} does not support it"
        )
    if not quantized.qformat and build.kv_cache_dtype and build.kv_cache_dtype not in family.kv_cache_dtypes:
        raise EngineBuildError(
            f"--kv_cache_dtype {build.kv_cache_dtype}: TensorRT-LLM's converter of {family.name} does not support it; "
            "quantize.py does: choose one of its --quantization formats (fp8, int4_awq, …)"
        )
    calibrates = quantized.calibrates or build.kv_cache_dtype is not None
    if build.calib_dataset is not None and not calibrates:
        raise EngineBuildError(f"--calib_dataset: --quantization {build.quantization} does not calibrate")


def _check_limits(build: TensorRtLlmBuild) -> None:
    if build.max_input_len is not None and build.max_seq_len is not None and build.max_input_len > build.max_seq_len:
        raise EngineBuildError(
            f"--max_input_len {build.max_input_len}: longer than --max_seq_len {build.max_seq_len} (prompt and output)"
        )
    if build.max_draft_len and (build.max_beam_width or 1) > 1:
        raise EngineBuildError(
            f"--max_draft_len {build.max_draft_len}: draft tokens cannot be combined with --max_beam_width above 1"
        )
    if build.max_lora_rank is not None and not (build.lora_dir or build.lora_target_modules):
        raise EngineBuildError("--max_lora_rank: without --lora_dir or --lora_target_modules the engine has no LoRA")
    for module in build.lora_target_modules:
        if module not in LORA_MODULES:
            raise EngineBuildError(f"--lora_target_modules {module}: known are {', '.join(LORA_MODULES)}")
