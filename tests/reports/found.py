"""Looking a finding up."""

from __future__ import annotations

from reports.findings.finding import Finding
from reports.run_report import RunReport


def finding_of(report: RunReport, code: str) -> Finding | None:
    """The finding of that code, which a report has once at the most."""
    found = [finding for finding in report.findings if finding.code == code]
    assert len(found) <= 1
    return found[0] if found else None
