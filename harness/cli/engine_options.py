"""The options that shape the embedded engine: of ``bench serve``, and of every verb that deploys the pipeline for a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup
from click.core import ParameterSource

if TYPE_CHECKING:
    from serving.engines.protocol import EngineOptions

_FOLDER = click.Path(path_type=Path, file_okay=False)
_TOKENS = click.IntRange(1, 2**31 - 1)


@dataclass(frozen=True)
class EngineSettings:
    """The values of ``engine_group``; a field has the name of its option."""

    draft_engine_dir: Path | None
    max_num_sequences: int
    max_num_tokens: int
    max_beam_width: int
    max_stream_interval: int
    max_queue_size: int
    batch_scheduler_policy: str
    max_tokens_in_paged_kv_cache: int
    kv_cache_free_gpu_mem_fraction: float
    enable_kv_cache_reuse: bool
    enable_chunked_context: bool


ENGINE_OPTION_NAMES = tuple(field.name for field in fields(EngineSettings))

engine_group = cloup.option_group(
    "Engine (embedded)",
    cloup.option("--draft_engine_dir", type=_FOLDER, help="Engine whose drafts tensorrt_llm_bls lets the other check."),
    cloup.option("--max_num_sequences", type=click.IntRange(1, 65536), default=256, help="Requests that run at once."),
    cloup.option("--max_num_tokens", type=_TOKENS, default=2048, help="Tokens of one step."),
    cloup.option("--max_beam_width", type=click.IntRange(1, 1024), default=16, help="Widest beam search."),
    cloup.option(
        "--max_stream_interval",
        type=click.IntRange(1, 1024),
        default=4,
        help="Tokens of a streamed response at most, where sending takes much of the time. 1: always token by token.",
    ),
    cloup.option("--max_queue_size", type=click.IntRange(min=0), default=0, help="Requests that may wait; 0: any number."),
    cloup.option(
        "--batch_scheduler_policy",
        type=click.Choice(["guaranteed_no_evict", "max_utilization"]),
        default="guaranteed_no_evict",
        help="A request starts when its worst case fits the KV cache, or at once, and is paused where the cache is full.",
    ),
    cloup.option("--max_tokens_in_paged_kv_cache", type=_TOKENS, default=131_072, help="Room of the KV cache."),
    cloup.option(
        "--kv_cache_free_gpu_mem_fraction",
        type=click.FloatRange(0, 1, min_open=True),
        default=0.9,
        help="Share of the memory free at load that the KV cache may take (on a CPU: of the RAM).",
    ),
    cloup.option("--enable_kv_cache_reuse/--no_enable_kv_cache_reuse", default=True, help="Keep prompts for later ones."),
    cloup.option("--enable_chunked_context/--no_enable_chunked_context", default=True, help="Read prompts in several steps."),
)


def engine_options(values: Mapping[str, Any]) -> EngineOptions:
    """Those of ``values`` that the engine has, by their names."""
    from serving.engines.protocol import EngineOptions, SchedulerPolicy

    own = {field.name: values[field.name] for field in fields(EngineOptions) if field.name in values}
    if "batch_scheduler_policy" in own:
        own["batch_scheduler_policy"] = SchedulerPolicy(own["batch_scheduler_policy"])
    return EngineOptions(**own)


def given(name: str) -> bool:
    """Whether the user gave the option, its default value included."""
    source = click.get_current_context().get_parameter_source(name)
    return source is not None and source is not ParameterSource.DEFAULT
