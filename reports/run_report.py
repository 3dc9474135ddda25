"""One run, read and judged: what every renderer works from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.records.run_folder import RunFolder
from reports.asked_load import load_of
from reports.findings import Finding, RunFacts, find, is_valid
from reports.metrics import Metrics, compute_metrics
from reports.requests import Requests, from_columns


@dataclass(frozen=True)
class RunReport:
    """A run's manifest, records, numbers and findings."""

    folder: RunFolder
    manifest: dict[str, Any]
    requests: Requests
    metrics: Metrics
    findings: tuple[Finding, ...]

    @property
    def valid(self) -> bool:
        return is_valid(self.findings)


def read_run(folder: RunFolder) -> RunReport:
    """Read a run folder and compute everything. Raises RunFolderError when it is not a finished run."""
    manifest = folder.read_manifest()
    requests = from_columns(folder.read_requests)
    streaming = bool(manifest.get("target", {}).get("streaming"))
    metrics = compute_metrics(requests, streaming, load_of(manifest))
    findings = find(RunFacts(requests, metrics, manifest))
    return RunReport(folder, manifest, requests, metrics, findings)
