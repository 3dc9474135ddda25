"""``bench engine build``: turn a checkpoint into an engine."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from bench_cli.engine_options import given

if TYPE_CHECKING:
    from serving.engines.tensorrt_llm.build import TensorRtLlmBuild

_FOLDER = click.Path(path_type=Path, file_okay=False)
_COUNT = click.IntRange(min=1)
_OPENVINO = "openvino"
_TENSORRT_LLM = "tensorrt_llm"
_OF_OPENVINO = frozenset({"weight_format"})


@cloup.group(name="engine", short_help="Build engines from checkpoints.")
def command() -> None:
    """Build engines from Hugging Face checkpoints."""


_parallelism = cloup.option_group(
    "tensorrt_llm: GPUs",
    cloup.option("--tp_size", type=_COUNT, default=1, help="Tensor parallelism: GPUs per layer."),
    cloup.option(
        "--pp_size", type=_COUNT, default=1, help="Pipeline parallelism: groups of layers; tp_size x pp_size is the world size."
    ),
    cloup.option(
        "--moe_tp_size",
        type=_COUNT,
        show_default="tp_size / moe_ep_size",
        help="Tensor parallelism of experts: GPUs per expert.",
    ),
    cloup.option("--moe_ep_size", type=_COUNT, show_default="1", help="Expert parallelism: groups of experts."),
)

_precision = cloup.option_group(
    "tensorrt_llm: precision",
    cloup.option(
        "--dtype",
        default="auto",
        type=click.Choice(["auto", "float16", "bfloat16", "float32"]),
        help="Data type of the weights.",
    ),
    cloup.option(
        "--quantization",
        default="none",
        type=click.Choice(
            ["none", "int8_weight_only", "int4_weight_only", "smoothquant", "fp8", "nvfp4", "int4_awq", "w4a8_awq", "int8_sq"]
        ),
        help="Quantization of the weights. convert_checkpoint.py makes the first four, quantize.py the others.",
    ),
    cloup.option(
        "--kv_cache_dtype", type=click.Choice(["int8", "fp8"]), show_default="dtype", help="Data type of the KV cache."
    ),
    cloup.option(
        "--calib_dataset", show_default="the script's", help="Calibration texts: a folder, or a name on the Hugging Face hub."
    ),
    cloup.option("--gather_context_logits", is_flag=True, help="Gather the prompt's logits, for return_context_logits."),
    cloup.option("--gather_generation_logits", is_flag=True, help="Gather the output's logits, for return_generation_logits."),
    cloup.option("--gather_all_token_logits", is_flag=True, help="Gather both."),
)

_limits = cloup.option_group(
    "tensorrt_llm: limits",
    cloup.option("--max_batch_size", type=_COUNT, help="Maximum sequences in flight."),
    cloup.option("--max_num_tokens", type=_COUNT, help="Maximum tokens per step, over all sequences."),
    cloup.option("--max_input_len", type=_COUNT, help="Maximum tokens of a prompt."),
    cloup.option("--max_seq_len", type=_COUNT, help="Maximum tokens of prompt and output together."),
    cloup.option("--max_beam_width", type=_COUNT, help="Maximum beams."),
    cloup.option(
        "--max_draft_len",
        type=click.IntRange(min=0),
        default=0,
        help="Maximum draft tokens per request, for a target of speculative decoding (draft_tokens_external).",
    ),
    help="The defaults are those of trtllm-build.",
)

_lora = cloup.option_group(
    "tensorrt_llm: LoRA",
    cloup.option("--lora_dir", type=_FOLDER, multiple=True, help="Adapter in Hugging Face format. Repeatable."),
    cloup.option("--lora_target_modules", multiple=True, help="Module with adapters: attn_q, mlp_gate, … Repeatable."),
    cloup.option("--max_lora_rank", type=_COUNT, show_default="64", help="Largest rank of an adapter."),
)

_tools = cloup.option_group(
    "tensorrt_llm: tools",
    cloup.option(
        "--examples_dir",
        type=_FOLDER,
        default=Path("/app/tensorrt_llm/examples"),
        help="TensorRT-LLM's examples, which contain the converters.",
    ),
    cloup.option(
        "--model_family",
        type=click.Choice(["llama", "qwen", "gpt", "phi", "gemma"]),
        show_default="from the checkpoint's model type",
        help="Model family, which selects the converter.",
    ),
    cloup.option(
        "--checkpoint_dir",
        type=_FOLDER,
        show_default="<output_dir>-checkpoint",
        help="Folder for the intermediate TensorRT-LLM checkpoint.",
    ),
    cloup.option("--workers", type=_COUNT, default=1, help="Ranks to compile in parallel."),
    cloup.option("--dry_run", is_flag=True, help="Print the exact commands, and do nothing."),
)


@command.command(
    name="build",
    epilog="""\b
Examples:
  bench engine build --model_dir ./my-llama --output_dir ./my-engine
  bench engine build --engine tensorrt_llm --model_dir ./my-llama --output_dir ./my-engine --tp_size 4 --quantization fp8""",
)
@cloup.option("--engine", type=click.Choice([_OPENVINO, _TENSORRT_LLM]), default=_OPENVINO, help="Engine to build for.")
@cloup.option("--model_dir", type=_FOLDER, required=True, help="Hugging Face checkpoint with its tokenizer.")
@cloup.option("--output_dir", type=_FOLDER, required=True, help="New or empty folder for the engine.")
@cloup.option_group(
    "openvino",
    cloup.option(
        "--weight_format", type=click.Choice(["fp32", "fp16", "int8"]), default="fp16", help="Storage format of the weights."
    ),
)
@_parallelism
@_precision
@_limits
@_lora
@_tools
def build(engine: str, model_dir: Path, output_dir: Path, **values: Any) -> None:
    """Build an engine folder from a checkpoint.

    For openvino the folder contains the network and the tokenizer; this needs the extra [export]. For tensorrt_llm, the
    family's convert_checkpoint.py runs, then trtllm-build; this needs TensorRT-LLM and an NVIDIA GPU, --dry_run neither.
    """
    _check_belonging(engine, values)
    weight_format, dry_run = values.pop("weight_format"), values.pop("dry_run")
    if engine == _OPENVINO:
        from serving.engines.openvino.build import build_openvino_engine

        build_openvino_engine(model_dir, output_dir, weight_format)
        click.echo(f"Engine: {output_dir}")
    else:
        from serving.engines.tensorrt_llm.build import TensorRtLlmBuild

        _build_tensorrt_llm(TensorRtLlmBuild(model_dir, output_dir, **values), dry_run)


def _build_tensorrt_llm(engine_build: TensorRtLlmBuild, dry_run: bool) -> None:
    from serving.engines.tensorrt_llm.build import build_commands, run_build

    if dry_run:
        for line in build_commands(engine_build):
            click.echo(shlex.join(line))
    else:
        run_build(engine_build)
        click.echo(f"Engine: {engine_build.output_dir}")
    tp_size, pp_size = engine_build.tp_size, engine_build.pp_size
    click.echo(f"World size: {engine_build.world_size} ({tp_size} x {pp_size})", err=True)


def _check_belonging(engine: str, names: Iterable[str]) -> None:
    """Raise UsageError for an option of the other engine."""
    for name in names:
        owner = _OPENVINO if name in _OF_OPENVINO else _TENSORRT_LLM
        if owner != engine and given(name):
            raise click.UsageError(f"--{name}: not with --engine {engine}; only with --engine {owner}")
