"""Gates: the requirements of a run, judged by the 95 % intervals of its numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from reports.criteria import Requirement
from reports.metrics.catalogue import ATTAINMENT, FAILED_SHARE, GOODPUT
from reports.metrics.output_events import Rate
from reports.metrics.run_metrics import Anchored, Metrics
from reports.statistics.autocorrelation import Interval
from reports.statistics.percentiles import Distribution


class Status(StrEnum):
    """PASSED or FAILED by the evidence; UNDECIDED where the evidence allows both."""

    PASSED = "passed"
    FAILED = "FAILED"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A number of a run with its 95 % limits, in the metric's unit; None is unknown, for the ``reason``."""

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """A requirement and its result. ``why`` is the evidence in words."""

    requirement: Requirement
    status: Status
    evidence: Evidence
    why: str


def judge(requirements: Iterable[Requirement], metrics: Metrics, *, valid: bool) -> tuple[Gate, ...]:
    """The gates of a run. Of a run that is not ``valid`` nothing passes or fails: its numbers cannot be believed."""
    return tuple(_judged(requirement, evidence_of(requirement, metrics), valid) for requirement in requirements)


def evidence_of(requirement: Requirement, metrics: Metrics) -> Evidence:
    """The number that a requirement is about, latencies from the schedule."""
    metric = requirement.metric
    if metric is FAILED_SHARE:
        ended = metrics.done + metrics.failed
        share = metrics.failed / ended if ended else None
        return Evidence(share, share, share, None if ended else "no request ended")
    if metric in (ATTAINMENT, GOODPUT):
        if metrics.goodput is None:
            return Evidence(None, reason="it needs an objective of each request, as --slo ttft<=200ms")
        if metric is GOODPUT:
            return _of_rate(metrics.goodput.rate)
        return _with(metrics.goodput.attainment, metrics.goodput.attainment_interval, "no interval")
    if metric in metrics.rates:
        return _of_rate(metrics.rates[metric])
    latency = metrics.latencies.get(metric)
    distribution = latency.scheduled if isinstance(latency, Anchored) else latency
    return (
        Evidence(None, reason=f"this run has no {metric.label}") if distribution is None else _of(distribution, requirement.q)
    )


def _of(d: Distribution, q: float | None) -> Evidence:
    if q is None:
        return _with(d.mean.value, d.mean.interval, d.mean.reason)
    percentile = d.percentile(q)
    if percentile.interval is None:
        return Evidence(percentile.value, low=percentile.at_least, reason=percentile.reason)
    return _with(percentile.value, percentile.interval, None)


def _of_rate(rate: Rate | None) -> Evidence:
    return Evidence(None, reason="no request succeeded") if rate is None else _with(rate.value, rate.interval, rate.reason)


def _with(value: float | None, interval: Interval | None, reason: str | None) -> Evidence:
    return Evidence(value, reason=reason) if interval is None else Evidence(value, *interval)


def _judged(requirement: Requirement, evidence: Evidence, valid: bool) -> Gate:
    status = _status(requirement, evidence) if valid else Status.UNDECIDED
    return Gate(requirement, status, evidence, _why(requirement, evidence, status, valid))


def _status(requirement: Requirement, evidence: Evidence) -> Status:
    low, high, limit = evidence.low, evidence.high, requirement.limit
    if requirement.at_most:
        if high is not None and high <= limit:
            return Status.PASSED
        return Status.FAILED if low is not None and low > limit else Status.UNDECIDED
    if low is not None and low >= limit:
        return Status.PASSED
    return Status.FAILED if high is not None and high < limit else Status.UNDECIDED


def _why(requirement: Requirement, evidence: Evidence, status: Status, valid: bool) -> str:
    parts = ["unknown" if evidence.value is None else _text(requirement, evidence.value)]
    low, high = (None if limit is None else _text(requirement, limit) for limit in (evidence.low, evidence.high))
    if high is not None and low != high:
        parts.append(f"95 %: {low} – {high}")
    elif high is None and low is not None:
        parts.append(f"at least {low}")
    text = ", ".join(parts)
    if not valid:
        return f"{text}; the run is not valid"
    return f"{text}; {evidence.reason}" if status is Status.UNDECIDED and evidence.reason else text


def _text(requirement: Requirement, value: float) -> str:
    if requirement.metric in (ATTAINMENT, FAILED_SHARE):
        return f"{100.0 * value:,.1f} %"
    unit = requirement.metric.table_unit
    return f"{value:,.0f} {unit}" if value >= 99.5 else f"{value:.3g} {unit}"
