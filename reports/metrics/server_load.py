"""Load of the server by its own numbers: its metrics through the run, and its models' statistics.

``server_pages`` has the names of each kind of server; those of TensorRT-LLM's backend for Triton, whose gauges are one series a
kind of value, are here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from reports.metrics.configuration import ConfiguredTarget
from reports.metrics.engine_latencies import EngineLatency, engine_latencies
from reports.metrics.model_statistics import ModelWork
from reports.metrics.requests import Requests
from reports.metrics.server_pages.listed import PAGES, names_of, with_model_label
from reports.metrics.server_series import Level, Telemetry

_CORE_MODEL = "tensorrt_llm"
_REQUESTS = "nv_trt_llm_request_metrics"
_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
_OWN_TTFT, _OWN_GAPS = "inflight_bench_time_to_first_token_seconds", "inflight_bench_inter_token_latency_seconds"


@dataclass(frozen=True)
class CacheReuse:
    """KV cache that prompts needed, and the part of it that was cached already, in blocks or tokens (``unit``)."""

    reused: float
    needed: float
    unit: str

    @property
    def share(self) -> float:
        return self.reused / self.needed


@dataclass(frozen=True)
class Speculation:
    """Tokens that a draft model or rule proposed during the run, in ``drafts`` steps, and those that the model accepted."""

    drafts: float
    drafted_tokens: float
    accepted_tokens: float

    @property
    def accepted_share(self) -> float:
        return self.accepted_tokens / self.drafted_tokens


@dataclass(frozen=True)
class EngineTimes:
    """Means by the engine's own clock, from its receipt, in ms, over ``requests`` of them during the run; None is unknown.

    ``prefill_ms`` is from the first step that computes a request to its first token, ``decode_ms`` from there to its last,
    both by the process that runs the model. E2E latency is by the server's front end: it holds the queue, both of them, and
    the front end's own work before and after.
    """

    requests: float | None
    queue_ms: float | None
    ttft_ms: float | None
    e2e_ms: float | None
    prefill_ms: float | None = None
    decode_ms: float | None = None

    @property
    def engine_ms(self) -> float | None:
        """Queue, prefill and decode; None where one is unknown."""
        parts = (self.queue_ms, self.prefill_ms, self.decode_ms)
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None

    @property
    def front_end_ms(self) -> float | None:
        """What of the E2E latency passed outside of the engine; None where it is unknown."""
        return None if self.e2e_ms is None or self.engine_ms is None else max(0.0, self.e2e_ms - self.engine_ms)


@dataclass(frozen=True)
class ServerLoad:
    """A server's own numbers; None is not exported. Fractions lie between 0 and 1."""

    readings: int
    until_end: bool  # the last reading of the metrics came after the last answer
    active_requests: Level | None
    scheduled_requests: Level | None
    waiting_requests: Level | None
    batch_limit: int | None  # requests in the batch at most
    kv_cache_used_fraction: Level | None
    gpu_utilization: Level | None
    cpu_utilization: Level | None
    metrics_requests: float | None  # of the target model, by Triton's metrics
    finished_requests: float | None  # by the metrics of a server without models' statistics
    generated_tokens: float | None
    prompt_tokens: float | None
    cache_reuse: CacheReuse | None
    times: EngineTimes
    models: tuple[ModelWork, ...]
    latencies: tuple[EngineLatency, ...] = ()
    preemptions: float | None = None  # of requests, whose tokens are computed again
    speculation: Speculation | None = None


def server_load(
    telemetry: Telemetry | None, requests: Requests, target: ConfiguredTarget, models: tuple[ModelWork, ...]
) -> ServerLoad | None:
    """Summarise a server's metrics and statistics of a run; None where there are none."""
    if telemetry is None and not models:
        return None
    known = Telemetry({}) if telemetry is None else telemetry
    ends_ns = requests.done_ns[~np.isnan(requests.done_ns)]
    until_ns = float(ends_ns.max()) if ends_ns.size else 0.0
    return _Reading(known, _core_labels(known, target.model), until_ns, target, bool(requests.done.all())).load(models)


def _core_labels(telemetry: Telemetry, target: str) -> dict[str, str]:
    """Labels of the model whose engine's metrics count: the target model, or the core model that it uses."""
    names = {series.labels.get("model") for series in telemetry.select(_REQUESTS)}
    chosen = next((name for name in (target, _CORE_MODEL) if name in names), None)
    return {} if chosen is None else {"model": chosen}


@dataclass(frozen=True)
class _Reading:
    telemetry: Telemetry
    core: dict[str, str]
    until_ns: float
    target: ConfiguredTarget
    all_done: bool

    def load(self, models: tuple[ModelWork, ...]) -> ServerLoad:
        prompt_tokens = self._first_increase(*names_of("prompt_tokens"))
        times = [series.times_ns.size for all_of_name in self.telemetry.by_name.values() for series in all_of_name]
        return ServerLoad(
            readings=max(times, default=0),
            until_end=self._last_reading_ns() >= self.until_ns,
            active_requests=self._level(_REQUESTS, request_type="active") or self._first_level(*names_of("active")),
            scheduled_requests=self._level(_REQUESTS, request_type="scheduled") or self._first_level(*names_of("running")),
            waiting_requests=self._level(_REQUESTS, request_type="waiting") or self._first_level(*names_of("waiting")),
            batch_limit=self._batch_limit(),
            kv_cache_used_fraction=self._cache_used(),
            gpu_utilization=self._averaged("nv_gpu_utilization"),
            cpu_utilization=self._averaged("nv_cpu_utilization"),
            metrics_requests=self._triton_requests(),
            finished_requests=self._first_increase(*names_of("finished")),
            generated_tokens=self._first_increase(*names_of("generated_tokens")),
            prompt_tokens=prompt_tokens,
            cache_reuse=self._cache_reuse(prompt_tokens),
            times=EngineTimes(
                requests=self._first_increase(*(f"{name}_count" for name in names_of("ttft"))),
                queue_ms=self._mean_ms(*names_of("queue_time")),
                ttft_ms=self._mean_ms(*names_of("ttft")),
                e2e_ms=self._mean_ms(*names_of("e2e")) or self._summed_e2e_ms(),
                prefill_ms=self._mean_ms(*names_of("prefill_time")),
                decode_ms=self._mean_ms(*names_of("decode_time")),
            ),
            models=models,
            latencies=engine_latencies(self.telemetry, self.core),
            preemptions=self._first_increase(*names_of("preemptions")),
            speculation=self._speculation(),
        )

    def _last_reading_ns(self) -> float:
        of_series = (series.times_ns[-1] for all_of_name in self.telemetry.by_name.values() for series in all_of_name)
        return max(map(float, of_series), default=-math.inf)

    def _labels(self, name: str) -> dict[str, str]:
        """The core model's labels, for a metric that has a Triton model as a label."""
        return self.core if with_model_label(name) else {}

    def _level(self, name: str, **labels: str) -> Level | None:
        return self.telemetry.level(self.until_ns, name, **self._labels(name), **labels)

    def _first_level(self, *names: str) -> Level | None:
        return next((level for name in names if (level := self._level(name)) is not None), None)

    def _batch_limit(self) -> int | None:
        published = self._level(_REQUESTS, request_type="max")
        return int(published.max) if published is not None and published.max >= 1 else None

    def _averaged(self, name: str) -> Level | None:
        """The mean over a gauge's series, one for each GPU or replica."""
        level, count = self._level(name), len(self.telemetry.select(name))
        return None if level is None else Level(level.mean / count, level.max / count, level.readings)

    def _cache_used(self) -> Level | None:
        exported = self._level(_BLOCKS, kv_cache_block_type="fraction")
        used, largest = self._level(_BLOCKS, kv_cache_block_type="used"), self._level(_BLOCKS, kv_cache_block_type="max")
        if used is not None and largest is not None and largest.max > 0:
            return Level(used.mean / largest.max, used.max / largest.max, used.readings)
        averaged = (self._averaged(name) for name in names_of("cache_used"))
        return exported or next((level for level in averaged if level is not None), None)

    def _first_increase(self, *names: str) -> float | None:
        increases = (self.telemetry.increase(name, **self._labels(name)) for name in names)
        return next((increase for increase in increases if increase is not None), None)

    def _mean_ms(self, *names: str) -> float | None:
        """The mean of a histogram's values during the run."""
        for name in names:
            count = self.telemetry.increase(f"{name}_count", **self._labels(name))
            total_s = self.telemetry.increase(f"{name}_sum", **self._labels(name))
            if count and total_s is not None:
                return total_s / count * 1e3
        return None

    def _triton_requests(self) -> float | None:
        counters = ("nv_inference_request_success", "nv_inference_request_failure")
        parts = [self.telemetry.increase(name, model=self.target.model) for name in counters]
        known = [part for part in parts if part is not None]
        return sum(known) if len(known) == len(parts) else None

    def _summed_e2e_ms(self) -> float | None:
        """E2E latency from the sums of TTFT and gaps that the project's engine exports; of streamed requests alone, and of runs
        whose answers are all whole: the sums have the beginnings of the others, too.
        """
        if not self.all_done or not self.target.streaming:
            return None
        count = self._first_increase(f"{_OWN_TTFT}_count")
        parts = [self._first_increase(f"{name}_sum") for name in (_OWN_TTFT, _OWN_GAPS)]
        known = [part for part in parts if part is not None]
        return sum(known) / count * 1e3 if count and len(known) == len(parts) else None

    def _speculation(self) -> Speculation | None:
        drafts, drafted, accepted = (
            self._first_increase(*names_of(part)) for part in ("drafts", "drafted_tokens", "accepted_tokens")
        )
        return None if drafts is None or accepted is None or not drafted else Speculation(drafts, drafted, accepted)

    def _cache_reuse(self, prompt_tokens: float | None) -> CacheReuse | None:
        for reused_name, needed_name, unit in (pair for page in PAGES for pair in page.reuse):
            reused, needed = self._first_increase(reused_name), self._first_increase(needed_name)
            if reused is not None and needed:
                return CacheReuse(reused, needed, unit)
        reused = self.telemetry.increase(_BLOCKS, **self.core, kv_cache_block_type="reused")
        block_tokens = self._level(_BLOCKS, kv_cache_block_type="tokens_per")
        if reused is None or block_tokens is None or not prompt_tokens:
            return None
        return CacheReuse(min(reused * block_tokens.max, prompt_tokens), prompt_tokens, "tokens")
