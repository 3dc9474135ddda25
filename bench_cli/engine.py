"""``bench engine build``: turn a checkpoint into an engine."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import Concern, option, part, required, takes

if TYPE_CHECKING:
    from serving.engines.tensorrt_llm.build import TensorRtLlmBuild

_FOLDER = click.Path(path_type=Path, file_okay=False)
_COUNT = click.IntRange(min=1)
_OPENVINO = "openvino"
_TENSORRT_LLM = "tensorrt_llm"


@cloup.group(
    name="engine",
)
def command() -> None:
    """Build engines from Hugging Face checkpoints."""


@dataclass(frozen=True)
class OpenvinoOptions(Concern, title="openvino"):
    """The engine of OpenVINO."""

    weight_format: str = option(
        "fp16", type=click.Choice(["fp32", "fp16", "int8"]), common=True, help="Storage format of the weights."
    )


@dataclass(frozen=True)
class ParallelismOptions(Concern, title="tensorrt_llm: GPUs"):
    """How the model is divided among GPUs."""

    tp_size: int = option(1, type=_COUNT, common=True, help="Tensor parallelism: GPUs per layer.")
    pp_size: int = option(
        1, type=_COUNT, common=True, help="Pipeline parallelism: groups of layers; tp_size x pp_size is the world size."
    )
    moe_tp_size: int | None = option(
        None, type=_COUNT, show_default="tp_size / moe_ep_size", help="Tensor parallelism of experts: GPUs per expert."
    )
    moe_ep_size: int | None = option(None, type=_COUNT, show_default="1", help="Expert parallelism: groups of experts.")


@dataclass(frozen=True)
class PrecisionOptions(Concern, title="tensorrt_llm: precision"):
    """Data types."""

    dtype: str = option(
        "auto", type=click.Choice(["auto", "float16", "bfloat16", "float32"]), common=True, help="Data type of the weights."
    )
    quantization: str = option(
        "none",
        type=click.Choice(
            ["none", "int8_weight_only", "int4_weight_only", "smoothquant", "fp8", "nvfp4", "int4_awq", "w4a8_awq", "int8_sq"]
        ),
        common=True,
        help="Quantization of the weights. convert_checkpoint.py makes the first four, quantize.py the others.",
    )
    kv_cache_dtype: str | None = option(
        None, type=click.Choice(["int8", "fp8"]), show_default="dtype", common=True, help="Data type of the KV cache."
    )
    calib_dataset: str | None = option(
        None, show_default="the script's", help="Calibration texts: a folder, or a name on the Hugging Face hub."
    )
    gather_context_logits: bool = option(False, help="Gather the prompt's logits, for return_context_logits.")
    gather_generation_logits: bool = option(False, help="Gather the output's logits, for return_generation_logits.")
    gather_all_token_logits: bool = option(False, help="Gather both.")


@dataclass(frozen=True)
class LimitOptions(Concern, title="tensorrt_llm: limits", note="The defaults are those of trtllm-build."):
    """Limits of the engine; None: trtllm-build's."""

    max_batch_size: int | None = option(None, type=_COUNT, common=True, help="Maximum sequences in flight.")
    max_num_tokens: int | None = option(None, type=_COUNT, common=True, help="Maximum tokens per step, over all sequences.")
    max_input_len: int | None = option(None, type=_COUNT, common=True, help="Maximum tokens of a prompt.")
    max_seq_len: int | None = option(None, type=_COUNT, common=True, help="Maximum tokens of prompt and output together.")
    max_beam_width: int | None = option(None, type=_COUNT, common=True, help="Maximum beams.")
    max_draft_len: int = option(
        0,
        type=click.IntRange(min=0),
        help="Maximum draft tokens per request, for a target of speculative decoding (draft_tokens_external).",
    )


@dataclass(frozen=True)
class LoraOptions(Concern, title="tensorrt_llm: LoRA"):
    """Adapters."""

    lora_dir: tuple[Path, ...] = option((), type=_FOLDER, help="Adapter in Hugging Face format. Repeatable.")
    lora_target_modules: tuple[str, ...] = option((), help="Module with adapters: attn_q, mlp_gate, … Repeatable.")
    max_lora_rank: int | None = option(None, type=_COUNT, show_default="64", help="Largest rank of an adapter.")


@dataclass(frozen=True)
class ToolOptions(Concern, title="tensorrt_llm: tools"):
    """The programs that build."""

    examples_dir: Path = option(
        Path("/app/tensorrt_llm/examples"), type=_FOLDER, help="TensorRT-LLM's examples, which contain the converters."
    )
    model_family: str | None = option(
        None,
        type=click.Choice(["llama", "qwen", "gpt", "phi", "gemma"]),
        show_default="from the checkpoint's model type",
        help="Model family, which selects the converter.",
    )
    checkpoint_dir: Path | None = option(
        None, type=_FOLDER, show_default="<output_dir>-checkpoint", help="Folder for the intermediate TensorRT-LLM checkpoint."
    )
    workers: int = option(1, type=_COUNT, help="Ranks to compile in parallel.")
    dry_run: bool = option(False, common=True, help="Print the exact commands, and do nothing.")


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench engine build``."""

    engine: str = option(_OPENVINO, type=click.Choice([_OPENVINO, _TENSORRT_LLM]), common=True, help="Engine to build for.")
    model_dir: Path = required(type=_FOLDER, common=True, help="Hugging Face checkpoint with its tokenizer.")
    output_dir: Path = required(type=_FOLDER, common=True, help="New or empty folder for the engine.")
    openvino: OpenvinoOptions = part(OpenvinoOptions)
    parallelism: ParallelismOptions = part(ParallelismOptions)
    precision: PrecisionOptions = part(PrecisionOptions)
    limits: LimitOptions = part(LimitOptions)
    lora: LoraOptions = part(LoraOptions)
    tools: ToolOptions = part(ToolOptions)

    def check(self) -> None:
        """Raise UsageError for an option of the other engine."""
        engines = {_OPENVINO: (self.openvino,), _TENSORRT_LLM: self._of_tensorrt_llm()}
        for owner, concerns in engines.items():
            for name in self.given(*(name for concern in concerns for name in concern.values())):
                if owner != self.engine:
                    raise click.UsageError(f"--{name}: not with --engine {self.engine}; only with --engine {owner}")

    def tensorrt_llm_build(self) -> TensorRtLlmBuild:
        """The build of TensorRT-LLM."""
        from serving.engines.tensorrt_llm.build import TensorRtLlmBuild

        values = {name: value for concern in self._of_tensorrt_llm() for name, value in concern.values().items()}
        del values["dry_run"]
        return TensorRtLlmBuild(self.model_dir, self.output_dir, **values)

    def _of_tensorrt_llm(self) -> tuple[Concern, ...]:
        return (self.parallelism, self.precision, self.limits, self.lora, self.tools)


@command.command(
    name="build",
    epilog="""\b
Examples:
  bench engine build --model_dir ./my-llama --output_dir ./my-engine
  bench engine build --engine tensorrt_llm --model_dir ./my-llama --output_dir ./my-engine --tp_size 4 --quantization fp8""",
)
@takes(Options)
def build(options: Options) -> None:
    """Build an engine folder from a checkpoint.

    For openvino the folder contains the network and the tokenizer; this needs the extra [export]. For tensorrt_llm, the
    family's convert_checkpoint.py runs, then trtllm-build; this needs TensorRT-LLM and an NVIDIA GPU, --dry_run neither.
    """
    options.check()
    if options.engine == _OPENVINO:
        from serving.engines.openvino.build import build_openvino_engine

        build_openvino_engine(options.model_dir, options.output_dir, options.openvino.weight_format)
        click.echo(f"Engine: {options.output_dir}")
    else:
        _build_tensorrt_llm(options.tensorrt_llm_build(), options.tools.dry_run)


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
