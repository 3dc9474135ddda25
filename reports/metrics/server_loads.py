"""The loads of several servers that were measured together, each by its own numbers, and what can be said of all.

Counts are added up, where every server has them. A gauge, a mean or a percentile of different servers has no common value: it
is that of each server alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from reports.metrics.configuration import ConfiguredTarget
from reports.metrics.model_statistics import ModelWork
from reports.metrics.requests import Requests
from reports.metrics.server_load import CacheReuse, EngineTimes, ServerLoad, Speculation, server_load
from reports.metrics.server_series import Telemetry

_Number = TypeVar("_Number", int, float)


@dataclass(frozen=True)
class ServerLoads:
    """``each`` server's load by the URL of its page, empty of one page; ``total`` is None where nothing is known."""

    total: ServerLoad | None
    each: Mapping[str, ServerLoad]


def server_loads(
    telemetry: Telemetry | None,
    pages: int | None,
    requests: Requests,
    target: ConfiguredTarget,
    models: tuple[ModelWork, ...],
) -> ServerLoads:
    """The loads by ``telemetry``, read from a number of ``pages`` (None: unknown), and by the statistics of all ``models``."""
    if telemetry is None or (len(telemetry.servers) < 2 and (pages or 0) < 2):
        return ServerLoads(server_load(telemetry, requests, target, models), {})
    each: dict[str, ServerLoad] = {}
    for server in telemetry.servers:
        load = server_load(telemetry.of_server(server), requests, target, ())
        assert load is not None, "it has telemetry"
        each[server] = load
    return ServerLoads(_together(list(each.values()), is_whole=len(each) == pages, models=models), each)


def _together(loads: Sequence[ServerLoad], *, is_whole: bool, models: tuple[ModelWork, ...]) -> ServerLoad:
    """``is_whole``: there is a load of every page; else counts of all are unknown."""

    def total(of: Callable[[ServerLoad], _Number | None]) -> _Number | None:
        known = [number for load in loads if (number := of(load)) is not None]
        return sum(known) if is_whole and len(known) == len(loads) else None

    return ServerLoad(
        readings=min(load.readings for load in loads),
        until_end=all(load.until_end for load in loads),
        active_requests=None,
        scheduled_requests=None,
        waiting_requests=None,
        batch_limit=total(lambda load: load.batch_limit),
        kv_cache_used_fraction=None,
        gpu_utilization=None,
        cpu_utilization=None,
        metrics_requests=total(lambda load: load.metrics_requests),
        finished_requests=total(lambda load: load.finished_requests),
        generated_tokens=total(lambda load: load.generated_tokens),
        prompt_tokens=total(lambda load: load.prompt_tokens),
        cache_reuse=_reuse(loads, is_whole),
        times=EngineTimes(requests=total(lambda load: load.times.requests), queue_ms=None, ttft_ms=None, e2e_ms=None),
        models=models,
        preemptions=total(lambda load: load.preemptions),
        speculation=_speculation(loads, is_whole),
    )


def _reuse(loads: Sequence[ServerLoad], is_whole: bool) -> CacheReuse | None:
    known = [load.cache_reuse for load in loads if load.cache_reuse is not None]
    if not is_whole or len(known) < len(loads) or len({reuse.unit for reuse in known}) > 1:
        return None
    return CacheReuse(sum(reuse.reused for reuse in known), sum(reuse.needed for reuse in known), known[0].unit)


def _speculation(loads: Sequence[ServerLoad], is_whole: bool) -> Speculation | None:
    known = [load.speculation for load in loads if load.speculation is not None]
    if not is_whole or len(known) < len(loads):
        return None
    return Speculation(
        drafts=sum(of_server.drafts for of_server in known),
        drafted_tokens=sum(of_server.drafted_tokens for of_server in known),
        accepted_tokens=sum(of_server.accepted_tokens for of_server in known),
    )
