"""Findings about the client's own calibration."""

from __future__ import annotations

from collections.abc import Callable

from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.client_calibration import client_calibration, peak_rates


def _beyond_calibration(facts: RunFacts) -> Finding | None:
    calibration = client_calibration(facts.manifest)
    if calibration is None:
        return None
    peak = peak_rates(facts.requests)
    limits = ((peak.requests_per_s, calibration.requests_per_s), (peak.responses_per_s, calibration.responses_per_s))
    if not any(limit is not None and rate > limit for rate, limit in limits):
        return None
    return Finding(
        "beyond_calibration",
        Severity.WARNING,
        {
            "requests_per_s": peak.requests_per_s,
            "calibrated_requests_per_s": calibration.requests_per_s,
            "responses_per_s": peak.responses_per_s,
            "calibrated_responses_per_s": calibration.responses_per_s,
            "workers": calibration.workers,
        },
        "So fast, this client was not seen to be accurate on this machine. Use more --workers or a lower rate, or read the "
        "latencies with its own delays in mind.",
    )


CALIBRATION_CHECKS: tuple[Callable[[RunFacts], Finding | None], ...] = (_beyond_calibration,)
