"""A finding: one statement about whether a run can be believed. Data only; renderers turn it into prose."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reports.metrics.client_health import ClientHealth
from reports.metrics.configuration import ConfiguredLoad, configured_load
from reports.metrics.phases import Phase
from reports.metrics.requests import Requests
from reports.metrics.run_metrics import Metrics
from reports.metrics.server_load import ServerLoad


class Severity(StrEnum):
    """How much a finding takes from a run's credibility."""

    INVALID = "invalid"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Finding:
    """``evidence`` holds the numbers that the finding rests on; ``advice`` is one sentence that says what to do."""

    code: str
    severity: Severity
    evidence: dict[str, Any]
    advice: str


@dataclass(frozen=True)
class RunFacts:
    """What the checks look at."""

    requests: Requests
    metrics: Metrics
    manifest: dict[str, Any]
    client: ClientHealth | None = None
    server: ServerLoad | None = None
    phases: tuple[Phase, ...] = ()

    @property
    def load(self) -> ConfiguredLoad:
        return configured_load(self.manifest)
