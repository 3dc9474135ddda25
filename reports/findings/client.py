"""Findings about the client itself: whether it sent when it should have, and its time stamps can be believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.client_health import ClientHealth

# How late a stamp may be, beside the median latency: at p99, and on average.
_TAIL_FLOOR_MS = 2.0
_TAIL_SHARE_WARNING = 0.10
_TAIL_SHARE_INVALID = 0.50
_SAMPLES_FOR_TAIL = 100
_MEAN_FLOOR_MS = 1.0
_MEAN_SHARE_INVALID = 0.10
_SAMPLES_FOR_MEAN = 20
_GAPS_SHARE_WARNING = 0.50  # at p99, beside p99 of the gaps between responses
_STEAL_SHARE = 0.05  # of a core, above which the hypervisor is worth a word
_BUSY_SHARE = 0.80
_CLOCK_TOLERANCE_NS = 10_000_000


def _client_saturated(facts: RunFacts) -> Finding | None:
    """Sends are as late as the loop that makes them; so is the time of an arrival that the kernel did not stamp."""
    client = facts.client
    latency = facts.metrics.ttft_ms or facts.metrics.e2e_ms
    if client is None or latency.sent is None or latency.sent.p50 is None:
        return None
    severity = _severity(client, latency.sent.p50) or _severity_of_gaps(facts, client)
    if severity is None:
        return None
    evidence = {
        "lag_p99_ms": None if client.lag is None else client.lag.p99_ms,
        "lag_mean_ms": None if client.lag is None else client.lag.mean_ms,
        "lag_max_ms": None if client.lag is None else client.lag.max_ms,
        "wake_ups": 0 if client.lag is None else client.lag.samples,
        "p50_latency_from_sent_ms": latency.sent.p50,
        "p99_icl_ms": None if facts.metrics.icl_ms is None else facts.metrics.icl_ms.p99,
        "cpu_share": None if client.busiest is None else client.busiest.cpu_share,
        "run_queue_wait_share": client.run_queue_wait_share,
        "run_queue_wait_ms": client.wait_ms,
        "gc_longest_ms": client.gc_longest_ms,
        "steal_cores": client.steal_cores,
        "unstamped_reads": (facts.manifest.get("connections") or {}).get("unstamped_reads"),
    }
    return Finding("client_saturated", severity, evidence, _remedy(client))


def _severity(client: ClientHealth, latency_ms: float) -> Severity | None:
    """By tail and mean of the lag; in a run too short for those, by the mean wait for a core before each turn."""
    lag = client.lag
    tail_ms = lag.p99_ms if lag is not None and lag.samples >= _SAMPLES_FOR_TAIL else 0.0
    mean_ms = lag.mean_ms if lag is not None and lag.samples >= _SAMPLES_FOR_MEAN else client.wait_ms or 0.0
    if tail_ms >= _TAIL_FLOOR_MS and tail_ms > _TAIL_SHARE_INVALID * latency_ms:
        return Severity.INVALID
    if mean_ms >= _MEAN_FLOOR_MS and mean_ms > _MEAN_SHARE_INVALID * latency_ms:
        return Severity.INVALID
    return Severity.WARNING if tail_ms >= max(_TAIL_FLOOR_MS, _TAIL_SHARE_WARNING * latency_ms) else None


def _severity_of_gaps(facts: RunFacts, client: ClientHealth) -> Severity | None:
    """Where latencies are long, the gaps between tokens may still be shorter than the client can tell."""
    gaps, lag = facts.metrics.icl_ms, client.lag
    if gaps is None or gaps.p99 is None or lag is None or lag.samples < _SAMPLES_FOR_TAIL:
        return None
    return Severity.WARNING if lag.p99_ms >= max(_TAIL_FLOOR_MS, _GAPS_SHARE_WARNING * gaps.p99) else None


def _remedy(client: ClientHealth) -> str:
    lag_ms = 0.0 if client.lag is None else client.lag.max_ms
    if client.steal_cores is not None and client.steal_cores > _STEAL_SHARE:
        return "The hypervisor gave the client's cores to others (steal); measure from a machine of its own."
    if client.gc_longest_ms is not None and client.gc_longest_ms > lag_ms / 2:
        return "Garbage collections stopped the client; use more --workers, so that each has less to collect."
    if client.busiest is not None and client.busiest.cpu_share > _BUSY_SHARE:
        return "A worker used up its core; use more --workers on more cores, or a lower rate."
    return "Other processes had the client's cores; give it cores of its own, away from the server and everything else."


def _clock_stepped(facts: RunFacts) -> Finding | None:
    clock: dict[str, Any] = facts.manifest.get("clock") or {}
    before, after = clock.get("before"), clock.get("after")
    if not before or not after:
        return None
    stepped_ns = after["realtime_minus_monotonic_ns"] - before["realtime_minus_monotonic_ns"]
    slept_ns = after["boottime_minus_monotonic_ns"] - before["boottime_minus_monotonic_ns"]
    slept = abs(slept_ns) > _CLOCK_TOLERANCE_NS
    if not slept and abs(stepped_ns) <= _CLOCK_TOLERANCE_NS:
        return None
    return Finding(
        "clock_stepped",
        Severity.INVALID if slept else Severity.WARNING,
        {"slept_s": slept_ns / 1e9, "stepped_s": stepped_ns / 1e9},
        "The machine slept during the run, and its clock did not count that; keep it awake, and measure again."
        if slept
        else "The numbers here do not use that clock; times that the server wrote cannot be laid beside them, though.",
    )


def _connection_limit_reached(facts: RunFacts) -> Finding | None:
    connections: dict[str, Any] = facts.manifest.get("connections") or {}
    waited = connections.get("limit_reached") or 0
    if not waited:
        return None
    return Finding(
        "connection_limit_reached",
        Severity.WARNING,
        {"requests": waited} | {key: value for key, value in connections.items() if key != "limit_reached"},
        "Their latencies hold that wait, which the model is not to blame for: allow more streams or connections.",
    )


CLIENT_CHECKS: tuple[Callable[[RunFacts], Finding | None], ...] = (
    _client_saturated,
    _clock_stepped,
    _connection_limit_reached,
)
