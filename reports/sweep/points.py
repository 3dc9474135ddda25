"""A sweep read: one point a configuration, and which of them no other beats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.records.experiment import ExperimentFolder
from harness.records.run_folder import RunFolderError
from reports.run_report import RunReport, read_run


@dataclass(frozen=True)
class SweepPoint:
    """One configuration and its runs. Numbers are means over its runs; None where a run does not have it.

    Rates per second; ``latency_*`` are TTFT from the schedule where answers were streamed, else E2E latency, in ms.
    ``valid``: no run of it is invalid.
    """

    name: str
    runs: int
    valid: bool
    offered_rate: float | None
    request_throughput: float | None
    output_token_throughput: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    e2e_p99_ms: float | None
    failed: int
    findings: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """Every point in the order in which it was asked for. ``latency`` names what the points' latencies are of."""

    latency: str
    points: tuple[SweepPoint, ...]
    front: tuple[int, ...]  # positions of the points on the Pareto front, by rising throughput


def read_sweep(folder: ExperimentFolder) -> Sweep:
    """Read what is recorded of a sweep. Raises RunFolderError where that is nothing."""
    experiment = folder.read()
    runs: dict[int, list[RunReport]] = {}
    for planned in experiment.runs:
        if folder.is_recorded(planned):
            runs.setdefault(planned.arm, []).append(read_run(folder.run_folder(planned)))
    if not runs:
        raise RunFolderError(f"{folder.path}: no run of the sweep is recorded")
    points = tuple(_point(experiment.arms[arm].name, runs[arm]) for arm in sorted(runs))
    streamed = all(run.metrics.ttft_ms is not None for of_arm in runs.values() for run in of_arm)
    return Sweep("TTFT" if streamed else "E2E latency", points, pareto_front(points))


def pareto_front(points: Sequence[SweepPoint]) -> tuple[int, ...]:
    """Positions of the valid points than which no other valid one has both more tokens/s and a lower p99 latency."""
    known = [
        (position, point.output_token_throughput, point.latency_p99_ms)
        for position, point in enumerate(points)
        if point.valid and point.output_token_throughput is not None and point.latency_p99_ms is not None
    ]
    front: list[int] = []
    lowest = float("inf")
    for position, _, latency_ms in sorted(known, key=lambda one: (-one[1], one[2])):
        if latency_ms < lowest:
            front.append(position)
            lowest = latency_ms
    return tuple(reversed(front))


def _point(name: str, runs: Sequence[RunReport]) -> SweepPoint:
    metrics = [run.metrics for run in runs]
    latencies = [m.e2e_ms.scheduled if m.ttft_ms is None else m.ttft_ms.scheduled for m in metrics]
    e2es = [m.e2e_ms.scheduled for m in metrics]
    return SweepPoint(
        name=name,
        runs=len(runs),
        valid=all(run.valid for run in runs),
        offered_rate=_mean([m.offered_rate for m in metrics]),
        request_throughput=_mean([m.request_throughput for m in metrics]),
        output_token_throughput=_mean([m.output_token_throughput for m in metrics]),
        latency_p50_ms=_mean([None if d is None else d.p50 for d in latencies]),
        latency_p99_ms=_mean([None if d is None else d.p99 for d in latencies]),
        e2e_p99_ms=_mean([None if d is None else d.p99 for d in e2es]),
        failed=sum(m.failed for m in metrics),
        findings=tuple(sorted({f.code for run in runs for f in run.findings if f.severity.value != "note"})),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
