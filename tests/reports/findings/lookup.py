"""Lookup of a finding in a report, by its code."""

from __future__ import annotations

from reports.findings.finding import Finding
from reports.run_report import RunReport


def finding_of(report: RunReport, code: str) -> Finding | None:
    """The finding of that code; a report has at most one."""
    findings = [finding for finding in report.findings if finding.code == code]
    assert len(findings) <= 1
    return findings[0] if findings else None


def severity_of(report: RunReport, code: str) -> str | None:
    """The severity of the finding of that code; None without such a finding."""
    finding = finding_of(report, code)
    return None if finding is None else finding.severity.value
