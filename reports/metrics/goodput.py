"""Goodput: requests per second that met every objective (``--slo``), and their share of the requests sent.

Zhong et al. 2024 ("DistServe") and vLLM's and GenAI-Perf's ``--goodput`` mean the same. Latencies count from the schedule;
attainment from the send is shown beside it, since a client that sends late costs objectives that the target met.
A request that failed, or never gave a token, met none. One that the client cancelled as planned, or that was in flight when
the run was stopped, is judged by what is known of it (``reports/metrics/censoring.py``): it missed an objective whose limit it
had exceeded when it was cut off, it met one of TTFT if its first token came in time, and it is undetermined otherwise. An
undetermined request counts among neither; how many there are limits what is known of attainment. Attainment from the send
counts the same requests: one that is decided from the schedule alone was missed there, and is not good from the send either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.metrics.censoring import CensoredLatencies
from reports.metrics.full_load import full_load, rate_of_run
from reports.metrics.metric import Metric
from reports.metrics.output_events import Events, completions, rate_value, without_interval
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.estimate import UNKNOWN, Cause, Estimate, Interval, Reason
from reports.statistics.exceedances import interval_of_share_above, share_estimate

_JUST_ABOVE = 1.0 + 1e-9


@dataclass(frozen=True, slots=True)
class Objective:
    """One objective: a request's ``metric``, which ``is_objective``, is at most ``limit_ms``."""

    metric: Metric
    limit_ms: float

    def __str__(self) -> str:
        return f"{self.metric.name}<={self.limit_ms:.15g}ms"


@dataclass(frozen=True, slots=True)
class Goodput:
    """``good`` of the ``sent`` requests met every objective: ``rate`` per second of the whole run, ``attainment`` their share.
    ``undetermined`` ones, which were cut off before that was decided, are not among the ``sent`` ones.

    ``met`` counts the requests that met each objective by itself, of the ``judged`` ones. ``good_from_send`` met every
    objective counted from the actual send, and ``good_from_release`` counted from when they were due and below a ceiling
    (--max_concurrency): the client alone delayed those in the first and not in the second. An interval that does not exist is
    None.
    """

    objectives: tuple[Objective, ...]
    met: tuple[int, ...]
    judged: tuple[int, ...]
    good: int
    good_from_release: int
    good_from_send: int
    sent: int
    undetermined: int
    rate: Estimate
    attainment: float
    attainment_interval: Interval | None
    from_send_interval: Interval | None
    no_interval_reason: Reason | None = None

    @property
    def attainment_estimate(self) -> Estimate:
        return share_estimate(self.attainment, self.attainment_interval, self.no_interval_reason)

    @property
    def attainment_from_send(self) -> float:
        return self.good_from_send / self.sent

    @property
    def judged_text(self) -> str:
        """What attainment is a share of: "700 sent", or "62 judged" where others were sent and are undetermined."""
        return f"{self.sent:,} {'judged' if self.undetermined else 'sent'}"

    @property
    def attainment_limits(self) -> Interval:
        """The least and the largest share of all that were sent, whatever the undetermined ones would have been."""
        every = self.sent + self.undetermined
        return self.good / every, (self.good + self.undetermined) / every

    @property
    def lost_to_client(self) -> int:
        """Requests that met every objective from the send, and missed one because the client sent them late."""
        return self.good_from_send - self.good_from_release


def goodput(requests: Requests, objectives: Sequence[Objective], no_interval_reason: Reason | None = None) -> Goodput | None:
    """The goodput of a run; None without objectives, or where no request that was sent is judged. No number has an interval
    where there is a ``no_interval_reason``.
    """
    if not objectives:
        return None
    each = [_judge(requests, objective, requests.scheduled_ns) for objective in objectives]
    every = _together(each)
    sent = every.met | every.missed
    if not sent.any():
        return None
    released_ns = requests.scheduled_ns + requests.ceiling_wait_ns
    from_release, from_send = (
        _together([_judge(requests, objective, anchor_ns) for objective in objectives]).met
        for anchor_ns in (released_ns, requests.sent_ns)
    )
    interval, from_send_interval = (
        _attainment_interval(requests, objectives, anchor_ns, sent) if no_interval_reason is None else None
        for anchor_ns in (requests.scheduled_ns, requests.sent_ns)
    )
    return Goodput(
        objectives=tuple(objectives),
        met=tuple(int(np.count_nonzero(judgement.met)) for judgement in each),
        judged=tuple(int(np.count_nonzero(judgement.met | judgement.missed)) for judgement in each),
        good=int(np.count_nonzero(every.met)),
        good_from_release=int(np.count_nonzero(from_release)),
        good_from_send=int(np.count_nonzero(from_send)),
        sent=int(np.count_nonzero(sent)),
        undetermined=int(np.count_nonzero(~sent & ~np.isnan(requests.sent_ns))),
        rate=without_interval(_rate(requests, every.met, sent, interval), no_interval_reason),
        attainment=float(every.met[sent].mean()),
        attainment_interval=interval,
        from_send_interval=from_send_interval,
        no_interval_reason=no_interval_reason,
    )


def good_ends_ns(requests: Requests, objectives: Sequence[Objective]) -> FloatArray:
    """When the requests that met every objective ended, shape [good]; empty without objectives."""
    if not objectives:
        return np.empty(0)
    return requests.done_ns[_together([_judge(requests, objective, requests.scheduled_ns) for objective in objectives]).met]


@dataclass(frozen=True, eq=False)
class _Judgement:
    """Which requests met an objective, and which missed it, shape [requests]; of neither, that was not decided, or not sent."""

    met: NDArray[np.bool_]
    missed: NDArray[np.bool_]


def _together(each: Sequence[_Judgement]) -> _Judgement:
    """Every objective is met, or one is missed."""
    return _Judgement(
        np.logical_and.reduce([judgement.met for judgement in each]),
        np.logical_or.reduce([judgement.missed for judgement in each]),
    )


def _judge(requests: Requests, objective: Objective, anchor_ns: FloatArray) -> _Judgement:
    """The judgement of an objective whose latency counts from ``anchor_ns``."""
    latencies = objective.metric.judged(requests, anchor_ns)
    cancelled = requests.cut_off & ~requests.failed_by_target
    exact = (requests.done | cancelled) & ~latencies.is_bound
    met = exact & (latencies.values_ms <= objective.limit_ms)
    _, unknown = latencies.exceeds(objective.limit_ms)
    return _Judgement(met, ~met & ~(cancelled & unknown) & ~np.isnan(requests.sent_ns))


def severities(requests: Requests, objectives: Sequence[Objective]) -> CensoredLatencies:
    """How far each request that was sent is from its objectives, in the order in which they were due: the largest ratio of a
    latency from the schedule to its limit, above 1 where an objective was missed, infinite for a failure. It is a bound where a
    request was cut off before that was decided.
    """
    return _severities(requests, objectives, requests.scheduled_ns).of(~np.isnan(requests.sent_ns))


def _severities(requests: Requests, objectives: Sequence[Objective], anchor_ns: FloatArray) -> CensoredLatencies:
    """The severities of all requests, shape [requests]."""
    every = _together([_judge(requests, objective, anchor_ns) for objective in objectives])
    ratios = np.stack([objective.metric.judged(requests, anchor_ns).values_ms / objective.limit_ms for objective in objectives])
    largest = np.where(np.isnan(ratios), np.inf, ratios).max(axis=0)
    largest = np.where(every.missed, np.maximum(largest, _JUST_ABOVE), np.minimum(largest, 1.0))
    return CensoredLatencies(largest, ~every.met & ~every.missed)


def _attainment_interval(
    requests: Requests, objectives: Sequence[Objective], anchor_ns: FloatArray, judged: NDArray[np.bool_]
) -> Interval | None:
    severity = _severities(requests, objectives, anchor_ns).of(judged)
    # A bound was missed from the schedule, and is not decided from the send.
    values = np.where(severity.is_bound, _JUST_ABOVE, severity.values_ms)
    missed = interval_of_share_above(values, 1.0, groups=requests.session_of[judged])
    return None if missed is None else (1.0 - missed[1], 1.0 - missed[0])


def _rate(requests: Requests, good: NDArray[np.bool_], judged: NDArray[np.bool_], attainment: Interval | None) -> Estimate:
    """Good requests, counted at their ends, per second of the whole window: first scheduled to the end of the last success, or
    of the last good request that was cancelled.

    It is the rate of all that were judged times their attainment, and so is its error.
    """
    ended = requests.done | good
    if not ended.any():
        return UNKNOWN
    events = Events(requests.done_ns[good])
    start_ns, end_ns = float(requests.scheduled_ns.min()), float(requests.done_ns[ended].max())
    value = rate_value(events, start_ns, end_ns)
    ends = completions(requests)
    throughput = rate_of_run(ends, start_ns, end_ns, full_load(requests, ends))
    if value is None or throughput.value is None:
        return UNKNOWN
    if throughput.interval is None or attainment is None:
        return Estimate(value, reason=throughput.reason or Cause.UNEVEN)
    share = float(good[judged].mean())
    below, above = (abs(limit / throughput.value - 1.0) for limit in throughput.interval)
    ended_per_s = value / share if share > 0 else throughput.value
    low = value - ended_per_s * math.hypot(below * share, share - attainment[0])
    return Estimate(value, (max(0.0, low), value + ended_per_s * math.hypot(above * share, attainment[1] - share)))
