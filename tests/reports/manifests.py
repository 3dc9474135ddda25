"""Manifests of runs, and parts of them, for tests."""

from __future__ import annotations

from typing import Any

from bench_records.manifest import MANIFEST_SCHEMA
from tests.reports.watched import statistics


def run_manifest(*, streaming: bool = True, **replaced: Any) -> dict[str, Any]:
    """The manifest of a finished run of the core model; ``replaced`` holds values for whole keys of it, or further keys."""
    manifest: dict[str, Any] = {
        "schema": MANIFEST_SCHEMA,
        "workload": {"description": "7 prompts of test.json", "dropped_too_long": 0},
        "arrivals": "constant arrivals at 100 requests/s",
        "schedule": {"digest": "0f" * 32, "seed": 42},
        "target": {"model": "tensorrt_llm", "protocol": "grpc", "streaming": streaming},
        "warm_up": {"requests": 0, "failures": []},
        "interrupted": False,
    }
    return manifest | replaced


def asked_load(rate_per_s: float, law: str = "exponential", parameter: float | None = None, **replaced: Any) -> dict[str, Any]:
    """``load`` of an open loop at a rate."""
    asked = {"law": f"{law} arrivals", "unit": "requests", "rate_per_s": rate_per_s, "gap_cv": None, "law_gap_cv": None}
    return {"mode": "open", "asked_arrivals": asked, "law": {"name": law, "parameter": parameter}} | replaced


def counted_by_server(after: int, before: int = 0, ms: float = 1.0) -> dict[str, Any]:
    """``server_statistics`` of the model of ``run_manifest``: its successful requests, and the mean time of each phase."""
    return {
        "server_statistics": {"before": statistics(tensorrt_llm=(before, ms)), "after": statistics(tensorrt_llm=(after, ms))}
    }


def clock_readings(stepped_ms: float = 0.0, slept_ms: float = 0.0) -> dict[str, Any]:
    """``clock`` of a machine whose wall clock was set, or that slept, during the run."""
    before = {"realtime_minus_monotonic_ns": 1_795_306_986_682_515_898, "boottime_minus_monotonic_ns": 32}
    after = {
        "realtime_minus_monotonic_ns": before["realtime_minus_monotonic_ns"] + round(stepped_ms * 1e6),
        "boottime_minus_monotonic_ns": before["boottime_minus_monotonic_ns"] + round(slept_ms * 1e6),
    }
    return {"clock": {"before": before, "after": after}}


def machine_use(others_cores: float, cores: int = 2, seconds: float = 10.0) -> dict[str, Any]:
    """``machine_use`` of a run whose client used 0.2 cores and whose target 0.5."""
    used = {"busy_cores": 0.7 + others_cores, "client_cores": 0.2, "target_cores": 0.5}
    return {"machine_use": {"cores": cores, "seconds": seconds, **used}}


def rate_limit(held_per_s: float | None, failed_per_s: float | None = None) -> dict[str, Any]:
    """The highest rate of a calibration that was held, and the lowest that was not."""
    return {"held_per_s": held_per_s, "failed_per_s": failed_per_s, "why": "some reason"}


def calibration(requests: Any, responses: Any, **replaced: Any) -> dict[str, Any]:
    """The value of ``calibration``; ``requests`` and ``responses`` are the ``rate_limit`` of one worker."""
    spread = {"n": 100, "mean_ms": 0.1, "stdev_ms": 0.05, "size_mean_ms": 0.1, "size_p50_ms": 0.1, "size_p99_ms": 0.3}
    return {
        "made_at": "2026-11-22T01:23:51+00:00",
        "quick": False,
        "transport": "grpc",
        "ttft": spread,
        "icl": spread | {"mean_ms": -0.0001, "stdev_ms": 0.04},
        "e2e": spread,
        "limits": [{"workers": 1, "requests": requests, "responses": responses}],
    } | replaced
