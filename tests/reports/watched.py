"""Samples of probes and metrics of servers, made for tests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench_records.client_sample import ClientSample
from bench_records.server_table import MetricSample

_SECOND_NS = 1_000_000_000
_MS = 1_000_000


@dataclass(frozen=True)
class WorkerUsage:
    """What a worker uses between two samples; shares count the time between them."""

    cpu_share: float = 0.2
    wait_share: float | None = 0.01
    switches: int = 10
    gc_longest_ms: float = 0.0


def worker_samples(
    lags_ms: Sequence[float], usage: WorkerUsage = WorkerUsage(), *, worker: int = 0, every_ms: float = 25.0
) -> list[ClientSample]:
    """A worker's baseline, and a wake-up for each lag, ``every_ms`` apart."""
    wait_share = usage.wait_share
    baseline = ClientSample(time_ns=0, worker=worker, cpu_ns=0, run_queue_wait_ns=None if wait_share is None else 0)
    return [baseline] + [
        ClientSample(
            time_ns=round((k + 1) * every_ms * _MS),
            worker=worker,
            lag_ns=round(lag_ms * _MS),
            cpu_ns=round(usage.cpu_share * every_ms * _MS),
            run_queue_wait_ns=None if wait_share is None else round(wait_share * every_ms * _MS),
            gc_pause_ns=round(usage.gc_longest_ms * _MS),
            gc_longest_ns=round(usage.gc_longest_ms * _MS),
            gc_count=int(usage.gc_longest_ms > 0),
            voluntary_switches=usage.switches,
            involuntary_switches=0,
        )
        for k, lag_ms in enumerate(lags_ms)
    ]


def machine_samples(seconds: int, *, busy_cores: float = 0.5, steal_cores: float = 0.0) -> list[ClientSample]:
    """The parent's samples, one a second from the start on."""
    return [
        ClientSample(
            time_ns=k * _SECOND_NS,
            worker=None,
            cpu_ns=_SECOND_NS // 10 if k else 0,
            busy_ns=round(busy_cores * _SECOND_NS) if k else 0,
            steal_ns=round(steal_cores * _SECOND_NS) if k else 0,
            voluntary_switches=1,
            involuntary_switches=1,
        )
        for k in range(seconds + 1)
    ]


def metric(name: str, values: Mapping[float, float], /, **labels: str) -> list[MetricSample]:
    """A series: values by time in s."""
    text = json.dumps(labels, sort_keys=True)
    return [MetricSample(round(at_s * _SECOND_NS), _MS, name, text, value) for at_s, value in values.items()]


def engine_times(ttft_ms: float, e2e_ms: float, count: int = 100) -> list[MetricSample]:
    """vLLM's own mean TTFT and E2E latency of ``count`` requests."""
    return [
        sample
        for name, ms in (("time_to_first_token", ttft_ms), ("e2e_request_latency", e2e_ms))
        for part, value in (("sum", ms * count / 1e3), ("count", count))
        for sample in metric(f"vllm:{name}_seconds_{part}", {-1: 0, 2: value})
    ]


def engine_parts(queue_ms: float, prefill_ms: float, decode_ms: float, count: int = 100) -> list[MetricSample]:
    """vLLM's own mean parts of ``count`` requests, read until after the last answer."""
    return [
        sample
        for name, ms in (("queue", queue_ms), ("prefill", prefill_ms), ("decode", decode_ms))
        for part, value in (("sum", ms * count / 1e3), ("count", count))
        for sample in metric(f"vllm:request_{name}_time_seconds_{part}", {-1: 0, 60: value})
    ]


def limited_clocks(reason: str, until_s: float, uuid: str = "a", clock_mhz: float | None = 1350.0) -> list[MetricSample]:
    """A GPU, read every 0.1 s for 1.3 s, whose clocks were held down until ``until_s``."""
    times_s = [0.1 * k for k in range(13)]
    samples = metric("gpu_power_watts", dict.fromkeys(times_s, 700.0), uuid=uuid)
    samples += metric("gpu_clocks_limited", {at_s: float(at_s < until_s) for at_s in times_s}, uuid=uuid, reason=reason)
    if clock_mhz is None:
        return samples
    return samples + metric("gpu_sm_clock_hertz", dict.fromkeys(times_s, clock_mhz * 1e6), uuid=uuid)


def histogram(name: str, counts: Mapping[str, int], sum_s: float, /, **labels: str) -> list[MetricSample]:
    """A histogram of seconds that was empty before the run: the number of values in each bucket by its upper bound."""
    samples, up_to = metric(f"{name}_sum", {-1: 0, 2: sum_s}, **labels), 0
    for upper, count in counts.items():
        up_to += count
        samples += metric(f"{name}_bucket", {-1: 0, 2: up_to}, **labels, le=upper)
    return samples + metric(f"{name}_count", {-1: 0, 2: up_to}, **labels)


def statistics(**counts: tuple[int, float]) -> dict[str, Any]:
    """Triton's statistics: for each model its successful requests, and the mean time of each phase in ms."""

    def phase(count: int, ms: float) -> dict[str, int]:
        return {"count": count, "ns": round(count * ms * _MS)}

    return {
        model: {
            "inference_count": count,
            "execution_count": count,
            "success": phase(count, 4 * ms),
            "fail": phase(0, 0),
            "queue": phase(count, ms),
            "compute_input": phase(count, ms),
            "compute_infer": phase(count, ms),
            "compute_output": phase(count, ms),
        }
        for model, (count, ms) in counts.items()
    }
