"""Options of the engine, for ``bench serve`` and every verb that deploys the pipeline for a run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench_cli.declared import Concern, option, switch

if TYPE_CHECKING:
    from serving.engines.protocol import EngineOptions

_FOLDER = click.Path(path_type=Path, file_okay=False)
_TOKENS = click.IntRange(1, 2**31 - 1)
VLLM = "vllm"
_OF_VLLM = ("engine_python", "tensor_parallel_size", "engine_arg", "core_instance_count")
_OF_OPENVINO = ("step_log", "min_step_time")
_ONLY_VLLM = dict.fromkeys(_OF_VLLM, "only --engine vllm has it")
_REFUSED: Mapping[str, Mapping[str, str]] = {  # an engine → the options that it does not have, with the reason
    "openvino": _ONLY_VLLM,
    "tensorrt_llm": {
        **_ONLY_VLLM,
        "draft_engine_dir": "it takes no draft tokens",
        "max_beam_width": "it has no beam search here",
        "max_queue_size": "its queue has no limit",
    },
    VLLM: {
        "draft_engine_dir": "it takes no draft tokens; --engine_arg speculative_config=JSON drafts within vLLM",
        "max_beam_width": "it has no beam search",
        "max_queue_size": "its queue has no limit",
        "batch_scheduler_policy": "it starts a request at once, and pauses requests when the cache is full",
    },
}
ENGINE_DIR_HELP = "Engine folder made by 'bench engine build', for vllm a Hugging Face checkpoint. Default: the demo engine."


@dataclass(frozen=True)
class EngineSettings(Concern, title="Engine (embedded)"):
    """The engine and its settings; a field has the name of its option."""

    engine: str = option(
        "openvino",
        type=click.Choice(["openvino", "tensorrt_llm", VLLM]),
        help="Inference engine: OpenVINO on the CPU, TensorRT-LLM's LLM API on a GPU, or vLLM, mostly on a GPU, in the "
        "environment of --engine_python.",
    )
    draft_engine_dir: Path | None = option(
        None, type=_FOLDER, help="Draft engine, for speculative decoding in tensorrt_llm_bls."
    )
    max_num_sequences: int = option(256, type=click.IntRange(1, 65536), help="Requests that run concurrently.")
    max_num_tokens: int = option(2048, type=_TOKENS, help="Maximum tokens per step.")
    max_beam_width: int = option(16, type=click.IntRange(1, 1024), help="Widest beam search.")
    max_stream_interval: int = option(
        4,
        type=click.IntRange(1, 1024),
        help="Maximum tokens per streamed response when sending is the bottleneck. 1: always one token per response.",
    )
    max_queue_size: int = option(0, type=click.IntRange(min=0), help="Maximum queued requests; 0: no limit.")
    batch_scheduler_policy: str = option(
        "guaranteed_no_evict",
        type=click.Choice(["guaranteed_no_evict", "max_utilization"]),
        help="Start a request when its worst case fits the KV cache, or at once, pausing requests when the cache is full.",
    )
    max_tokens_in_paged_kv_cache: int = option(
        131_072, type=_TOKENS, help="Capacity of the KV cache in tokens; on a GPU by default what its memory holds."
    )
    kv_cache_free_gpu_mem_fraction: float = option(
        0.9,
        type=click.FloatRange(0, 1, min_open=True),
        help="Largest share of the memory free at load for the KV cache (on a CPU: of the RAM).",
    )
    enable_kv_cache_reuse: bool = switch(True, help="Reuse cached prompt prefixes.")
    enable_chunked_context: bool = switch(True, help="Split long prompts into steps.")
    step_log: Path | None = option(
        None,
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="openvino: append a row for each step of the engine to this file: its time, tokens of prompts and of decode, "
        "sequences and KV blocks. bench why --step_log reads it.",
    )
    min_step_time: str | None = option(
        None,
        metavar="TIME",
        show_default="as fast as this machine computes",
        help="openvino: the least time of a step, such as 8ms, or 8ms,prompt_token=20us,sequence=100us, so that the engine is "
        "as fast as a device with such steps, on any machine that computes them sooner.",
    )
    engine_python: str | None = option(
        None,
        metavar="PYTHON",
        help="vllm: the Python of an environment with vLLM and without nvidia-pytriton, in which the engine runs.",
    )
    tensor_parallel_size: int = option(1, type=click.IntRange(1, 1024), help="vllm: GPUs that share each layer.")
    engine_arg: tuple[str, ...] = option(
        (), metavar="KEY=VALUE", help="vllm: an argument of its AsyncEngineArgs, such as load_format=dummy. Repeatable."
    )
    core_instance_count: int = option(
        1,
        type=click.IntRange(1, 64),
        help="vllm: instances of tensorrt_llm, which share one engine. For more streamed tokens/s than one sends.",
    )

    def folder(self, engine_dir: Path | None) -> Path:
        """The engine's folder. Raises UsageError where there is none, and for an option that the engine does not have."""
        self._refuse_others()
        if engine_dir is None and self.engine != "openvino":
            raise click.UsageError(f"--engine_dir: the demo engine is for OpenVINO; give a folder for --engine {self.engine}")
        if engine_dir is not None:
            return engine_dir.resolve()
        from serving.engines.openvino.folder import DEMO_ENGINE_DIR

        return DEMO_ENGINE_DIR.resolve()

    def options(self) -> EngineOptions:
        """The engine's options."""
        values = vars(self) | {
            "engine_python": "",
            "step_log": "" if self.step_log is None else str(self.step_log.absolute()),
            "min_step_time": self.min_step_time or "",
        }
        if self.engine_python is not None:  # not resolved: in a virtual environment it is a link, whose folder matters
            values["engine_python"] = os.path.abspath(shutil.which(self.engine_python) or self.engine_python)
        return engine_options(values)

    def _refuse_others(self) -> None:
        refused = _REFUSED[self.engine]
        for name in self.given(*refused):
            raise click.UsageError(f"--{name}: not with --engine {self.engine}; {refused[name]}")
        for name in self.given(*_OF_OPENVINO):
            if self.engine != "openvino":
                raise click.UsageError(f"--{name}: not with --engine {self.engine}; only --engine openvino has it")
        if self.min_step_time:
            _check_step_time(self.min_step_time)


ENGINE_OPTION_NAMES = EngineSettings.names()


def _check_step_time(text: str) -> None:
    """Raises UsageError."""
    from serving.engines.openvino.step_time import read_step_time
    from serving.errors import ServingError

    try:
        read_step_time(text)
    except ServingError as error:
        raise click.UsageError(f"--{error}") from error


def engine_options(values: Mapping[str, Any]) -> EngineOptions:
    """The engine's options, from the entries of ``values`` with their names; missing ones have their defaults."""
    from serving.engines.protocol import EngineOptions, SchedulerPolicy

    own = {field.name: values[field.name] for field in fields(EngineOptions) if field.name in values}
    if "batch_scheduler_policy" in own:
        own["batch_scheduler_policy"] = SchedulerPolicy(own["batch_scheduler_policy"])
    return EngineOptions(**own)
