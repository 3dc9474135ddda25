"""Why a percentile of a run is what it is, and what of the difference between two runs each phase makes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from reports.metrics.catalogue import E2E, TTFT
from reports.metrics.configuration import configured_load
from reports.metrics.metric import MeasuredRun, Metric
from reports.metrics.phase_shares import (
    LatencyParts,
    PercentileParts,
    RequestParts,
    chosen_requests,
    latency_parts,
    slowest_requests,
)
from reports.metrics.request_phases import ClientClock, Phase, client_clock
from reports.metrics.requests import Requests
from reports.run_report import RunReport
from reports.statistics.arrays import FloatArray
from reports.statistics.estimate import Estimate
from reports.why.step_log import LoggedRun, StepFacts

METRICS = (TTFT, E2E)
MIDDLE = 0.5


@dataclass(frozen=True, slots=True)
class ClassParts:
    """A percentile of the requests of one class."""

    name: str
    metric: Metric
    parts: PercentileParts


@dataclass(frozen=True, slots=True)
class StretchParts:
    """A percentile of the requests that were due from ``start_s`` to ``end_s``, on the run's clock."""

    start_s: float
    end_s: float
    metric: Metric
    parts: PercentileParts


@dataclass(frozen=True, slots=True)
class Detail:
    """What is shown beside the percentiles: as many equal ``stretches`` of the run's time, ``slowest`` requests, and those of
    these numbers in the schedule.
    """

    stretches: int = 0
    slowest: int = 0
    chosen: tuple[int, ...] = ()


_NO_DETAIL = Detail()
_SEEN_BY_CLIENT = (Phase.CEILING, Phase.CONNECT)  # a run without such a phase did not wait there


@dataclass(frozen=True)
class ExplainedRun:
    """A run with the parts of its latencies; the median of each comes first, then the requested percentile. ``classes`` have
    the requested percentile of each class of a mixture, ``stretches`` that of each stretch of the run. ``slowest`` and
    ``chosen`` are requests by the key of the metric, ``without`` the numbers of those to be shown that have no such latency.
    ``logged`` has the engine's steps during the run, where its step log is given, and ``steps`` what they did in each stretch.
    """

    report: RunReport
    latencies: tuple[LatencyParts, ...]
    classes: tuple[ClassParts, ...] = ()
    stretches: tuple[StretchParts, ...] = ()
    slowest: Mapping[str, tuple[RequestParts, ...]] = field(default_factory=dict)
    chosen: Mapping[str, tuple[RequestParts, ...]] = field(default_factory=dict)
    without: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    logged: LoggedRun | None = None
    steps: tuple[StepFacts, ...] = ()

    def classes_of(self, metric: Metric) -> tuple[ClassParts, ...]:
        """The classes that have the latency."""
        return tuple(of_class for of_class in self.classes if of_class.metric is metric)

    def stretches_of(self, metric: Metric) -> tuple[StretchParts, ...]:
        """The stretches that have the latency."""
        return tuple(stretch for stretch in self.stretches if stretch.metric is metric)


@dataclass(frozen=True, slots=True)
class PhaseDifference:
    """The mean of a phase around a percentile of run A and of run B, in ms; None where a run has no source of it."""

    phase: Phase
    a: Estimate | None
    b: Estimate | None

    @property
    def difference(self) -> Estimate | None:
        """B − A; None where one is unknown."""
        return None if self.a is None or self.b is None else _difference(self.a, self.b)


@dataclass(frozen=True)
class PartsDifference:
    """One percentile of run A and of run B. ``phases`` are those of either run, in their order."""

    metric: Metric
    a: PercentileParts
    b: PercentileParts
    phases: tuple[PhaseDifference, ...]

    @property
    def percentile(self) -> Estimate:
        """B − A of the percentile."""
        return _difference(self.a.percentile, self.b.percentile)

    @property
    def mean_ms(self) -> float:
        """B − A of the mean latency of the requests around the percentile: the sum over the phases and the contradictions."""
        return self.b.mean_ms - self.a.mean_ms

    @property
    def same_sources(self) -> bool:
        """Whether both runs have a source of every phase, so that what is unattributed means the same in both."""
        return all(phase.a is not None and phase.b is not None for phase in self.phases)


@dataclass(frozen=True)
class Why:
    """One run, or run A and run B with their ``differences``."""

    runs: tuple[ExplainedRun, ...]
    differences: tuple[PartsDifference, ...]


def explain_logged(logged: LoggedRun, metrics: Sequence[Metric], q: float, detail: Detail = _NO_DETAIL) -> Why:
    """``explain`` of one run whose engine logged its steps."""
    edges_ns = _stretch_edges(logged.report.requests, detail.stretches)
    run = replace(_explained(logged.report, metrics, q, detail), logged=logged, steps=logged.facts(edges_ns))
    return Why((run,), ())


def explain(reports: Sequence[RunReport], metrics: Sequence[Metric], q: float, detail: Detail = _NO_DETAIL) -> Why:
    """The parts of the ``q``-quantile of ``metrics`` of one or two runs; a latency that a run does not have is left out."""
    runs = tuple(_explained(report, metrics, q, detail) for report in reports)
    return Why(runs, () if len(runs) == 1 else tuple(_differences(*runs)))


def _explained(report: RunReport, metrics: Sequence[Metric], q: float, detail: Detail) -> ExplainedRun:
    clock = client_clock(report.manifest)
    quantiles = (MIDDLE,) if q == MIDDLE else (MIDDLE, q)
    run = _measured(report, report.requests)
    found = (latency_parts(run, metric, clock, quantiles) for metric in metrics)
    latencies = tuple(parts for parts in found if parts is not None)
    chosen = {parts.metric.key: chosen_requests(report.requests, parts, detail.chosen) for parts in latencies}
    return ExplainedRun(
        report,
        latencies,
        tuple(_classes(report, metrics, clock, q)),
        tuple(_stretches(report, metrics, clock, q, detail.stretches)),
        {parts.metric.key: slowest_requests(report.requests, parts, detail.slowest) for parts in latencies},
        chosen,
        {key: _not_among(found, detail.chosen) for key, found in chosen.items()},
    )


def _not_among(requests: Sequence[RequestParts], numbers: Sequence[int]) -> tuple[int, ...]:
    """The numbers, once each, that none of the requests has."""
    found = {request.index for request in requests}
    return tuple(number for number in dict.fromkeys(numbers) if number not in found)


def _measured(report: RunReport, requests: Requests) -> MeasuredRun:
    batch_limit = None if report.server is None else report.server.batch_limit
    return MeasuredRun(requests, report.metrics.streamed, configured_load(report.manifest), batch_limit)


def _classes(report: RunReport, metrics: Sequence[Metric], clock: ClientClock, q: float) -> Iterator[ClassParts]:
    requests = report.requests
    for place, name in enumerate(requests.class_names):
        of_class = requests.only(requests.class_of == place)
        for metric in metrics if of_class.outcome.size else ():
            found = latency_parts(_measured(report, of_class), metric, clock, (q,))
            if found is not None:
                yield ClassParts(name, metric, found.percentiles[0])


def _stretches(
    report: RunReport, metrics: Sequence[Metric], clock: ClientClock, q: float, count: int
) -> Iterator[StretchParts]:
    due_ns, edges_ns = report.requests.scheduled_ns, _stretch_edges(report.requests, count)
    if edges_ns is None:
        return
    stretch_of = np.clip(np.searchsorted(edges_ns, due_ns, side="right") - 1, 0, count - 1)
    for k in range(count):
        run = _measured(report, report.requests.only(stretch_of == k))
        for metric in metrics if run.requests.outcome.size else ():
            found = latency_parts(run, metric, clock, (q,))
            if found is not None:
                yield StretchParts(float(edges_ns[k]) / 1e9, float(edges_ns[k + 1]) / 1e9, metric, found.percentiles[0])


def _stretch_edges(requests: Requests, count: int) -> FloatArray | None:
    """The ends of ``count`` equal stretches of the time in which requests were due, in ns, shape [count + 1]; None of none."""
    due_ns = requests.scheduled_ns[requests.offered]
    return np.linspace(due_ns.min(), due_ns.max(), count + 1) if count and due_ns.size else None


def _differences(a: ExplainedRun, b: ExplainedRun) -> list[PartsDifference]:
    of_a, of_b = ({parts.metric: parts.percentiles[-1] for parts in run.latencies} for run in (a, b))
    common = [metric for metric in of_a if metric in of_b]
    return [PartsDifference(metric, of_a[metric], of_b[metric], _phases(of_a[metric], of_b[metric])) for metric in common]


def _phases(a: PercentileParts, b: PercentileParts) -> tuple[PhaseDifference, ...]:
    of_a, of_b = a.by_phase, b.by_phase
    return tuple(
        PhaseDifference(phase, _mean_of(phase, a), _mean_of(phase, b)) for phase in Phase if phase in of_a or phase in of_b
    )


def _mean_of(phase: Phase, parts: PercentileParts) -> Estimate | None:
    """The mean of a phase; 0 of a wait that the client would have seen, None of what the run has no source of."""
    found = parts.by_phase.get(phase)
    if found is not None:
        return found.mean_ms
    return Estimate(0.0, (0.0, 0.0)) if phase in _SEEN_BY_CLIENT else None


def _difference(a: Estimate, b: Estimate) -> Estimate:
    """B − A of two independent runs, with limits from those of each (Zou and Donner 2008, "MOVER")."""
    if a.value is None or b.value is None:
        return Estimate(None, reason=a.reason or b.reason)
    value = b.value - a.value
    if a.interval is None or b.interval is None:
        return Estimate(value, reason=a.reason or b.reason)
    low = value - math.hypot(b.value - b.interval[0], a.interval[1] - a.value)
    high = value + math.hypot(b.interval[1] - b.value, a.value - a.interval[0])
    return Estimate(value, (low, high))
