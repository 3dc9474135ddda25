"""A finding: one statement about whether a run can be believed, with its severity, evidence and advice."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import ClassVar

from bench_records.manifest import Manifest
from reports.metrics.client_health import ClientHealth, WakeUps
from reports.metrics.configuration import ConfiguredLoad, ConfiguredTarget, configured_load, configured_target
from reports.metrics.gpu_use import GpuUse
from reports.metrics.metric import Anchored
from reports.metrics.phases import Phase
from reports.metrics.requests import Requests
from reports.metrics.run_metrics import Metrics
from reports.metrics.server_load import ServerLoad
from reports.metrics.target_numbers import TargetNumbers
from reports.render.plain_text import printable


class Severity(StrEnum):
    """How much a finding takes from a run's credibility."""

    INVALID = "invalid"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class RunFacts:
    """Everything that the checks of a run read. ``requests`` are the load's; ``sent_requests`` has the probes, too."""

    requests: Requests
    metrics: Metrics
    manifest: Manifest
    client: ClientHealth | None = None
    server: ServerLoad | None = None
    phases: tuple[Phase, ...] = ()
    all_requests: Requests | None = None
    wake_ups: WakeUps | None = None
    gpus: GpuUse | None = None
    targets: tuple[TargetNumbers, ...] = ()

    @property
    def sent_requests(self) -> Requests:
        """What the client sent and the server got: the load, and the probes beside it."""
        return self.requests if self.all_requests is None else self.all_requests

    @property
    def final_metrics(self) -> ServerLoad | None:
        """The server's own numbers where its metrics were read after the last answer; before, its counters lack requests."""
        return self.server if self.server is not None and self.server.until_end else None

    @property
    def load(self) -> ConfiguredLoad:
        return configured_load(self.manifest)

    @property
    def target(self) -> ConfiguredTarget:
        return configured_target(self.manifest)

    @property
    def latency(self) -> Anchored:
        """The latency that delays are compared with: TTFT of a streamed run, else E2E latency."""
        return self.metrics.ttft_ms or self.metrics.e2e_ms

    @property
    def latency_from_sent_p50_ms(self) -> float | None:
        """The median of ``latency`` from the send; None where it is unknown or falls among failures."""
        return None if self.latency.sent is None else self.latency.sent.p50

    @property
    def interrupted(self) -> bool:
        return bool(self.manifest.interrupted)


@dataclass(frozen=True)
class Finding(ABC):
    """A kind of finding is a subclass. Its fields are the evidence, by their names in ``summary.json``.

    ``code`` identifies the kind in every output. ``severities`` and ``advices`` hold each value that its findings can have, the
    usual one first, and ``briefs`` the finding and its remedy in one line of a terminal, for each of ``advices``. ``when`` is
    the condition with its thresholds, in Markdown, for the documentation.
    """

    code: ClassVar[str]
    severities: ClassVar[tuple[Severity, ...]]
    when: ClassVar[str]
    advices: ClassVar[tuple[str, ...]]
    briefs: ClassVar[tuple[str, ...]]

    @classmethod
    @abstractmethod
    def check(cls, facts: RunFacts) -> Finding | None:
        """The finding of this kind in a run; None where the condition does not hold or cannot be evaluated."""

    @property
    def severity(self) -> Severity:
        """One of ``severities``. Kinds with several override it."""
        return self.severities[0]

    @property
    def advice(self) -> str:
        """The remedy in one or two sentences; one of ``advices``. Kinds with several override it."""
        return self.advices[0]

    @property
    def brief(self) -> str:
        """The finding and its remedy in one line; that of ``briefs`` which belongs to ``advice``."""
        return self.briefs[self.advices.index(self.advice)]

    @property
    def evidence(self) -> dict[str, object]:
        """The values that the finding rests on, as JSON; None is unknown."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def sentence(self) -> str:
        """The evidence in words, free of control characters: some of it is text from outside, such as a server's errors."""
        return printable(self._sentence())

    @abstractmethod
    def _sentence(self) -> str: ...
