"""Gates whose limit is one on a number with an interval of its own: means, throughputs and goodput."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from reports.criteria import Requirement
from reports.gates.gate import Evidence, Gate, JudgedRun, Status
from reports.gates.shares import FAR_ABOVE
from reports.gates.words import amount, number, significant, would_decide
from reports.metrics.in_flight import QueueGrowth
from reports.statistics.arrays import FloatArray, shifted_mean
from reports.statistics.autocorrelation import SHORT_RUN, mean_over_groups
from reports.statistics.estimate import Cause, Estimate, Interval, Reason
from reports.statistics.percentiles import CONFIDENCE
from reports.statistics.probability import student_quantile

_CLOSE = 0.01  # of the limit: a number as close to it needs more requests than anyone sends
_FAR_MORE, _FAR_LESS = 1.5, 0.5  # times the limit: what a run that may lie within one slow time alone has to show
_FEWER, _MORE = 0.6, 2.0  # times the number of requests by which an error halves as seen: what its own error leaves open


@dataclass(frozen=True, slots=True)
class KnownNumber:
    """A number with its limits; None is unknown, for the ``reason``. ``grows`` is what the queue's growth changes, and
    ``bounded`` a mean of which a lower bound alone is known.
    """

    value: float | None
    interval: Interval | None = None
    reason: Reason | None = None
    grows: bool = False
    bounded: bool = False


def judge_number(requirement: Requirement, known: KnownNumber, runs: Sequence[JudgedRun]) -> Gate:
    """The gate of a mean, a throughput or goodput."""
    growing = _growth(requirement, known, runs) is not None
    low, high = known.interval or (None, None)
    evidence = Evidence(known.value, low, None if known.bounded else high)
    status = _status(requirement, evidence, growing)
    if status is Status.FAILED and known.grows and not growing and not is_clear(requirement, known.value, runs):
        status = Status.UNDECIDED
    grounds = _grounds(requirement, evidence, status, known, runs)
    return Gate(requirement, status, evidence, _shown(requirement, evidence, known), grounds, _limits(requirement, evidence))


def is_clear(requirement: Requirement, value: float | None, runs: Sequence[JudgedRun]) -> bool:
    """Whether a mean or goodput is evidence against its limit: runs of few requests may all lie within one slow time, and only
    what is far beyond the limit counts there.
    """
    if value is None or sum(int(run.requests.outcome.size) for run in runs) >= SHORT_RUN:
        return True
    limit = requirement.limit
    return value >= _FAR_MORE * limit if requirement.at_most else value <= _FAR_LESS * limit


def of_mean(mean: Estimate, least: Estimate) -> KnownNumber:
    """The mean of latencies; ``least`` is that with each request that was cut off at its bound."""
    return KnownNumber(
        least.value, least.interval, mean.reason or least.reason, grows=True, bounded=mean.lower_bound is not None
    )


def over_groups(known: KnownNumber, values: FloatArray, groups: NDArray[np.int64] | None) -> KnownNumber:
    """A mean of ``values``, shape [n], whose interval allows for conversations, numbered in ``groups``, that are each alike."""
    finite = np.isfinite(values)
    if known.interval is None or groups is None or not (groups[finite] >= 0).any():
        return known
    mean = mean_over_groups(values[finite], groups[finite])
    wider = None if mean is None else mean.interval(CONFIDENCE)
    if wider is None:
        return replace(known, interval=None, reason=Cause.FEW_CONVERSATIONS)
    low, high = known.interval
    return replace(known, interval=(min(low, wider[0]), max(high, wider[1])))


def of_rates(rates: Sequence[Estimate], *, grows: bool = False) -> KnownNumber:
    """A rate of one run, or the mean of several starts with Student's interval, which includes what differs between them."""
    values = [rate.value for rate in rates if rate.value is not None]
    if len(values) < len(rates):
        return KnownNumber(None, reason=Cause.NONE_SUCCEEDED)
    if len(rates) == 1:
        return KnownNumber(rates[0].value, rates[0].interval, rates[0].reason, grows=grows)
    mean = statistics.fmean(values)
    if len(set(values)) == 1:
        intervals = [rate.interval for rate in rates]
        ends = [interval for interval in intervals if interval is not None]
        reason = next((rate.reason for rate in rates if rate.reason is not None), None)
        widest = (min(low for low, _ in ends), max(high for _, high in ends)) if len(ends) == len(intervals) else None
        return KnownNumber(mean, widest, reason, grows=grows)
    return KnownNumber(mean, between_starts(values), grows=grows)


def between_starts(values: Sequence[float]) -> Interval:
    """Student's 95 % interval of the mean of two starts' numbers or more."""
    mean = shifted_mean(np.array(values))
    half = student_quantile(0.975, len(values) - 1.0) * statistics.stdev(values) / math.sqrt(len(values))
    return max(0.0, mean - half), mean + half


def _status(requirement: Requirement, evidence: Evidence, growing: bool) -> Status:
    value, low, high, limit = evidence.value, evidence.low, evidence.high, requirement.limit
    if requirement.at_most:
        if not growing and high is not None and high <= limit:
            return Status.PASSED
        is_above = value is not None and value > limit
        if is_above and (growing or _far_above(requirement, value) or (low is not None and low > limit)):
            return Status.FAILED
        return Status.UNDECIDED
    if not growing and low is not None and low >= limit:
        return Status.PASSED
    is_below = value is not None and value < limit
    return Status.FAILED if is_below and (growing or (high is not None and high < limit)) else Status.UNDECIDED


def _growth(requirement: Requirement, known: KnownNumber, runs: Sequence[JudgedRun]) -> QueueGrowth | None:
    """The growth of the queue; None where a longer run would not be worse: latencies rise with it, and goodput falls."""
    is_worse = known.grows and (requirement.metric.unit == "ms") is requirement.at_most
    return next((run.growth for run in runs if run.growth is not None), None) if is_worse else None


def _far_above(requirement: Requirement, value: float | None) -> bool:
    is_latency = requirement.metric.unit == "ms"
    return is_latency and value is not None and value >= FAR_ABOVE * requirement.limit


def _shown(requirement: Requirement, evidence: Evidence, known: KnownNumber) -> str:
    if evidence.value is None:
        return "unknown"
    return f"{'at least ' if known.bounded else ''}{amount(requirement, evidence.value)}"


def _limits(requirement: Requirement, evidence: Evidence) -> str | None:
    low, high = evidence.low, evidence.high
    if evidence.value is None or low is None or high is None or low == high:
        return None
    return f"{number(requirement, low)} – {amount(requirement, high)}"


def _grounds(
    requirement: Requirement, evidence: Evidence, status: Status, known: KnownNumber, runs: Sequence[JudgedRun]
) -> tuple[str, ...]:
    growth = _growth(requirement, known, runs)
    if growth is not None:
        grew = max(0.0, growth.offered_per_s - growth.completed_per_s)
        return (f"the queue grew by {significant(grew)} requests/s, so a longer run is worse",)
    if status is not Status.UNDECIDED:
        return ()
    if known.reason is not None:
        return (known.reason.sentence,)
    if known.grows and _status(requirement, evidence, False) is Status.FAILED:
        return (f"fewer than {SHORT_RUN} requests could all fall within one slow period",)
    return (_needed(requirement, known, runs),)


def _needed(requirement: Requirement, known: KnownNumber, runs: Sequence[JudgedRun]) -> str:
    """How many requests would decide, were the number and its error per request as they are here."""
    if known.bounded:
        return "too many requests were cut off to decide"
    if known.value is None or known.interval is None:
        return "it has no interval"
    distance = abs(known.value - requirement.limit)
    if distance <= _CLOSE * requirement.limit:
        return "it is too close to the limit for any number of requests"
    low, high = known.interval
    half = high - known.value if known.value < requirement.limit else known.value - low
    requests = sum(int(run.requests.outcome.size) for run in runs)
    times = (half / distance) ** 2 * requests
    return would_decide(_FEWER * times, _MORE * times, requests)
