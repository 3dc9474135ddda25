"""The points of a sweep, one for each configuration, and its Pareto front."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench_records.experiment import Experiment, ExperimentFolder, PlannedArm, PlannedRun
from bench_records.run_folder import RunFolderError
from reports.criteria import HeldRequirement
from reports.findings.load import QueueGrowing
from reports.gates.gate import Gate, Status
from reports.gates.judge import judge_together
from reports.metrics.catalogue import E2E, GOODPUT, OUTPUT_TOKEN_THROUGHPUT, REQUEST_THROUGHPUT, TTFT
from reports.metrics.estimates import of_percentile, over_runs
from reports.metrics.goodput import Goodput, Objective
from reports.metrics.run_metrics import Metrics
from reports.run_report import RunReport, read_run
from reports.statistics.estimate import UNKNOWN, Estimate
from reports.statistics.percentiles import Distribution
from reports.sweep.loads import AtLoad, at_load, shows_steady_queue

QUEUE_GROWING = QueueGrowing.code
Settings = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class SweepRun:
    """One recorded run of a point: its folder within the sweep's, whether it has a page, and the command that repeats it."""

    folder: str
    has_page: bool
    valid: bool
    command: str


@dataclass(frozen=True)
class SweepPoint:
    """One configuration and its runs. Numbers are means over its runs; None where a run lacks the number.

    ``settings`` are the (option, value) pairs that the sweep varied. Rates are per second; ``latency_*`` are in ms, of the
    metric ``Sweep.latency``, from the schedule. A point is ``valid`` if all its runs are. ``goodput`` and ``attainment`` use
    the ``objectives`` of --slo, ``gates`` judge all runs together.
    """

    name: str
    settings: Settings
    runs: tuple[SweepRun, ...]
    offered_rate: float | None
    request_throughput: Estimate
    output_token_throughput: Estimate
    latency_p50_ms: Estimate
    latency_p99_ms: Estimate
    e2e_p99_ms: Estimate
    goodput: Estimate
    attainment: float | None
    gates: tuple[Gate, ...]
    failed: int
    findings: tuple[str, ...]
    objectives: tuple[Objective, ...] = ()
    at_loads: tuple[AtLoad, ...] = ()  # the runs that show whether limits hold at a load
    steady_queue: bool = True  # whether its runs show that the target keeps up
    can_fail: bool = True  # whether anything was to hold: a limit, or a queue that users do not bound

    @property
    def held(self) -> bool | None:
        """Whether the target held this point: the queue was steady, and every gate passed; None where a gate is undecided,
        or a run is not valid, the runs are too short to show that the target keeps up, or nothing was to hold.
        """
        statuses = {gate.status for gate in self.gates}
        if QUEUE_GROWING in self.findings or Status.FAILED in statuses:
            return False
        is_known = self.valid and self.steady_queue and self.can_fail
        return None if not is_known or Status.UNDECIDED in statuses else True

    @property
    def valid(self) -> bool:
        return all(run.valid for run in self.runs)

    @property
    def estimates(self) -> Mapping[str, Estimate]:
        """The numbers with an interval, by their names in JSON and CSV."""
        return {
            REQUEST_THROUGHPUT.key: self.request_throughput,
            OUTPUT_TOKEN_THROUGHPUT.key: self.output_token_throughput,
            "latency_p50_ms": self.latency_p50_ms,
            "latency_p99_ms": self.latency_p99_ms,
            f"{E2E.name}_p99_ms": self.e2e_p99_ms,
            GOODPUT.key: self.goodput,
        }


@dataclass(frozen=True)
class Sweep:
    """All recorded points, in planned order. ``latency`` is the label of the metric of the points' latencies.

    ``measured`` is the measuring verb with the options that all runs share; ``planned`` counts the planned runs.
    """

    measured: str
    planned: int
    latency: str
    points: tuple[SweepPoint, ...]
    front: tuple[int, ...]  # positions of the points on the Pareto front, by rising throughput
    required: tuple[HeldRequirement, ...] = ()  # of --fail_if

    @property
    def axes(self) -> tuple[str, ...]:
        """The varied options, in the order of the command line."""
        return tuple(dict.fromkeys(name for point in self.points for name, _ in point.settings))

    @property
    def recorded(self) -> int:
        """The number of recorded runs."""
        return sum(len(point.runs) for point in self.points)


@dataclass(frozen=True, slots=True)
class _Measured:
    """The numbers of a run that its point needs, without its records, since a sweep has many runs."""

    run: SweepRun
    streamed: bool
    offered_rate: float | None
    request_throughput: Estimate
    output_token_throughput: Estimate
    ttft_ms: Distribution | None
    e2e_ms: Distribution | None
    goodput: Goodput | None
    failed: int
    findings: frozenset[str]
    at_load: AtLoad | None


@dataclass(frozen=True, slots=True)
class _MeasuredArm:
    """The runs of a point, and its gates, by the requests of all of them."""

    runs: tuple[_Measured, ...]
    gates: tuple[Gate, ...]
    steady_queue: bool
    can_fail: bool


def read_sweep(folder: ExperimentFolder, required: Sequence[HeldRequirement] = ()) -> Sweep:
    """Read the recorded runs of a sweep, which has to hold what is ``required``. Raises RunFolderError where there are none."""
    experiment = folder.read()
    recorded = [planned for planned in experiment.runs if folder.is_recorded(planned)]
    if not recorded:
        raise RunFolderError(f"{folder.path}: no run of the sweep is recorded")
    by_arm = {
        arm: _measured_arm(folder, experiment, [p for p in recorded if p.arm == arm]) for arm in {p.arm for p in recorded}
    }
    streamed = all(run.streamed for arm in by_arm.values() for run in arm.runs)  # else only E2E latency exists for all points
    points = tuple(_point(experiment.arms[arm], by_arm[arm], streamed) for arm in sorted(by_arm))
    return Sweep(
        measured=shlex.join(experiment.arguments),
        planned=len(experiment.runs),
        latency=(TTFT if streamed else E2E).label,
        points=points,
        front=pareto_front(points),
        required=tuple(required),
    )


def pareto_front(points: Sequence[SweepPoint]) -> tuple[int, ...]:
    """Positions of the points that no other one beats in both tokens/s and p99 latency, of those that are valid and whose
    queue did not grow: where it grows, latency is that of the run's length.
    """
    known = [
        (position, point.output_token_throughput.value, point.latency_p99_ms.value)
        for position, point in enumerate(points)
        if point.valid
        and QUEUE_GROWING not in point.findings
        and point.output_token_throughput.value is not None
        and point.latency_p99_ms.value is not None
    ]
    front: list[int] = []
    lowest = float("inf")
    for position, _, latency_ms in sorted(known, key=lambda pair: (-pair[1], pair[2])):
        if latency_ms < lowest:
            front.append(position)
            lowest = latency_ms
    return tuple(reversed(front))


def _sweep_run(experiment: Experiment, planned: PlannedRun, report: RunReport) -> SweepRun:
    seed = report.schedule.seed
    options = experiment.arms[planned.arm].options
    command = ["bench", *experiment.arguments, *options, *(() if seed is None else ("--seed", str(seed)))]
    return SweepRun(planned.folder, report.folder.html.exists(), report.valid, shlex.join(command))


def _measured_arm(folder: ExperimentFolder, experiment: Experiment, planned: Sequence[PlannedRun]) -> _MeasuredArm:
    """The runs of one arm, whose records are read together."""
    reports = [read_run(folder.run_folder(run)) for run in planned]
    required = dict.fromkeys(gate.requirement for report in reports for gate in report.gates)
    validity, judged = max(report.validity for report in reports), [report.judged for report in reports]
    settings = settings_of(experiment.arms[planned[0].arm])
    return _MeasuredArm(
        tuple(
            _measured(report, _sweep_run(experiment, run, report), settings)
            for run, report in zip(planned, reports, strict=True)
        ),
        tuple(judge_together(requirement, judged, validity) for requirement in required),
        shows_steady_queue(reports),
        can_fail=bool(required) or not all(report.judged.load.closed for report in reports),
    )


def _measured(report: RunReport, run: SweepRun, settings: Settings) -> _Measured:
    metrics: Metrics = report.metrics
    return _Measured(
        run=run,
        streamed=metrics.streamed,
        offered_rate=metrics.offered_rate,
        request_throughput=metrics.rates[REQUEST_THROUGHPUT],
        output_token_throughput=metrics.rates[OUTPUT_TOKEN_THROUGHPUT],
        ttft_ms=None if metrics.ttft_ms is None else metrics.ttft_ms.scheduled,
        e2e_ms=metrics.e2e_ms.scheduled,
        goodput=metrics.goodput,
        failed=metrics.failed,
        findings=frozenset(finding.code for finding in report.findings if finding.severity.value != "note"),
        at_load=at_load(settings, report),
    )


def _point(arm: PlannedArm, measured: _MeasuredArm, streamed: bool) -> SweepPoint:
    runs = measured.runs
    latencies = [run.ttft_ms if streamed else run.e2e_ms for run in runs]
    return SweepPoint(
        name=arm.name,
        settings=settings_of(arm),
        runs=tuple(run.run for run in runs),
        offered_rate=_mean([run.offered_rate for run in runs]),
        request_throughput=over_runs([run.request_throughput for run in runs]),
        output_token_throughput=over_runs([run.output_token_throughput for run in runs]),
        latency_p50_ms=over_runs([of_percentile(latency, 0.50) for latency in latencies]),
        latency_p99_ms=over_runs([of_percentile(latency, 0.99) for latency in latencies]),
        e2e_p99_ms=over_runs([of_percentile(run.e2e_ms, 0.99) for run in runs]),
        goodput=over_runs([UNKNOWN if run.goodput is None else run.goodput.rate for run in runs]),
        attainment=_mean([None if run.goodput is None else run.goodput.attainment for run in runs]),
        gates=measured.gates,
        failed=sum(run.failed for run in runs),
        findings=tuple(sorted(frozenset().union(*(run.findings for run in runs)))),
        objectives=tuple(
            dict.fromkeys(objective for run in runs if run.goodput is not None for objective in run.goodput.objectives)
        ),
        at_loads=tuple(run.at_load for run in runs if run.at_load is not None),
        steady_queue=measured.steady_queue,
        can_fail=measured.can_fail,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None where a value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def settings_of(arm: PlannedArm) -> Settings:
    """The options of a point as (name, value); options not planned by ``bench sweep`` are one setting."""
    names, values = arm.options[::2], arm.options[1::2]
    if len(names) == len(values) and all(name.startswith("--") for name in names):
        return tuple((name.removeprefix("--"), value) for name, value in zip(names, values, strict=True))
    return (("options", shlex.join(arm.options)),)
