"""An engine's latencies by its own clock: the histograms on its metrics page, as they grew during a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reports.metrics.server_pages.listed import names_of, with_model_label
from reports.metrics.server_series import Telemetry

_LATENCIES = ("ttft", "tpot", "itl", "e2e")


@dataclass(frozen=True)
class Between:
    """A value in ms that lies above ``low_ms`` and at most at ``high_ms``: the bounds of a bucket; None is no upper bound."""

    low_ms: float
    high_ms: float | None


@dataclass(frozen=True)
class EngineLatency:
    """``metric`` is the catalogue's key without its unit. ``values`` were added during the run, of requests or of tokens.

    ``p50`` and ``p99`` are the buckets with the values of rank ⌈q·n⌉; None where the server exports no buckets, or where
    these do not add up to its count.
    """

    metric: str
    values: float
    mean_ms: float
    p50: Between | None
    p99: Between | None


def engine_latencies(telemetry: Telemetry, labels: dict[str, str]) -> tuple[EngineLatency, ...]:
    """The latencies with at least one value. ``labels`` select the series of a server with several models (Triton)."""
    found = (_latency(telemetry, metric, names_of(metric), labels) for metric in _LATENCIES)
    return tuple(latency for latency in found if latency is not None)


def _latency(telemetry: Telemetry, metric: str, names: tuple[str, ...], core: dict[str, str]) -> EngineLatency | None:
    for name in names:
        labels = core if with_model_label(name) else {}
        count, total_s = (telemetry.increase(f"{name}_{part}", **labels) for part in ("count", "sum"))
        if count and total_s is not None:
            buckets = _buckets(telemetry, name, labels)
            p50, p99 = (_percentile(buckets, q, count) for q in (0.50, 0.99))
            return EngineLatency(metric, count, total_s / count * 1e3, p50, p99)
    return None


def _buckets(telemetry: Telemetry, name: str, labels: dict[str, str]) -> list[tuple[float, float]]:
    """Upper bounds in s, ascending, each with the number of values up to it; empty where one is not known."""
    bounds = {series.labels.get("le", "") for series in telemetry.select(f"{name}_bucket", **labels)}
    counts: list[tuple[float, float]] = []
    for bound in bounds:
        increase = telemetry.increase(f"{name}_bucket", **labels, le=bound)
        try:
            upper_s = float(bound)
        except ValueError:
            return []
        if increase is None:
            return []
        counts.append((upper_s, increase))
    return sorted(counts)


def _percentile(buckets: list[tuple[float, float]], q: float, count: float) -> Between | None:
    if not buckets or buckets[-1] != (math.inf, count):
        return None
    rank = math.ceil(q * count)
    low_s = 0.0
    for upper_s, up_to in buckets:
        if up_to >= rank:
            return Between(low_s * 1e3, None if math.isinf(upper_s) else upper_s * 1e3)
        low_s = upper_s
    return None
