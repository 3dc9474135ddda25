"""Findings about the client: whether it sent on time, and whether its time stamps can be believed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from bench_records.manifest import ClockReadings
from reports.findings.client_delay import REMEDIES, DelayCause, cause_of, likely_cause
from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.client_health import ClientHealth
from reports.metrics.latency import client_slip_by_request_ms, client_slip_ms
from reports.metrics.output_events import mean_rate
from reports.render.counts import counted, percent
from reports.statistics.estimate import two_decimals
from reports.statistics.percentiles import nearest_rank

_SLIP_FLOOR_MS = 2.0
_SLIP_SHARE_WARNING = 0.10
_SLIP_SHARE_INVALID = 0.50
_RATE_SHARE_WARNING = 0.95
_RATE_SHARE_INVALID = 0.90
# Lag of the event loops, and its share of the median latency: at p99, and on average.
_TAIL_FLOOR_MS = 2.0
_TAIL_SHARE_WARNING = 0.10
_TAIL_SHARE_INVALID = 0.50
_SAMPLES_FOR_TAIL = 100
_MEAN_FLOOR_MS = 1.0
_MEAN_SHARE_INVALID = 0.10
_SAMPLES_FOR_MEAN = 20
_GAPS_SHARE_WARNING = 0.50  # p99 lag / p99 of the gaps between responses
_LOST_SHARE = 0.01
_LOST_REQUESTS = 3
_CLOCK_TOLERANCE_S = 0.01


class _Delayed:
    """What findings about late sends have in common: the remedy follows from ``cause``."""

    cause: DelayCause
    advices: ClassVar[tuple[str, ...]] = tuple(remedy.advice for remedy in REMEDIES.values())
    briefs: ClassVar[tuple[str, ...]] = tuple(remedy.brief for remedy in REMEDIES.values())

    @property
    def advice(self) -> str:
        return REMEDIES[self.cause].advice


@dataclass(frozen=True)
class ScheduleSlip(_Delayed, Finding):
    p99_slip_ms: float
    p50_latency_from_sent_ms: float
    cause: DelayCause

    code = "schedule_slip"
    severities = (Severity.WARNING, Severity.INVALID)
    when = (
        f"p99 of the client's own slip, without waits at a ceiling, is at least {_SLIP_FLOOR_MS:g} ms and "
        f"{_SLIP_SHARE_WARNING:.0%} of the median latency from the send; invalid above {_SLIP_SHARE_INVALID:.0%}. "
        "The tables of slip show which worker and which part of the run was late"
    )
    advices = (
        *_Delayed.advices,
        "The client sent its first requests late; spread the start of the users with --ramp_up, or use more --workers.",
    )
    briefs = (*_Delayed.briefs, "Late first sends: spread the users with --ramp_up")

    @classmethod
    def check(cls, facts: RunFacts) -> ScheduleSlip | None:
        slip_ms = np.sort(client_slip_ms(facts.requests))
        latency_ms = facts.latency_from_sent_p50_ms
        if slip_ms.size == 0 or latency_ms is None:
            return None
        p99_ms = nearest_rank(slip_ms, 0.99)
        if p99_ms < _SLIP_FLOOR_MS or p99_ms < _SLIP_SHARE_WARNING * latency_ms:
            return None
        kind = ClosedLoopSlip if facts.load.closed and _first_sends_are_late(facts, p99_ms) else ScheduleSlip
        return kind(p99_ms, latency_ms, cause_of(facts.client, p99_ms))

    @property
    def severity(self) -> Severity:
        invalid = self.p99_slip_ms > _SLIP_SHARE_INVALID * self.p50_latency_from_sent_ms
        return Severity.INVALID if invalid else Severity.WARNING

    def _sentence(self) -> str:
        return (
            f"The p99 schedule slip is {self.p99_slip_ms:.1f} ms compared with a median latency of "
            f"{self.p50_latency_from_sent_ms:.1f} ms from the send."
        )


def _first_sends_are_late(facts: RunFacts, late_ms: float) -> bool:
    """Whether most of the requests that were late by ``late_ms`` or more are first ones of the users of a closed loop."""
    requests = facts.requests
    slip_ms = client_slip_by_request_ms(requests)[np.argsort(requests.scheduled_ns, kind="stable")]
    late = slip_ms >= late_ms
    return 2 * int(late[: facts.load.concurrency or 0].sum()) >= int(late.sum())


class ClosedLoopSlip(ScheduleSlip):
    """For a closed loop whose late requests are mostly the users' first ones, the only ones that follow no answer."""

    advice = ScheduleSlip.advices[-1]


@dataclass(frozen=True)
class WorkerKilled(Finding):
    """``requests`` of such a worker have no record, with this ``reason``; what its users would have sent is not known."""

    requests: int
    reason: str | None

    code = "worker_killed"
    severities = (Severity.INVALID,)
    when = (
        "a worker process on the measuring host was killed, or failed, before its end. Runs with workers on other hosts have "
        "`workers_lost`, recovered ones `recovered`"
    )
    advices = (
        "From then on the load was lower than requested, in a closed loop by the users of that worker. Look at the system's "
        "log, for example for a lack of memory, and measure again.",
    )
    briefs = ("A worker of the client was killed: see the system's log",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        manifest, requests = facts.manifest, facts.sent_requests
        explained = manifest.distribution is not None or manifest.recovered is not None or manifest.problem is not None
        if explained or not requests.lost.any():
            return None
        return cls(int(np.count_nonzero(requests.lost)), requests.errors[int(np.flatnonzero(requests.lost)[0])])

    def _sentence(self) -> str:
        unrecorded = counted(self.requests, "request has", "requests have")
        reason = "" if self.reason is None else f" ({self.reason})"
        return f"A worker of the client did not come to its end: {unrecorded} no record{reason}."


@dataclass(frozen=True)
class AchievedBelowOffered(_Delayed, Finding):
    offered_rate: float
    achieved_rate: float
    cause: DelayCause

    code = "achieved_below_offered"
    severities = (Severity.WARNING, Severity.INVALID)
    when = (
        f"the achieved rate is below {_RATE_SHARE_WARNING:.0%} of the offered rate, or with a ceiling of the rate at which "
        f"the ceiling released requests; invalid below {_RATE_SHARE_INVALID:.0%}"
    )
    advices = (
        *_Delayed.advices,
        "Requests were lost, and this rate does not count them, since it is unknown when they were sent. The finding errors "
        "has the reason: remove it, and measure again.",
    )
    briefs = (*_Delayed.briefs, "Lost requests are not in the rate: see why they were lost")

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        offered, achieved = facts.metrics.offered_rate, facts.metrics.achieved_rate
        if offered is not None and facts.load.max_concurrency is not None:
            # A request that waits at the ceiling cannot be sent any earlier.
            due_ns = facts.requests.scheduled_ns + facts.requests.ceiling_wait_ns
            offered = mean_rate(due_ns[facts.requests.offered])
        if offered is None or achieved is None or facts.interrupted or achieved >= _RATE_SHARE_WARNING * offered:
            return None
        lost = facts.requests.lost
        as_scheduled = mean_rate(np.where(lost, facts.requests.scheduled_ns, facts.requests.sent_ns)) if lost.any() else None
        if as_scheduled is not None and as_scheduled >= _RATE_SHARE_WARNING * offered:
            return cls(offered, achieved, DelayCause.LOST)
        slip_ms = client_slip_ms(facts.requests)
        return cls(offered, achieved, cause_of(facts.client, float(slip_ms.max())))

    @property
    def severity(self) -> Severity:
        return Severity.INVALID if self.achieved_rate < _RATE_SHARE_INVALID * self.offered_rate else Severity.WARNING

    @property
    def advice(self) -> str:
        return self.advices[-1] if self.cause is DelayCause.LOST else super().advice

    def _sentence(self) -> str:
        achieved, offered = two_decimals(self.achieved_rate), two_decimals(self.offered_rate)
        return f"{achieved} requests/s were sent where {offered} were offered."


@dataclass(frozen=True)
class ObjectivesLostToClient(_Delayed, Finding):
    """``lost`` requests met every objective of --slo from the send, and missed one because the client sent them late."""

    lost: int
    attainment: float
    attainment_from_send: float
    cause: DelayCause
    cpu_share: float | None

    code = "objectives_lost_to_client"
    severities = (Severity.WARNING,)
    when = (
        f"at least {_LOST_SHARE:.0%} of the requests sent, and {_LOST_REQUESTS} of them, met every objective of --slo from the "
        "send, and missed one from the schedule because the client sent them late; waits at a ceiling are not counted"
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        goodput = facts.metrics.goodput
        if goodput is None or goodput.lost_to_client < max(_LOST_REQUESTS, _LOST_SHARE * goodput.sent):
            return None
        busiest = None if facts.client is None else facts.client.busiest
        return cls(
            lost=goodput.lost_to_client,
            attainment=goodput.attainment,
            attainment_from_send=goodput.attainment_from_send,
            cause=cause_of(facts.client, nearest_rank(np.sort(client_slip_ms(facts.requests)), 0.99)),
            cpu_share=None if busiest is None else busiest.cpu_share,
        )

    def _sentence(self) -> str:
        used = "" if self.cpu_share is None else f" The busiest worker used {self.cpu_share:.0%} of a core."
        met = counted(self.lost, "request was sent late and met", "requests were sent late and met")
        return (
            f"{met} every objective from the send, but not from the schedule: attainment is "
            f"{percent(self.attainment, 1)} from the schedule and {percent(self.attainment_from_send, 1)} from the send.{used}"
        )


@dataclass(frozen=True)
class ClientSaturated(Finding):
    """The lag of the event loops delays sends, and the time stamps of arrivals that the kernel did not stamp."""

    lag_p99_ms: float | None
    lag_mean_ms: float | None
    lag_max_ms: float | None
    wake_ups: int
    p50_latency_from_sent_ms: float
    p99_icl_ms: float | None
    cpu_share: float | None
    run_queue_wait_share: float | None
    run_queue_wait_ms: float | None
    gc_longest_ms: float | None
    steal_cores: float | None
    unstamped_reads: int | None

    code = "client_saturated"
    severities = (Severity.WARNING, Severity.INVALID)
    when = (
        f"the event loops of the workers woke late: p99 lag of at least {_TAIL_FLOOR_MS:g} ms and "
        f"{_TAIL_SHARE_WARNING:.0%} of the median latency from the send, or {_GAPS_SHARE_WARNING:.0%} of the p99 gap between "
        f"responses; invalid above {_TAIL_SHARE_INVALID:.0%} of the median latency at p99, or {_MEAN_SHARE_INVALID:.0%} (and "
        f"{_MEAN_FLOOR_MS:g} ms) on average"
    )
    advices = tuple(remedy.advice for cause, remedy in REMEDIES.items() if cause is not DelayCause.NOT_CPU)
    briefs = tuple(remedy.brief for cause, remedy in REMEDIES.items() if cause is not DelayCause.NOT_CPU)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        client, latency_ms = facts.client, facts.latency_from_sent_p50_ms
        if client is None or latency_ms is None:
            return None
        finding = cls._of(client, latency_ms, facts)
        return finding if finding._material else None

    @classmethod
    def _of(cls, client: ClientHealth, latency_ms: float, facts: RunFacts) -> Self:
        lag, gaps_ms, connections = client.lag, facts.metrics.icl_ms, facts.manifest.connections
        return cls(
            lag_p99_ms=None if lag is None else lag.p99_ms,
            lag_mean_ms=None if lag is None else lag.mean_ms,
            lag_max_ms=None if lag is None else lag.max_ms,
            wake_ups=0 if lag is None else lag.samples,
            p50_latency_from_sent_ms=latency_ms,
            p99_icl_ms=None if gaps_ms is None else gaps_ms.p99,
            cpu_share=None if client.busiest is None else client.busiest.cpu_share,
            run_queue_wait_share=client.run_queue_wait_share,
            run_queue_wait_ms=client.wait_ms,
            gc_longest_ms=client.gc_longest_ms,
            steal_cores=client.steal_cores,
            unstamped_reads=None if connections is None else connections.unstamped_reads,
        )

    @property
    def _tail_ms(self) -> float:
        """p99 of the lag; 0 in a run too short for it."""
        return self.lag_p99_ms or 0.0 if self.wake_ups >= _SAMPLES_FOR_TAIL else 0.0

    @property
    def _mean_ms(self) -> float:
        """Mean lag; in a run too short for it, the mean wait for a core each time before a worker ran."""
        return (self.lag_mean_ms if self.wake_ups >= _SAMPLES_FOR_MEAN else self.run_queue_wait_ms) or 0.0

    @property
    def _material(self) -> bool:
        if self.severity is Severity.INVALID:
            return True
        limits_ms = [_TAIL_SHARE_WARNING * self.p50_latency_from_sent_ms]
        if self.p99_icl_ms is not None:  # where latencies are long, the gaps between tokens may still be as short as the lag
            limits_ms.append(_GAPS_SHARE_WARNING * self.p99_icl_ms)
        return self._tail_ms >= max(_TAIL_FLOOR_MS, min(limits_ms))

    @property
    def severity(self) -> Severity:
        tail_limit_ms = _TAIL_SHARE_INVALID * self.p50_latency_from_sent_ms
        mean_limit_ms = _MEAN_SHARE_INVALID * self.p50_latency_from_sent_ms
        tail_is_late = self._tail_ms >= _TAIL_FLOOR_MS and self._tail_ms > tail_limit_ms
        mean_is_late = self._mean_ms >= _MEAN_FLOOR_MS and self._mean_ms > mean_limit_ms
        return Severity.INVALID if tail_is_late or mean_is_late else Severity.WARNING

    @property
    def advice(self) -> str:
        return REMEDIES[self._cause].advice

    @property
    def _cause(self) -> DelayCause:
        return likely_cause(
            self.lag_max_ms or 0.0,
            steal_cores=self.steal_cores,
            gc_longest_ms=self.gc_longest_ms,
            cpu_share=self.cpu_share,
            run_queue_wait_share=self.run_queue_wait_share,
            lag_max_ms=self.lag_max_ms,
        )

    def _sentence(self) -> str:
        delayed = "its sends" if self.unstamped_reads == 0 else "its sends and times of arrival"
        lag = (
            ""
            if self.lag_p99_ms is None
            else f"they woke {self.lag_mean_ms:.1f} ms late on average, {self.lag_p99_ms:.1f} ms at p99, "
        )
        return (
            f"The client's workers ran late, and {delayed} are late: {lag}compared with a median latency of "
            f"{self.p50_latency_from_sent_ms:.1f} ms from the send{self._of_cause}."
        )

    @property
    def _of_cause(self) -> str:
        """The measurement that shows the cause of the advice, and no other cause."""
        shown: dict[DelayCause, tuple[float | None, str]] = {
            DelayCause.BUSY: (self.cpu_share, "{:.0%} of a core used"),
            DelayCause.DISPLACED: (self.run_queue_wait_share, "{:.0%} of the time spent waiting for a core"),
            DelayCause.COLLECTIONS: (self.gc_longest_ms, "longest garbage collection {:.1f} ms"),
            DelayCause.STEAL: (self.steal_cores, "{:.0%} of a core taken by the hypervisor"),
        }
        value, text = shown.get(self._cause, (None, ""))
        return "" if value is None else f" ({text.format(value)})"


@dataclass(frozen=True)
class ClockStepped(Finding):
    """Changes of the real-time and boot-time clocks against the monotonic one, which stops while the machine sleeps."""

    slept_s: float
    stepped_s: float

    code = "clock_stepped"
    severities = (Severity.WARNING, Severity.INVALID)
    when = (
        f"the wall clock was set by more than {_CLOCK_TOLERANCE_S * 1e3:g} ms during the run; invalid where the machine slept "
        "for that long"
    )
    advices = (
        "The numbers do not use that clock, but times that the server logged cannot be compared with theirs.",
        "The machine slept during the run, and the run's clock stopped meanwhile; keep it awake, and measure again.",
    )
    briefs = (
        "The wall clock was set: do not compare with the server's times",
        "The machine slept: keep it awake, and measure again",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        clock = facts.manifest.clock or ClockReadings()
        before, after = clock.before, clock.after
        if before is None or after is None:
            return None
        stepped_ns = after.realtime_minus_monotonic_ns - before.realtime_minus_monotonic_ns
        slept_ns = after.boottime_minus_monotonic_ns - before.boottime_minus_monotonic_ns
        finding = cls(slept_s=slept_ns / 1e9, stepped_s=stepped_ns / 1e9)
        return finding if finding._slept or abs(finding.stepped_s) > _CLOCK_TOLERANCE_S else None

    @property
    def _slept(self) -> bool:
        return abs(self.slept_s) > _CLOCK_TOLERANCE_S

    @property
    def severity(self) -> Severity:
        return Severity.INVALID if self._slept else Severity.WARNING

    @property
    def advice(self) -> str:
        return self.advices[1 if self._slept else 0]

    def _sentence(self) -> str:
        if self._slept:
            return f"The machine slept for {self.slept_s:.1f} s during the run."
        return f"The machine's wall clock was set by {self.stepped_s:+.3f} s during the run."


@dataclass(frozen=True)
class ConnectionLimitReached(Finding):
    """Counts and times over all workers that reported them."""

    requests: int
    per_worker: int | None
    opened: int | None
    longest_wait_ms: float | None
    total_wait_ms: float | None
    unstamped_reads: int | None
    workers_told: int | None

    code = "connection_limit_reached"
    severities = (Severity.WARNING,)
    when = "requests waited for a free stream or connection"
    advices = ("Their latencies include that wait, which the model did not cause: allow more streams or connections.",)
    briefs = ("Requests waited for a stream: allow more of them",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        connections = facts.manifest.connections
        if connections is None or not connections.limit_reached:
            return None
        return cls(
            requests=connections.limit_reached,
            per_worker=connections.per_worker,
            opened=connections.opened,
            longest_wait_ms=connections.longest_wait_ms,
            total_wait_ms=connections.total_wait_ms,
            unstamped_reads=connections.unstamped_reads,
            workers_told=connections.workers_told,
        )

    @property
    def evidence(self) -> dict[str, object]:
        """Without what is unknown."""
        return {name: value for name, value in super().evidence.items() if value is not None}

    def _sentence(self) -> str:
        return f"{counted(self.requests, 'request')} waited for a stream, because the server accepts no more of them at once."
