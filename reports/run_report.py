"""One run, read and judged: what every renderer works from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from harness.records.run_folder import RunFolder
from reports.asked_load import load_of
from reports.client import ClientHealth, client_health
from reports.findings import Finding, RunFacts, find, is_valid
from reports.metrics import Metrics, compute_metrics
from reports.phases import Phase, phases
from reports.requests import Requests, from_columns
from reports.server import ServerLoad, server_load
from reports.telemetry import telemetry_of


@dataclass(frozen=True)
class RunReport:
    """A run's manifest, records, numbers and findings."""

    folder: RunFolder
    manifest: dict[str, Any]
    requests: Requests
    metrics: Metrics
    findings: tuple[Finding, ...]
    client: ClientHealth | None = None
    server: ServerLoad | None = None
    phases: tuple[Phase, ...] = ()

    @property
    def valid(self) -> bool:
        return is_valid(self.findings)


def read_run(folder: RunFolder) -> RunReport:
    """Read a run folder and compute everything. Raises RunFolderError when it is not a finished run."""
    manifest = folder.read_manifest()
    folder.check_finished(manifest)
    requests = from_columns(folder.read_requests)
    metrics = compute_metrics(requests, bool(manifest.get("target", {}).get("streaming")), load_of(manifest))
    client = client_health(folder.read_client(), requests)
    server = server_load(telemetry_of(folder.read_server()), requests, manifest)
    server_phases = phases(requests, server, str(manifest.get("target", {}).get("model", "")))
    findings = find(RunFacts(requests, metrics, manifest, client, server, server_phases))
    return RunReport(folder, manifest, requests, metrics, findings, client, server, server_phases)
