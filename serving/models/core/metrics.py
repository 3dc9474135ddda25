"""The core model's metrics on Triton's ``/metrics``: upstream's families, and durations and counts of the engine.

A metric update is a round trip to the server, so only changed values are published. Triton's histograms would need an update
per token or request: these are counters with Prometheus's names (``…_bucket`` with ``le``, ``…_sum``, ``…_count``) instead,
published together.
"""

from __future__ import annotations

import queue
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Protocol

import triton_python_backend_utils as pb_utils

from serving.engines.protocol import HISTOGRAM_BOUNDS_S, EngineStats, Histogram

_HISTOGRAMS_PERIOD_S = 1.0
_TOKEN_BOUNDS = (10, 50, 100, 500, 1000)  # upstream's
_REQUESTS = ("nv_trt_llm_request_metrics", "Requests in the engine", "request_type")
_MEMORY = ("nv_trt_llm_runtime_memory_metrics", "Memory of the engine's processes, in bytes", "memory_type")
_BLOCKS = ("nv_trt_llm_kv_cache_block_metrics", "KV cache blocks", "kv_cache_block_type")
_BATCHER = ("nv_trt_llm_inflight_batcher_metrics", "In-flight batching", "inflight_batcher_specific_metric")
_GENERAL = ("nv_trt_llm_general_metrics", "Time of the newest statistics (us since 1970), and engine steps", "general_type")
_DISAGGREGATED = ("nv_trt_llm_disaggregated_serving_metrics", "Disaggregated serving, which this engine does not have")
_COUNTERS = {
    "iterations": "Engine steps",
    "scheduled_requests": "Requests in the batch, summed over steps; divided by the steps it is the mean batch size",
    "generated_tokens": "Tokens generated",
    "prompt_tokens": "Prompt tokens of requests that started",
    "kv_prompt_blocks": "KV blocks that prompts needed",
    "kv_reused_blocks": "KV blocks that prompts found in the cache; divided by those needed it is the hit rate",
}
_HISTOGRAMS = {
    "time_to_first_token": "From a request's submission to its first token, in seconds",
    "inter_token_latency": "Between tokens of requests that are read at each step, such as streamed ones, in seconds",
    "queue_time": "From a request's submission to its start in the engine, in seconds",
}


class Metric(Protocol):
    """A counter or gauge of Triton."""

    def set(self, value: float) -> None: ...

    def increment(self, value: float) -> None: ...


class CoreMetrics:
    """Publishes EngineStats and the lengths of answers; ``note_answer`` is called from any thread, all else from one.

    Several instances of a model that share an engine share the families: they count their answers together, and one of them
    publishes the engine's statistics.
    """

    def __init__(self, model: str, version: str) -> None:
        self._labels = {"model": model, "version": version}
        self._families: list[Any] = []  # Triton removes a family together with its object
        self._published: dict[Metric, float] = {}
        self._histograms_due_s = 0.0
        self._gauge_families: dict[tuple[str, str, str], Any] = {}
        self._gauges: dict[tuple[tuple[str, str, str], str], Metric] = {}
        self._answers: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._counters = {
            name: self.counter(f"inflight_bench_engine_{name}", description) for name, description in _COUNTERS.items()
        }
        self._histograms = {
            name: _CounterHistogram(self, f"inflight_bench_{name}_seconds", description, HISTOGRAM_BOUNDS_S)
            for name, description in _HISTOGRAMS.items()
        }
        self._input_lengths = _TokenHistogram(self, "nv_llm_input_token_len", "total_input_tokens", "Prompt tokens")
        self._output_lengths = _TokenHistogram(self, "nv_llm_output_token_len", "total_output_tokens", "Generated tokens")
        self._disaggregated = [
            *self.counters(
                *_DISAGGREGATED,
                [{"disaggregated_serving_type": kind} for kind in ("kv_cache_transfer_ms", "request_count")],
            )
        ]

    def note_answer(self, input_tokens: int, output_tokens: int) -> None:
        """Record the lengths of an answered request, for the next ``update``."""
        self._answers.put((input_tokens, output_tokens))

    def update(self, stats: EngineStats) -> None:
        """Publish the changed values."""
        self._publish_gauges(stats)
        for name, counter in self._counters.items():
            self.raise_to(counter, getattr(stats, f"{name}_total"))
        now_s = time.monotonic()
        if stats.active_requests == 0 or now_s >= self._histograms_due_s:  # every bucket is a round trip
            self._histograms_due_s = now_s + _HISTOGRAMS_PERIOD_S
            for name, histogram in self._histograms.items():
                times: Histogram = getattr(stats, name)
                histogram.raise_to(times.counts, times.sum_s)
            self.publish_answers()

    def publish_answers(self) -> None:
        """Publish the lengths of the answers noted so far."""
        for _ in range(self._answers.qsize()):
            input_tokens, output_tokens = self._answers.get()
            self._input_lengths.add(input_tokens)
            self._output_lengths.add(output_tokens)
        self._input_lengths.publish()
        self._output_lengths.publish()

    def _publish_gauges(self, stats: EngineStats) -> None:
        used = round(stats.kv_cache_used_fraction * stats.kv_cache_blocks)
        self._set(
            _REQUESTS,
            active=stats.active_requests,
            max=stats.max_requests,
            scheduled=stats.scheduled_requests,
            context=stats.context_requests,
            waiting=max(0, stats.active_requests - stats.scheduled_requests),
        )
        self._set(_MEMORY, cpu=stats.memory_bytes, gpu=stats.gpu_memory_bytes, pinned=stats.pinned_memory_bytes)
        self._set(
            _BLOCKS,
            max=stats.kv_cache_blocks,
            free=stats.kv_cache_blocks - used,
            used=used,
            tokens_per=stats.kv_cache_tokens_per_block,
            reused=stats.kv_reused_blocks_total,
            fraction=stats.kv_cache_used_fraction,
        )
        self._set(
            _BATCHER,
            total_context_tokens=stats.context_tokens,
            generation_requests=stats.generation_requests,
            micro_batch_id=0,
            paused_requests=stats.paused_requests,
        )
        self._set(_GENERAL, timestamp=time.time_ns() // 1000, iteration_counter=stats.iterations_total)

    def _set(self, family: tuple[str, str, str], **values: float | None) -> None:
        """Publish the values that are known: a gauge would begin with 0."""
        for kind, value in values.items():
            if value is None:
                continue
            gauge = self._gauge(family, kind)
            if self._published.get(gauge) != value:
                gauge.set(value)
                self._published[gauge] = value

    def _gauge(self, family: tuple[str, str, str], kind: str) -> Metric:
        if (family, kind) not in self._gauges:
            name, description, label = family
            if family not in self._gauge_families:
                self._gauge_families[family] = self._family(name, description, pb_utils.MetricFamily.GAUGE)
            self._gauges[family, kind] = self._gauge_families[family].Metric(labels={**self._labels, label: kind})
        return self._gauges[family, kind]

    def raise_to(self, counter: Metric, value: float) -> None:
        """Raise a counter to its new value."""
        increase = value - self._published.get(counter, 0)
        if increase > 0:
            counter.increment(increase)
            self._published[counter] = value

    def counters(self, name: str, description: str, labels: Sequence[Mapping[str, str]]) -> list[Metric]:
        """One counter per set of labels."""
        counters = self._family(name, description, pb_utils.MetricFamily.COUNTER)
        return [counters.Metric(labels={**self._labels, **more}) for more in labels]

    def counter(self, name: str, description: str) -> Metric:
        return self.counters(name, description, [{}])[0]

    def _family(self, name: str, description: str, kind: Any) -> Any:
        family = pb_utils.MetricFamily(name, description, kind)
        self._families.append(family)
        return family


class _CounterHistogram:
    """A histogram published as counters; ``bounds`` are the buckets' upper bounds, and one more bucket is unbounded."""

    def __init__(
        self,
        metrics: CoreMetrics,
        name: str,
        description: str,
        bounds: Sequence[float],
        labels: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._metrics = metrics
        limits = [*(f"{bound:g}" for bound in bounds), "+Inf"]
        self._buckets = metrics.counters(f"{name}_bucket", description, [{**labels, "le": limit} for limit in limits])
        [self._sum] = metrics.counters(f"{name}_sum", description, [labels])
        [self._count] = metrics.counters(f"{name}_count", description, [labels])

    def raise_to(self, counts: Sequence[int], total: float) -> None:
        """Raise the counters to ``counts``, one per bucket, and to the sum of all values."""
        cumulative = list(accumulate(counts))
        for bucket, below in zip(self._buckets, cumulative, strict=True):
            self._metrics.raise_to(bucket, below)
        self._metrics.raise_to(self._sum, total)
        self._metrics.raise_to(self._count, cumulative[-1])


class _TokenHistogram:
    """Lengths of answered requests, in tokens."""

    def __init__(self, metrics: CoreMetrics, name: str, kind: str, description: str) -> None:
        labels = {"response_metric_type": kind}
        self._histogram = _CounterHistogram(metrics, name, f"{description} of each answered request", _TOKEN_BOUNDS, labels)
        self._counts = [0] * (len(_TOKEN_BOUNDS) + 1)
        self._sum_tokens = 0

    def add(self, tokens: int) -> None:
        self._counts[bisect_left(_TOKEN_BOUNDS, tokens)] += 1
        self._sum_tokens += tokens

    def publish(self) -> None:
        self._histogram.raise_to(self._counts, self._sum_tokens)
