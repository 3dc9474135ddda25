"""Findings about the calibration of the client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.client_calibration import client_calibration, peak_rates


@dataclass(frozen=True)
class BeyondCalibration(Finding):
    requests_per_s: float
    calibrated_requests_per_s: float | None
    responses_per_s: float
    calibrated_responses_per_s: float | None
    workers: int

    code = "beyond_calibration"
    severities = (Severity.WARNING,)
    when = (
        "in its busiest seconds the client sent more requests or received more responses than it sustained when "
        "`bench calibrate` measured it on the same machine"
    )
    advices = (
        "The client was not calibrated at this rate on this machine. Use more --workers or a lower rate, or allow for the "
        "client's own delays when you read the latencies.",
    )
    briefs = ("Beyond the client's calibration: more --workers or a lower rate",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        calibration = client_calibration(facts.manifest)
        if calibration is None:
            return None
        peak = peak_rates(facts.sent_requests)
        finding = cls(
            requests_per_s=peak.requests_per_s,
            calibrated_requests_per_s=calibration.requests_per_s,
            responses_per_s=peak.responses_per_s,
            calibrated_responses_per_s=calibration.responses_per_s,
            workers=calibration.workers,
        )
        return finding if finding._exceeded() else None

    def _exceeded(self) -> list[tuple[str, float, float]]:
        """Name, peak and calibrated limit of each rate that was exceeded."""
        rates = (
            ("requests", self.requests_per_s, self.calibrated_requests_per_s),
            ("responses", self.responses_per_s, self.calibrated_responses_per_s),
        )
        return [(name, rate, limit) for name, rate, limit in rates if limit is not None and rate > limit]

    def _sentence(self) -> str:
        rates = [f"{rate:,.0f} {name}/s where {limit:,.0f} are calibrated" for name, rate, limit in self._exceeded()]
        return f"In its busiest seconds the client handled {' and '.join(rates)} (with {workers_text(self.workers)})."


def workers_text(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"
