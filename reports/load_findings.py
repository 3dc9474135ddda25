"""Findings about the load: how requests came, whether the target kept up with them, and whether it settled."""

from __future__ import annotations

from collections.abc import Callable

from reports.arrival_law import check_arrivals, law_of
from reports.finding import Finding, RunFacts, Severity
from reports.load import queue_growth

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
    law = law_of(facts.manifest)
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


LOAD_CHECKS: tuple[Callable[[RunFacts], Finding | None], ...] = (_queue_growing, _not_steady, _arrivals_not_as_asked)
