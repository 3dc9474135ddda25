"""The core model's metrics on Triton's ``/metrics``: upstream's ``nv_trt_llm_*`` families, and the engine's counters."""

from __future__ import annotations

from typing import Any

import triton_python_backend_utils as pb_utils

from serving.engines.protocol import EngineStats


class CoreMetrics:
    """Publishes an EngineStats; ``update`` is called from one thread."""

    def __init__(self, model: str, version: str) -> None:
        self._labels = {"model": model, "version": version}
        gauge, counter = pb_utils.MetricFamily.GAUGE, pb_utils.MetricFamily.COUNTER
        requests = pb_utils.MetricFamily("nv_trt_llm_request_metrics", "Requests in the engine", gauge)
        blocks = pb_utils.MetricFamily("nv_trt_llm_kv_cache_block_metrics", "KV cache blocks", gauge)
        iterations = pb_utils.MetricFamily("inflight_bench_engine_iterations", "Engine steps", counter)
        scheduled = pb_utils.MetricFamily(
            "inflight_bench_engine_scheduled_requests",
            "Requests in the batch, summed over steps; divided by the steps it is the mean batch size",
            counter,
        )
        tokens = pb_utils.MetricFamily("inflight_bench_engine_generated_tokens", "Tokens generated", counter)
        self._families = (requests, blocks, iterations, scheduled, tokens)  # Triton drops a family with its object
        self._requests = {kind: self._metric(requests, "request_type", kind) for kind in ("active", "scheduled", "max")}
        self._blocks = {
            kind: self._metric(blocks, "kv_cache_block_type", kind)
            for kind in ("max", "used", "free", "fraction", "tokens_per")
        }
        self._counters = [family.Metric(labels=self._labels) for family in (iterations, scheduled, tokens)]
        self._counted = (0, 0, 0)

    def _metric(self, family: Any, label: str, value: str) -> Any:
        return family.Metric(labels={**self._labels, label: value})

    def update(self, stats: EngineStats) -> None:
        self._requests["active"].set(stats.active_requests)
        self._requests["scheduled"].set(stats.scheduled_requests)
        self._requests["max"].set(stats.max_requests)
        used = round(stats.kv_cache_used_fraction * stats.kv_cache_blocks)
        self._blocks["max"].set(stats.kv_cache_blocks)
        self._blocks["used"].set(used)
        self._blocks["free"].set(stats.kv_cache_blocks - used)
        self._blocks["fraction"].set(stats.kv_cache_used_fraction)
        self._blocks["tokens_per"].set(stats.kv_cache_tokens_per_block)
        counted = (stats.iterations_total, stats.scheduled_requests_total, stats.generated_tokens_total)
        for metric, now, before in zip(self._counters, counted, self._counted, strict=True):
            metric.increment(now - before)
        self._counted = counted
