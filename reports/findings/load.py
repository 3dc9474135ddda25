"""Findings about the load: how requests came, whether the target kept up with them, and whether it settled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.arrival_law import check_arrivals
from reports.metrics.configuration import configured_law
from reports.metrics.in_flight import queue_growth
from reports.metrics.latency import ceiling_waits_ms
from reports.statistics.percentiles import nearest_rank

_WAIT_FLOOR_MS = 2.0  # a shorter p99 of the waits at the ceiling,
_WAIT_SHARE = 0.1  # or one below this share of the median latency, changes no conclusion
_MATERIAL_DISTANCE = 0.02  # a smaller Kolmogorov-Smirnov distance no target would notice


def _not_steady(facts: RunFacts) -> Finding | None:
    windows = facts.metrics.windows
    if windows.steady is not None or windows.too_few_to_tell or facts.manifest.get("interrupted"):
        return None
    return Finding(
        "not_steady",
        Severity.WARNING,
        {"reason": windows.not_steady},
        "The numbers depend on how long the run was; make it longer, or the load lower, before you compare.",
    )


def _queue_growing(facts: RunFacts) -> Finding | None:
    if facts.load.closed:  # its users wait for their answers: there is no queue that could grow without bound
        return None
    growth = queue_growth(facts.requests)
    if growth is None:
        return None
    return Finding(
        "queue_growing",
        Severity.WARNING,
        {
            "in_system_before": growth.in_system_before,
            "in_system_after": growth.in_system_after,
            "arrivals": growth.arrivals,
            "share_left_behind": growth.share_left_behind,
        },
        "The target is overloaded: latencies grow with the run's length. Lower --request_rate, or read the throughput alone.",
    )


def _arrivals_not_as_asked(facts: RunFacts) -> Finding | None:
    law = configured_law(facts.manifest)
    test = None if law is None else check_arrivals(facts.requests, law)
    if test is None or not test.rejected:
        return None
    evidence = {
        "law": test.law.name,
        "rate_per_s": test.law.rate_per_s,
        "gaps": test.gaps,
        "statistic": test.statistic,
        "p_value": test.p_value,
        "sent_dispersion": facts.metrics.sent_dispersion,
    }
    material = test.p_value is None or test.statistic >= _MATERIAL_DISTANCE
    return Finding(
        "arrivals_not_as_asked",
        Severity.WARNING if material else Severity.NOTE,
        evidence,
        "See the schedule slip. One honest run in a hundred is rejected by chance: if another --seed is not, it was chance."
        if material
        else "The difference is real but too small for a target to notice.",
    )


def _waited_at_ceiling(facts: RunFacts) -> Finding | None:
    """Whether the tail of the waits at --max_concurrency is worth a word beside the latencies."""
    waits_ms = np.sort(ceiling_waits_ms(facts.requests))
    latency = facts.metrics.ttft_ms or facts.metrics.e2e_ms
    if not waits_ms.size or latency.sent is None or latency.scheduled is None:
        return None
    p99_wait_ms = nearest_rank(waits_ms, 0.99)
    if p99_wait_ms < max(_WAIT_FLOOR_MS, _WAIT_SHARE * (latency.sent.p50 or 0.0)):
        return None
    waited = int(np.count_nonzero(waits_ms))
    burst = facts.metrics.offered_rate is None
    return Finding(
        "waited_at_ceiling",
        Severity.NOTE if burst else Severity.WARNING,
        {
            "max_concurrency": facts.load.max_concurrency,
            "waited": waited,
            "share": waited / waits_ms.size,
            "p99_wait_ms": p99_wait_ms,
            "latency": "E2E latency" if facts.metrics.ttft_ms is None else "TTFT",
            "p99_from_schedule_ms": latency.scheduled.p99,
            "p99_from_send_ms": latency.sent.p99,
            "offered_rate": facts.metrics.offered_rate,
            "achieved_rate": facts.metrics.achieved_rate,
        },
        "Everything was due at the start, so the latencies from the schedule tell how long the whole took."
        if burst
        else "Users who come at this rate feel the latency from the schedule, and the target was asked for less. Raise "
        "--max_concurrency to see what it does with all of them, or lower --request_rate.",
    )


def _requests_ran_out(facts: RunFacts) -> Finding | None:
    if not facts.load.ran_out:
        return None
    sent_ns = facts.requests.sent_ns[~np.isnan(facts.requests.sent_ns)]
    return Finding(
        "requests_ran_out",
        Severity.WARNING,
        {
            "prepared": facts.load.prepared,
            "duration_s": facts.load.duration_s,
            "last_sent_s": float(sent_ns.max() / 1e9) if sent_ns.size else 0.0,
        },
        "Nothing is sent twice: give more with --num_requests or a longer dataset, or a shorter --duration.",
    )


LOAD_CHECKS: tuple[Callable[[RunFacts], Finding | None], ...] = (
    _waited_at_ceiling,
    _requests_ran_out,
    _queue_growing,
    _not_steady,
    _arrivals_not_as_asked,
)
