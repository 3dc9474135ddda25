"""Options of the embedded engine, for ``bench serve`` and every verb that deploys the pipeline for a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import cloup
from click.core import ParameterSource

if TYPE_CHECKING:
    from serving.engines.protocol import EngineOptions

_FOLDER = click.Path(path_type=Path, file_okay=False)
_TOKENS = click.IntRange(1, 2**31 - 1)
_Options = TypeVar("_Options")


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
    cloup.option("--draft_engine_dir", type=_FOLDER, help="Draft engine, for speculative decoding in tensorrt_llm_bls."),
    cloup.option("--max_num_sequences", type=click.IntRange(1, 65536), default=256, help="Requests that run concurrently."),
    cloup.option("--max_num_tokens", type=_TOKENS, default=2048, help="Maximum tokens per step."),
    cloup.option("--max_beam_width", type=click.IntRange(1, 1024), default=16, help="Widest beam search."),
    cloup.option(
        "--max_stream_interval",
        type=click.IntRange(1, 1024),
        default=4,
        help="Maximum tokens per streamed response when sending is the bottleneck. 1: always one token per response.",
    ),
    cloup.option("--max_queue_size", type=click.IntRange(min=0), default=0, help="Maximum queued requests; 0: no limit."),
    cloup.option(
        "--batch_scheduler_policy",
        type=click.Choice(["guaranteed_no_evict", "max_utilization"]),
        default="guaranteed_no_evict",
        help="Start a request when its worst case fits the KV cache, or at once, pausing requests when the cache is full.",
    ),
    cloup.option("--max_tokens_in_paged_kv_cache", type=_TOKENS, default=131_072, help="Capacity of the KV cache in tokens."),
    cloup.option(
        "--kv_cache_free_gpu_mem_fraction",
        type=click.FloatRange(0, 1, min_open=True),
        default=0.9,
        help="Largest share of the memory free at load for the KV cache (on a CPU: of the RAM).",
    ),
    cloup.option("--enable_kv_cache_reuse/--no_enable_kv_cache_reuse", default=True, help="Reuse cached prompt prefixes."),
    cloup.option("--enable_chunked_context/--no_enable_chunked_context", default=True, help="Split long prompts into steps."),
)


def engine_options(values: Mapping[str, Any]) -> EngineOptions:
    """The engine's options, from the entries of ``values`` with their names; missing ones have their defaults."""
    from serving.engines.protocol import EngineOptions, SchedulerPolicy

    own = {field.name: values[field.name] for field in fields(EngineOptions) if field.name in values}
    if "batch_scheduler_policy" in own:
        own["batch_scheduler_policy"] = SchedulerPolicy(own["batch_scheduler_policy"])
    return EngineOptions(**own)


def given(name: str) -> bool:
    """Whether the option is on the command line, even with its default value."""
    source = click.get_current_context().get_parameter_source(name)
    return source is not None and source is not ParameterSource.DEFAULT


def options_from(concern: Callable[..., _Options], values: Mapping[str, Any]) -> _Options:
    """An instance of the dataclass ``concern``, whose fields have the names of click's values."""
    return concern(**{field.name: values[field.name] for field in fields(concern)})  # type: ignore[arg-type]
