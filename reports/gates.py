"""Gates: the requirements of a run, judged by the 95 % intervals of its numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reports.criteria import Requirement
from reports.metrics.catalogue import ATTAINMENT, FAILED_SHARE, GOODPUT
from reports.metrics.output_events import Rate
from reports.metrics.run_metrics import Anchored, Metrics
from reports.statistics.autocorrelation import (
    CLUSTERED_ARRIVALS,
    DRIFTS,
    FEWEST_INDEPENDENT_ARRIVALS,
    FEWEST_VALUES,
    TOO_FEW,
    TOO_UNEVEN,
    Interval,
    fewest_independent,
    independent_values,
)
from reports.statistics.percentiles import CUT_OFF, REACHES_FAILURES, Distribution, fewest_for_limits
from reports.statistics.probability import student_quantile

_SHARES = (ATTAINMENT, FAILED_SHARE)


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


def judge_together(requirement: Requirement, repeats: Sequence[Metrics], *, valid: bool) -> Gate:
    """The gate of a configuration that ``repeats`` measured: of several, by Student's interval of their values' mean, which
    holds the variation between starts; ``valid`` is whether all of them are.
    """
    evidence = [evidence_of(requirement, metrics) for metrics in repeats]
    return _judged(requirement, evidence[0] if len(evidence) == 1 else _together(requirement, evidence), valid)


def _together(requirement: Requirement, evidence: Sequence[Evidence]) -> Evidence:
    """Repeats that all have the same value, such as no failures, have the widest of their own intervals; so have tails that a
    run is too short for, whose values lie too low.
    """
    values = [one.value for one in evidence if one.value is not None]
    if len(values) < len(evidence):
        return Evidence(None, reason=next(one.reason for one in evidence if one.value is None))
    mean = statistics.fmean(values)
    lows, highs = ([x for x in limits if x is not None] for limits in zip(*((e.low, e.high) for e in evidence), strict=True))
    is_tail = requirement.q is not None and requirement.q > 0.5
    if (is_tail and len(highs) < len(evidence)) or len(set(values)) == 1:
        low = min(lows) if len(lows) == len(evidence) else None
        high = max(highs) if len(highs) == len(evidence) else None
        return Evidence(mean, low, high, next((one.reason for one in evidence if one.reason), None))
    half = student_quantile(0.975, len(values) - 1.0) * statistics.stdev(values) / math.sqrt(len(values))
    return Evidence(mean, max(0.0, mean - half), mean + half)


def evidence_of(requirement: Requirement, metrics: Metrics) -> Evidence:
    """The number that a requirement is about, latencies from the schedule."""
    metric = requirement.metric
    if metric is FAILED_SHARE:
        share = metrics.failed_share
        if share is None:
            return Evidence(None, reason="no request ended")
        return _with(share.value, share.interval, "failures drift or cluster, so the share has no interval")
    if metric in (ATTAINMENT, GOODPUT):
        if metrics.goodput is None:
            return Evidence(None, reason="it needs an objective of each request, as --slo ttft<=200ms")
        if metric is GOODPUT:
            return _of_rate(metrics.goodput.rate, metrics.done)
        return _with(metrics.goodput.attainment, metrics.goodput.attainment_interval, "no interval")
    if metric in metrics.rates:
        return _of_rate(metrics.rates[metric], metrics.done)
    latency = metrics.latencies.get(metric)
    distribution = latency.scheduled if isinstance(latency, Anchored) else latency
    return (
        Evidence(None, reason=f"this run has no {metric.label}") if distribution is None else _of(distribution, requirement.q)
    )


def _of(d: Distribution, q: float | None) -> Evidence:
    if q is None:
        if d.mean.interval is None:
            return Evidence(d.mean.value, low=d.mean.at_least, reason=_plain(d.mean.reason, fewest_independent(d.n)))
        return Evidence(d.mean.value, *d.mean.interval)
    percentile = d.percentile(q)
    if percentile.interval is None:
        needed = max(fewest_for_limits(q), fewest_independent(d.n))
        return Evidence(percentile.value, low=percentile.at_least, reason=_plain(percentile.reason, needed))
    return _with(percentile.value, percentile.interval, None)


def _of_rate(rate: Rate | None, n: int) -> Evidence:
    if rate is None:
        return Evidence(None, reason="no request succeeded")
    return _with(rate.value, rate.interval, _plain(rate.reason, fewest_independent(n)))


def _plain(reason: str | None, needed: int) -> str | None:
    """The reason for having no interval, in words that stand without a table; ``needed`` independent requests would do."""
    if reason is None:
        return None
    independent = independent_values(reason)
    if independent is not None:
        return f"equivalent to {independent:,} independent requests, {needed:,} needed"
    words = {
        TOO_FEW: f"too few requests for an interval, at least {FEWEST_VALUES} needed",
        DRIFTS: "it drifts, or the run is too short",
        TOO_UNEVEN: "it rests on few values",
        CLUSTERED_ARRIVALS: f"arrivals came in few clusters, worth {FEWEST_INDEPENDENT_ARRIVALS} independent ones are needed",
        REACHES_FAILURES: "it falls among the failed requests",
        CUT_OFF: "requests were cut off, so a lower bound alone is known",
    }
    return words.get(reason, reason)


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
    low, high = evidence.low, evidence.high
    if low is not None and high is not None and low != high:
        parts.append(f"95 %: {_number(requirement, low)} – {_text(requirement, high)}")
    elif high is None and low is not None:
        parts.append(f"at least {_text(requirement, low)}")
    text = ", ".join(parts)
    if not valid:
        return f"{text}; the run is not valid"
    return f"{text}; {evidence.reason}" if status is Status.UNDECIDED and evidence.reason else text


def _text(requirement: Requirement, value: float) -> str:
    unit = "%" if requirement.metric in _SHARES else requirement.metric.table_unit
    return f"{_number(requirement, value)} {unit}"


def _number(requirement: Requirement, value: float) -> str:
    """The value in the unit of ``_text``."""
    if requirement.metric in _SHARES:
        return f"{100.0 * value:,.1f}"
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"
