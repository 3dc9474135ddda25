"""One run with its numbers and findings: the object that every renderer reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench_records.manifest import Document, DrawnSchedule, Manifest, Mixture
from bench_records.run_folder import RunFolder, RunFolderError, unreadable
from reports.criteria import Criterion, Requirement, parse_fail_if, parse_slo
from reports.findings.checks import Validity, find, validity
from reports.findings.finding import Finding, RunFacts
from reports.gates.gate import Gate, JudgedRun
from reports.gates.judge import judge
from reports.metrics.asked_arrivals import AskedArrivals, asked_arrivals
from reports.metrics.client_health import ClientHealth, client_health, wake_ups
from reports.metrics.configuration import ConfiguredTarget, configured_load, configured_target
from reports.metrics.distribution import workers_elsewhere
from reports.metrics.goodput import Objective
from reports.metrics.gpu_use import GpuUse, gpu_use
from reports.metrics.host_energy import HostEnergy, host_energy
from reports.metrics.length_laws import LengthLaw, input_law, output_law
from reports.metrics.lengths import Lengths, input_lengths, output_lengths
from reports.metrics.model_statistics import model_work
from reports.metrics.phases import Phase, phases
from reports.metrics.prefix_cache import PrefixCache, prefix_cache
from reports.metrics.requests import Requests, from_columns
from reports.metrics.run_metrics import Metrics, compute_metrics
from reports.metrics.server_load import ServerLoad
from reports.metrics.server_loads import server_loads
from reports.metrics.server_series import Telemetry, telemetry_of
from reports.metrics.sound_records import check_parents
from reports.metrics.stages import Stage, stages
from reports.metrics.target_numbers import TargetNumbers, target_numbers
from reports.metrics.traffic_classes import ClassNumbers, Judged, traffic_classes


@dataclass(frozen=True)
class RunReport:
    """A run's manifest, records, numbers and findings. ``all_requests`` are those of the load and the probes beside it.

    ``document`` is the manifest with all its keys, as the file has them, to be shown and compared. ``targets`` and ``servers``,
    which are by the URLs of their pages of metrics, are empty where there is one; ``server`` has what can be said of all.
    """

    folder: RunFolder
    document: Document
    manifest: Manifest
    all_requests: Requests
    metrics: Metrics
    findings: tuple[Finding, ...]
    client: ClientHealth | None = None
    server: ServerLoad | None = None
    phases: tuple[Phase, ...] = ()
    telemetry: Telemetry | None = None
    gates: tuple[Gate, ...] = ()
    classes: tuple[ClassNumbers, ...] = ()
    gpus: GpuUse | None = None
    targets: tuple[TargetNumbers, ...] = ()
    servers: Mapping[str, ServerLoad] = field(default_factory=dict)
    host_energy: HostEnergy | None = None

    @property
    def schedule(self) -> DrawnSchedule:
        assert self.manifest.schedule is not None, "read_run refuses a run without one"
        return self.manifest.schedule

    @property
    def requests(self) -> Requests:
        """The load's requests, without probes. Every number covers these unless it says otherwise."""
        return self.all_requests.load

    @property
    def judged(self) -> JudgedRun:
        """The run as requirements judge it."""
        return JudgedRun(self.requests, self.metrics, configured_load(self.manifest))

    @property
    def probe(self) -> ClassNumbers | None:
        """The numbers of the probes; None where there are none."""
        return next((numbers for numbers in self.classes if numbers.is_probe), None)

    @property
    def target(self) -> ConfiguredTarget:
        return configured_target(self.manifest)

    @property
    def input_lengths(self) -> Lengths | None:
        return input_lengths(self.requests, self.target.template_tokens)

    @property
    def prefix_cache(self) -> PrefixCache:
        return prefix_cache(self.manifest, self.requests, self.server)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return stages(self.requests, self.manifest, None if self.server is None else self.server.batch_limit)

    @property
    def asked_arrivals(self) -> tuple[AskedArrivals, ...]:
        return asked_arrivals(self.requests, self.manifest)

    @property
    def output_lengths(self) -> Lengths | None:
        return output_lengths(self.requests)

    @property
    def input_law(self) -> LengthLaw:
        return input_law(self.requests, self.manifest)

    @property
    def output_law(self) -> LengthLaw:
        return output_law(self.requests, self.manifest)

    @property
    def validity(self) -> Validity:
        return validity(self.findings)

    @property
    def valid(self) -> bool:
        return self.validity is Validity.VALID


def read_run(folder: RunFolder, criteria: Sequence[Criterion] | None = None) -> RunReport:
    """Read a run folder and compute everything, by ``criteria``, or by those of the run's own options (None).

    Raises RunFolderError for a folder that is no finished run.
    """
    document, manifest = folder.read_document()
    folder.check_finished(manifest)
    chosen = configured_criteria(folder, manifest) if criteria is None else criteria
    objectives = [criterion for criterion in chosen if isinstance(criterion, Objective)]
    every = _requests(folder)
    if manifest.schedule is None:
        raise RunFolderError(f"{folder.manifest} names no schedule")
    requests = every.load
    target = configured_target(manifest)
    watched = folder.read_client()
    client = client_health(watched, every, machine_is_its_own=not workers_elsewhere(manifest))
    telemetry = _telemetry(folder)
    served = None if telemetry is None else telemetry.served
    loads = server_loads(served, _pages(manifest), every, target, model_work(manifest))
    server = loads.total
    batch_limit = None if server is None else server.batch_limit
    metrics = compute_metrics(requests, target.streaming, configured_load(manifest), objectives, batch_limit)
    server_phases = phases(every, server, target)
    window = metrics.windows.steady or metrics.windows.whole
    gpus = None if telemetry is None else gpu_use(telemetry, window)
    targets = target_numbers(requests, manifest, loads.each, target.streaming, metrics.full_batch)
    findings = find(
        RunFacts(requests, metrics, manifest, client, server, server_phases, every, wake_ups(watched), gpus, targets)
    )
    judged = Judged(objectives, class_objectives(folder, manifest))
    classes = traffic_classes(every, judged, target.streaming, metrics.full_batch)
    requirements = [criterion for criterion in chosen if isinstance(criterion, Requirement)]
    gates = judge(requirements, JudgedRun(requests, metrics, configured_load(manifest)), validity(findings))
    return RunReport(
        folder,
        document,
        manifest,
        every,
        metrics,
        findings,
        client,
        server,
        server_phases,
        telemetry,
        gates,
        classes,
        gpus,
        targets,
        loads.each,
        None if telemetry is None else host_energy(telemetry, window),
    )


def _pages(manifest: Manifest) -> int | None:
    """The number of pages of metrics that the run was to read; None where that is unknown."""
    if manifest.telemetry is None:
        return None
    return 1 if manifest.telemetry.pages is None else len(manifest.telemetry.pages)


def _requests(folder: RunFolder) -> Requests:
    try:
        requests = from_columns(folder.read_requests)
        check_parents(requests.index, requests.parent)
    except ValueError as error:
        raise unreadable(folder.requests, error) from error
    return requests


def _telemetry(folder: RunFolder) -> Telemetry | None:
    try:
        return telemetry_of(folder.read_server())
    except (ValueError, RecursionError) as error:
        raise unreadable(folder.server, error) from error


def class_objectives(folder: RunFolder, manifest: Manifest) -> dict[str, list[Objective]]:
    """The objectives of classes that have their own. Raises RunFolderError."""
    found: dict[str, list[Objective]] = {}
    for name, texts in ((manifest.mixture or Mixture()).objectives or {}).items():
        try:
            criteria = [parse_slo(text) for text in texts]
        except ValueError as error:
            raise RunFolderError(f"{folder.manifest}, mixture.objectives.{name}: {error}") from error
        found[name] = [criterion for criterion in criteria if isinstance(criterion, Objective)]
    return found


def configured_criteria(folder: RunFolder, manifest: Manifest) -> tuple[Criterion, ...]:
    """The criteria of a run, of --slo and of --fail_if."""
    slo, fail_if = manifest.criteria.slo, manifest.criteria.fail_if
    found: list[Criterion] = []
    for name, texts, parse in (("slo", slo, parse_slo), ("fail_if", fail_if, parse_fail_if)):
        try:
            found += map(parse, texts or ())
        except ValueError as error:
            raise RunFolderError(f"{folder.manifest}, criteria.{name}: {error}") from error
    return tuple(found)
