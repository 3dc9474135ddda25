"""Latencies by the engine's own histograms."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_records.server_table import MetricSample, read_server_table, write_server_table
from reports.metrics.engine_latencies import Between, EngineLatency, engine_latencies
from reports.metrics.server_series import Series, Telemetry, telemetry_of
from tests.reports.watched import histogram, metric

_TTFT = "vllm:time_to_first_token_seconds"
_BOUNDS = (0.01, 0.1, 1.0, math.inf)


@pytest.fixture
def latencies_of(tmp_path: Path):  # type: ignore[no-untyped-def]
    def found(samples: list[MetricSample], **labels: str) -> dict[str, EngineLatency]:
        write_server_table(samples, tmp_path / "server.parquet")
        telemetry = telemetry_of(read_server_table(tmp_path / "server.parquet"))
        assert telemetry is not None
        return {latency.metric: latency for latency in engine_latencies(telemetry, labels)}

    return found


def test_a_percentile_lies_in_the_bucket_that_holds_its_rank(latencies_of) -> None:  # type: ignore[no-untyped-def]
    found = latencies_of(histogram(_TTFT, {"0.1": 50, "0.25": 48, "0.5": 1, "+Inf": 1}, 12.5))
    assert found == {"ttft": EngineLatency("ttft", 100.0, 125.0, Between(0.0, 100.0), Between(250.0, 500.0))}
    beyond = latencies_of(histogram(_TTFT, {"0.1": 90, "+Inf": 10}, 50.0))["ttft"]
    assert beyond.p99 == Between(100.0, None)


def test_what_came_before_the_run_does_not_count(latencies_of) -> None:  # type: ignore[no-untyped-def]
    samples = (
        metric(f"{_TTFT}_sum", {-1: 100, 2: 101})
        + metric(f"{_TTFT}_count", {-1: 10, 2: 20})
        + metric(f"{_TTFT}_bucket", {-1: 0, 2: 10}, le="0.1")
        + metric(f"{_TTFT}_bucket", {-1: 10, 2: 20}, le="+Inf")
    )
    assert latencies_of(samples)["ttft"] == EngineLatency("ttft", 10.0, 100.0, Between(0.0, 100.0), Between(0.0, 100.0))


def test_the_buckets_of_several_engines_are_added(latencies_of) -> None:  # type: ignore[no-untyped-def]
    fast = histogram(_TTFT, {"0.1": 99, "+Inf": 0}, 1.0, engine="0")
    slow = histogram(_TTFT, {"0.1": 0, "+Inf": 1}, 9.0, engine="1")
    found = latencies_of(fast + slow)["ttft"]
    assert (found.values, found.mean_ms, found.p50, found.p99) == (100.0, 100.0, Between(0.0, 100.0), Between(0.0, 100.0))


def test_without_whole_buckets_the_mean_is_left(latencies_of) -> None:  # type: ignore[no-untyped-def]
    counted = metric(f"{_TTFT}_sum", {-1: 0, 2: 1}) + metric(f"{_TTFT}_count", {-1: 0, 2: 10})
    for buckets in (
        [],
        metric(f"{_TTFT}_bucket", {-1: 0, 2: 10}),
        metric(f"{_TTFT}_bucket", {-1: 0, 2: 9}, le="+Inf"),
        metric(f"{_TTFT}_bucket", {-1: 0, 2: 10}, le="x"),
    ):
        assert latencies_of(counted + buckets) == {"ttft": EngineLatency("ttft", 10.0, 100.0, None, None)}


def test_the_name_with_values_counts_and_the_core_model_s_series_alone(latencies_of) -> None:  # type: ignore[no-untyped-def]
    old = histogram("vllm:time_per_output_token_seconds", {"+Inf": 4}, 1.0)
    assert latencies_of(histogram("vllm:inter_token_latency_seconds", {"+Inf": 0}, 0.0) + old)["itl"].mean_ms == 250.0
    ours = "inflight_bench_inter_token_latency_seconds"
    draft = histogram(ours, {"0.1": 1, "0.2": 1, "0.3": 2, "+Inf": 0}, 40.0, model="draft")
    core = histogram(ours, {"0.1": 0, "0.3": 4, "+Inf": 0}, 1.0, model="core")
    assert latencies_of(old, model="core")["itl"].mean_ms == 250.0  # vLLM's names have no label of a Triton model
    between = Between(100.0, 300.0)
    assert latencies_of(core + draft, model="core")["itl"] == EngineLatency("itl", 4.0, 250.0, between, between)


@given(st.lists(st.floats(1e-4, 10.0), min_size=1, max_size=50))
def test_the_bounds_hold_the_nearest_rank_percentile(values_s: list[float]) -> None:
    import numpy as np

    def series(part: str, value: float, **labels: str) -> tuple[Series, ...]:
        return (Series(f"{_TTFT}_{part}", labels, np.array([-1.0, 1.0]), np.array([0.0, value])),)

    buckets = tuple(
        bucket
        for bound in _BOUNDS
        for bucket in series("bucket", sum(v <= bound for v in values_s), le=f"{bound:g}".replace("inf", "+Inf"))
    )
    telemetry = Telemetry(
        {
            f"{_TTFT}_sum": series("sum", sum(values_s)),
            f"{_TTFT}_count": series("count", len(values_s)),
            f"{_TTFT}_bucket": buckets,
        }
    )
    (found,) = engine_latencies(telemetry, {})
    for between, q in ((found.p50, 0.5), (found.p99, 0.99)):
        exact_ms = sorted(values_s)[math.ceil(q * len(values_s)) - 1] * 1e3
        assert between is not None
        assert between.low_ms <= exact_ms * (1 + 1e-9)
        assert between.high_ms is None or exact_ms <= between.high_ms * (1 + 1e-9)
