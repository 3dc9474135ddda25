"""``bench engine build``: turn a checkpoint into an engine."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import cloup
from click.core import ParameterSource

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
    cloup.option("--tp_size", type=_COUNT, default=1, help="GPUs that share each layer."),
    cloup.option(
        "--pp_size", type=_COUNT, default=1, help="GPUs that share the layers out; tp_size x pp_size is the world size."
    ),
    cloup.option("--moe_tp_size", type=_COUNT, show_default="tp_size / moe_ep_size", help="GPUs that share each expert."),
    cloup.option("--moe_ep_size", type=_COUNT, show_default="1", help="GPUs that share the experts out."),
)

_numbers = cloup.option_group(
    "tensorrt_llm: numbers",
    cloup.option("--dtype", default="auto", type=click.Choice(["auto", "float16", "bfloat16", "float32"]), help="Of weights."),
    cloup.option(
        "--quantization",
        default="none",
        type=click.Choice(
            ["none", "int8_weight_only", "int4_weight_only", "smoothquant", "fp8", "nvfp4", "int4_awq", "w4a8_awq", "int8_sq"]
        ),
        help="How weights are made small. The first four are the converter's; the others go through quantize.py.",
    ),
    cloup.option("--kv_cache_dtype", type=click.Choice(["int8", "fp8"]), show_default="dtype", help="Of the KV cache."),
    cloup.option(
        "--calib_dataset", show_default="the script's", help="Texts to calibrate with: a folder, or a name on the hub."
    ),
    cloup.option("--gather_context_logits", is_flag=True, help="Keep the prompt's logits, for return_context_logits."),
    cloup.option("--gather_generation_logits", is_flag=True, help="Keep the output's logits, for return_generation_logits."),
    cloup.option("--gather_all_token_logits", is_flag=True, help="Both."),
)

_limits = cloup.option_group(
    "tensorrt_llm: limits",
    cloup.option("--max_batch_size", type=_COUNT, help="Sequences in flight at once."),
    cloup.option("--max_num_tokens", type=_COUNT, help="Tokens of one step, over all sequences."),
    cloup.option("--max_input_len", type=_COUNT, help="Tokens of a prompt."),
    cloup.option("--max_seq_len", type=_COUNT, help="Tokens of prompt and output together."),
    cloup.option("--max_beam_width", type=_COUNT, help="Beams."),
    cloup.option(
        "--max_draft_len",
        type=click.IntRange(min=0),
        default=0,
        help="Draft tokens a request may bring: the target of speculative decoding (draft_tokens_external).",
    ),
    help="Left out, trtllm-build's own default holds.",
)

_lora = cloup.option_group(
    "tensorrt_llm: LoRA",
    cloup.option("--lora_dir", type=_FOLDER, multiple=True, help="Adapter in Hugging Face's form. Repeatable."),
    cloup.option("--lora_target_modules", multiple=True, help="Module that adapters change: attn_q, mlp_gate, … Repeatable."),
    cloup.option("--max_lora_rank", type=_COUNT, show_default="64", help="Largest rank of an adapter."),
)

_tools = cloup.option_group(
    "tensorrt_llm: tools",
    cloup.option(
        "--examples_dir",
        type=_FOLDER,
        default=Path("/app/tensorrt_llm/examples"),
        help="TensorRT-LLM's examples, where the converters are.",
    ),
    cloup.option(
        "--model_family",
        type=click.Choice(["llama", "qwen", "gpt", "phi", "gemma"]),
        show_default="by the checkpoint's model type",
        help="Whose converter reads the checkpoint.",
    ),
    cloup.option(
        "--checkpoint_dir", type=_FOLDER, show_default="<output_dir>-checkpoint", help="What stands between the steps."
    ),
    cloup.option("--workers", type=_COUNT, default=1, help="Ranks that are compiled at the same time."),
    cloup.option("--dry_run", is_flag=True, help="Print the exact commands, and do nothing."),
)


@command.command(
    name="build",
    epilog="""\b
Examples:
  bench engine build --model_dir ./my-llama --output_dir ./my-engine
  bench engine build --engine tensorrt_llm --model_dir ./my-llama --output_dir ./my-engine --tp_size 4 --quantization fp8""",
)
@cloup.option("--engine", type=click.Choice([_OPENVINO, _TENSORRT_LLM]), default=_OPENVINO, help="Which engine to build for.")
@cloup.option("--model_dir", type=_FOLDER, required=True, help="Hugging Face checkpoint with its tokenizer.")
@cloup.option("--output_dir", type=_FOLDER, required=True, help="New or empty folder for the engine.")
@cloup.option_group(
    "openvino",
    cloup.option(
        "--weight_format", type=click.Choice(["fp32", "fp16", "int8"]), default="fp16", help="How weights are stored."
    ),
)
@_parallelism
@_numbers
@_limits
@_lora
@_tools
def build(engine: str, model_dir: Path, output_dir: Path, **values: Any) -> None:
    """Build an engine folder from a checkpoint.

    For openvino it holds the network and the tokenizer; this needs the extra [export]. For tensorrt_llm the family's
    convert_checkpoint.py and then trtllm-build are run, which needs TensorRT-LLM and an NVIDIA GPU; --dry_run needs neither.
    """
    _check_belonging(engine, values)
    if engine == _OPENVINO:
        from serving.engines.openvino.build import build_openvino_engine

        build_openvino_engine(model_dir, output_dir, values["weight_format"])
        click.echo(f"Engine: {output_dir}")
    else:
        _build_tensorrt_llm(model_dir, output_dir, values)


def _build_tensorrt_llm(model_dir: Path, output_dir: Path, values: dict[str, Any]) -> None:
    from serving.engines.tensorrt_llm.build import TensorRtLlmBuild, build_commands, run_build

    dry_run = values.pop("dry_run")
    del values["weight_format"]
    wanted = TensorRtLlmBuild(model_dir, output_dir, **values)
    if dry_run:
        for line in build_commands(wanted):
            click.echo(shlex.join(line))
    else:
        run_build(wanted)
        click.echo(f"Engine: {output_dir}")
    click.echo(f"World size: {wanted.world_size} ({wanted.tp_size} x {wanted.pp_size})", err=True)


def _check_belonging(engine: str, values: dict[str, Any]) -> None:
    """Raise UsageError for an option of the other engine."""
    context = click.get_current_context()
    for name in values:
        owner = _OPENVINO if name in _OF_OPENVINO else _TENSORRT_LLM
        if owner != engine and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name}: not with --engine {engine}; it belongs to {owner}")
