"""One run with its numbers and findings: the object that every renderer reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.records.run_folder import RunFolder, RunFolderError
from reports.findings.checks import find, is_valid
from reports.findings.finding import Finding, RunFacts
from reports.metrics.client_health import ClientHealth, client_health
from reports.metrics.configuration import ConfiguredTarget, configured_load, configured_target
from reports.metrics.goodput import Objective, parse_objective
from reports.metrics.lengths import Lengths, input_lengths, output_lengths
from reports.metrics.model_statistics import model_work
from reports.metrics.phases import Phase, phases
from reports.metrics.requests import Requests, from_columns
from reports.metrics.run_metrics import Metrics, compute_metrics
from reports.metrics.server_load import ServerLoad, server_load
from reports.metrics.server_series import Telemetry, telemetry_of


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
    telemetry: Telemetry | None = None

    @property
    def target(self) -> ConfiguredTarget:
        return configured_target(self.manifest)

    @property
    def input_lengths(self) -> Lengths | None:
        return input_lengths(self.requests, self.target.template_tokens)

    @property
    def output_lengths(self) -> Lengths | None:
        return output_lengths(self.requests)

    @property
    def valid(self) -> bool:
        return is_valid(self.findings)


def read_run(folder: RunFolder, objectives: Sequence[Objective] | None = None) -> RunReport:
    """Read a run folder and compute everything, with ``objectives``, or with those of the run's own options (None).

    Raises RunFolderError for a folder that is no finished run.
    """
    manifest = folder.read_manifest()
    folder.check_finished(manifest)
    chosen = _configured_objectives(folder, manifest) if objectives is None else objectives
    requests = from_columns(folder.read_requests)
    target = configured_target(manifest)
    metrics = compute_metrics(requests, target.streaming, configured_load(manifest), chosen)
    client = client_health(folder.read_client(), requests)
    telemetry = telemetry_of(folder.read_server())
    server = server_load(telemetry, requests, target, model_work(manifest))
    server_phases = phases(requests, server, target.model)
    findings = find(RunFacts(requests, metrics, manifest, client, server, server_phases))
    return RunReport(folder, manifest, requests, metrics, findings, client, server, server_phases, telemetry)


def _configured_objectives(folder: RunFolder, manifest: dict[str, Any]) -> tuple[Objective, ...]:
    """The objectives that a manifest's options name."""
    options = manifest.get("options")
    texts = options.get("slo") if isinstance(options, dict) else None
    try:
        return tuple(parse_objective(str(text)) for text in texts or ())
    except ValueError as error:
        raise RunFolderError(f"{folder.manifest}, options.slo: {error}") from error
