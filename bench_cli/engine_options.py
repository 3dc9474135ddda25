"""Options of the embedded engine, for ``bench serve`` and every verb that deploys the pipeline for a run."""

from __future__ import annotations

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


@dataclass(frozen=True)
class EngineSettings(Concern, title="Engine (embedded)"):
    """The settings of the engine; a field has the name of its option."""

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
    max_tokens_in_paged_kv_cache: int = option(131_072, type=_TOKENS, help="Capacity of the KV cache in tokens.")
    kv_cache_free_gpu_mem_fraction: float = option(
        0.9,
        type=click.FloatRange(0, 1, min_open=True),
        help="Largest share of the memory free at load for the KV cache (on a CPU: of the RAM).",
    )
    enable_kv_cache_reuse: bool = switch(True, help="Reuse cached prompt prefixes.")
    enable_chunked_context: bool = switch(True, help="Split long prompts into steps.")


ENGINE_OPTION_NAMES = EngineSettings.names()


def engine_options(values: Mapping[str, Any]) -> EngineOptions:
    """The engine's options, from the entries of ``values`` with their names; missing ones have their defaults."""
    from serving.engines.protocol import EngineOptions, SchedulerPolicy

    own = {field.name: values[field.name] for field in fields(EngineOptions) if field.name in values}
    if "batch_scheduler_policy" in own:
        own["batch_scheduler_policy"] = SchedulerPolicy(own["batch_scheduler_policy"])
    return EngineOptions(**own)
