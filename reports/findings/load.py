"""Findings about the load: how requests arrived, whether the target kept up, and whether the run settled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.arrival_law import SIGNIFICANCE, check_arrivals, wandering_rate
from reports.metrics.cold_start import EXPLAINED_RATIO, EXPLAINED_SHARE, find_cold_start
from reports.metrics.configuration import Law, configured_law
from reports.metrics.in_flight import queue_growth
from reports.metrics.latency import ceiling_waits_ms
from reports.render.counts import counted, percent
from reports.render.tables import tenths, three_digits
from reports.statistics.percentiles import nearest_rank

# A p99 of the waits at the ceiling that is below one of these changes no conclusion.
_WAIT_FLOOR_MS = 2.0
_WAIT_SHARE = 0.1  # of the median latency
_MATERIAL_DISTANCE = 0.02  # Kolmogorov-Smirnov distance below which a difference does not affect a target
_SMALL_SLIP_MS = 2.0  # p99 of the slip below which a target receives what was scheduled ...
_SAME_DISPERSION = 0.1  # ... if the counts of arrivals vary as scheduled, to this share
_BY_CHANCE = 1e-4  # a smaller p-value is no chance


@dataclass(frozen=True)
class WaitedAtCeiling(Finding):
    max_concurrency: int | None
    waited: int
    share: float
    p99_wait_ms: float
    latency: str
    p99_from_schedule_ms: float | None
    p99_from_send_ms: float | None
    offered_rate: float | None
    achieved_rate: float | None

    code = "waited_at_ceiling"
    severities = (Severity.WARNING, Severity.NOTE)
    when = (
        f"p99 of the waits at --max_concurrency is at least {_WAIT_FLOOR_MS:g} ms and {_WAIT_SHARE:.0%} of the median "
        "latency from the send; a note where all requests are due at once"
    )
    advices = (
        "Users arriving at this rate experience the latency from the schedule, and the target received less load than that. "
        "Raise --max_concurrency to measure the target under the whole load, or lower --request_rate.",
        "All requests were due at the start, so the latencies from the schedule show how long the whole run took.",
    )
    briefs = (
        "Requests waited at --max_concurrency: raise it, or lower the rate",
        "All requests were due at once: read latencies from the send",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        waits_ms = np.sort(ceiling_waits_ms(facts.requests))
        latency = facts.latency
        if not waits_ms.size or latency.sent is None or latency.scheduled is None:
            return None
        p99_wait_ms = nearest_rank(waits_ms, 0.99)
        if p99_wait_ms < max(_WAIT_FLOOR_MS, _WAIT_SHARE * (latency.sent.p50 or 0.0)):
            return None
        waited = int(np.count_nonzero(waits_ms))
        return cls(
            max_concurrency=facts.load.max_concurrency,
            waited=waited,
            share=waited / waits_ms.size,
            p99_wait_ms=p99_wait_ms,
            latency="E2E latency" if facts.metrics.ttft_ms is None else "TTFT",
            p99_from_schedule_ms=latency.scheduled.p99,
            p99_from_send_ms=latency.sent.p99,
            offered_rate=facts.metrics.offered_rate,
            achieved_rate=facts.metrics.achieved_rate,
        )

    @property
    def _burst(self) -> bool:
        """Whether all requests were due at once, so that there is no requested rate."""
        return self.offered_rate is None

    @property
    def severity(self) -> Severity:
        return Severity.NOTE if self._burst else Severity.WARNING

    @property
    def advice(self) -> str:
        return self.advices[1 if self._burst else 0]

    def _sentence(self) -> str:
        most = "as many as --max_concurrency allows" if self.max_concurrency is None else f"{self.max_concurrency:,}"
        return (
            f"{counted(self.waited, 'request')} ({percent(self.share)}) waited in the client because {most} were in "
            f"flight, p99 {self.p99_wait_ms:,.1f} ms. p99 {self.latency} is {_milliseconds(self.p99_from_schedule_ms)} from "
            f"the schedule, which includes the wait, and {_milliseconds(self.p99_from_send_ms)} from the send, which does not."
        )


def _milliseconds(percentile_ms: float | None) -> str:
    """A percentile is None where it falls among failures."""
    return "failed" if percentile_ms is None else f"{percentile_ms:,.1f} ms"


@dataclass(frozen=True)
class RequestsRanOut(Finding):
    prepared: int | None
    duration_s: float | None
    last_sent_s: float

    code = "requests_ran_out"
    severities = (Severity.WARNING,)
    when = "fewer requests were prepared than --duration could have used"
    advices = ("No request is sent twice: prepare more with --num_requests or a longer dataset, or use a shorter --duration.",)
    briefs = ("The requests ran out before --duration: raise --num_requests",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        if not facts.load.ran_out:
            return None
        sent_ns = facts.requests.sent_ns[~np.isnan(facts.requests.sent_ns)]
        return cls(
            prepared=facts.load.prepared,
            duration_s=facts.load.duration_s,
            last_sent_s=float(sent_ns.max() / 1e9) if sent_ns.size else 0.0,
        )

    def _sentence(self) -> str:
        prepared = "" if self.prepared is None else f"{self.prepared:,} "
        of = "" if self.duration_s is None else f" of {self.duration_s:g} s"
        return f"All {prepared}prepared requests were sent after {tenths(self.last_sent_s)} s{of}; the run ended early."


@dataclass(frozen=True)
class QueueGrowing(Finding):
    in_system_before: float
    in_system_after: float
    arrivals: int
    share_left_behind: float
    offered_per_s: float
    completed_per_s: float

    code = "queue_growing"
    severities = (Severity.WARNING,)
    when = (
        "in an open loop, more requests arrived than the target completed: the number of requests in the system grew by more "
        "than it would at a target with a load of 90% of its capacity, beyond chance. The beginning does not count: the first "
        "fifth of the sending, or 1.5 times what nine tenths of the first answers took"
    )
    advices = (
        "The target is at or above its capacity: latencies grow with the run's length. Lower --request_rate, or read only the "
        "throughput.",
    )
    briefs = ("Overload, the queue grew: lower the rate, or read throughput alone",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        if facts.load.closed:  # the users wait for their answers, which bounds the queue
            return None
        growth = queue_growth(facts.requests, facts.load.rate_per_s)
        if growth is None:
            return None
        return cls(
            growth.in_system_before,
            growth.in_system_after,
            growth.arrivals,
            growth.share_left_behind,
            growth.offered_per_s,
            growth.completed_per_s,
        )

    def _sentence(self) -> str:
        return (
            f"The target completes {_rate(self.completed_per_s)} requests/s while {_rate(self.offered_per_s)}/s arrive: the "
            f"queue grew from {self.in_system_before:,.0f} to {self.in_system_after:,.0f} requests, by "
            f"{self.share_left_behind:.0%} of {self.arrivals:,} arrivals."
        )


def _rate(per_s: float) -> str:
    """A rate to a tenth, or to three digits of a small one: a large model completes less than a request a second."""
    return f"{per_s:,.1f}" if per_s >= 9.95 else three_digits(per_s)


@dataclass(frozen=True)
class NotSteady(Finding):
    reason: str | None

    code = "not_steady"
    severities = (Severity.WARNING,)
    when = "no steady window was found"
    advices = ("The numbers depend on the length of the run; make it longer, or the load lower, before you compare.",)
    briefs = ("No steady state: make the run longer, or the load lower",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        windows = facts.metrics.windows
        if windows.steady is not None or windows.too_few_to_tell or facts.interrupted:
            return None
        return cls(windows.not_steady)

    def _sentence(self) -> str:
        return f"No steady state was found: {self.reason}."


@dataclass(frozen=True)
class ColdStartFound(Finding):
    latency: str
    seconds: float
    early_ms: float
    later_ms: float
    ratio: float

    code = "cold_start"
    severities = (Severity.WARNING,)
    when = (
        "mean and median TTFT (or E2E latency of an unstreamed run) of the first 1/24, 1/12, 1/6, 1/4 or 1/3 of the sending "
        "are at least 1.25 times those of its second half, the difference of the means is beyond chance (0.1%), and the load "
        "does not explain it: in an open loop, the same arrivals at a server of even speed, at any load up to its capacity, "
        f"make less than {EXPLAINED_SHARE:.0%} of the difference, and would not by themselves make the early latencies "
        f"{EXPLAINED_RATIO:g} times as long"
    )
    advices = (
        "The numbers of the whole run include the cold start. Read the steady window, or send more --warmup_requests before "
        "the clock starts.",
    )
    briefs = ("Cold start: read the steady window, or raise --warmup_requests",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        cold = find_cold_start(facts.requests, facts.load)
        if cold is None:
            return None
        return cls("TTFT" if facts.metrics.streamed else "E2E latency", cold.seconds, cold.early_ms, cold.later_ms, cold.ratio)

    def _sentence(self) -> str:
        return (
            f"{self.latency} of the first {tenths(self.seconds)} s is {self.ratio:.1f} times that of the second half of the "
            f"run (means: {self.early_ms:,.1f} and {self.later_ms:,.1f} ms)."
        )


@dataclass(frozen=True)
class ArrivalsNotAsAsked(Finding):
    """``statistic`` is the Kolmogorov-Smirnov distance; for constant gaps the share that deviates, without a ``p_value``."""

    law: str
    rate_per_s: float
    gaps: int
    statistic: float
    p_value: float | None
    sent_dispersion: float | None
    as_scheduled: bool

    code = "arrivals_not_as_asked"
    severities = (Severity.WARNING, Severity.NOTE)
    when = (
        f"a Kolmogorov-Smirnov test at the {SIGNIFICANCE:.0%} level rejects that the gaps between sends have the requested "
        f"exponential or gamma distribution; or more than {SIGNIFICANCE:.0%} of constant gaps deviate by more than 10% and 1 "
        f"ms. A note where the difference cannot affect a target: a distance below {_MATERIAL_DISTANCE:g}; or a schedule with "
        f"that distribution, a p99 slip below {_SMALL_SLIP_MS:g} ms, and an index of dispersion of the sends within "
        f"{_SAME_DISPERSION:.0%} of the schedule's"
    )
    advices = (
        "See the schedule slip. Chance rejects one correct run in a hundred: measure again with another --seed to rule it out.",
        "The difference is real but too small for a target to notice.",
        "See the schedule slip: the client does not send as scheduled.",
    )
    briefs = (
        "Sends may not follow the arrival process: try another --seed",
        "Sends differ from the arrival process, too little to matter",
        "Sends do not follow the arrival process: see the schedule slip",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        law = configured_law(facts.manifest)
        test = None if law is None else check_arrivals(facts.requests, law)
        if test is None or not test.rejected:
            return None
        return cls(
            law=test.law.name,
            rate_per_s=test.law.rate_per_s,
            gaps=test.gaps,
            statistic=test.statistic,
            p_value=test.p_value,
            sent_dispersion=facts.metrics.sent_dispersion,
            as_scheduled=_as_scheduled(facts, test.law),
        )

    @property
    def _material(self) -> bool:
        return not self.as_scheduled and (self.p_value is None or self.statistic >= _MATERIAL_DISTANCE)

    @property
    def severity(self) -> Severity:
        return Severity.WARNING if self._material else Severity.NOTE

    @property
    def advice(self) -> str:
        if not self._material:
            return self.advices[1]
        return self.advices[0 if self.p_value is not None and self.p_value > _BY_CHANCE else 2]

    def _sentence(self) -> str:
        requested = f"{self.law} gaps at {self.rate_per_s:g} requests/s"
        if self.p_value is None:
            return f"{self.statistic:.1%} of {self.gaps:,} gaps between sends deviate from the requested {requested}."
        return (
            f"{self.gaps:,} gaps between sends are not {requested}: Kolmogorov-Smirnov distance {self.statistic:.3f}, "
            f"p = {self.p_value:.1g}."
        )


def _as_scheduled(facts: RunFacts, law: Law) -> bool:
    """Whether the schedule follows the law, and the sends follow the schedule so closely that only the client's timer makes a
    difference.
    """
    slip, metrics = facts.metrics.slip_ms, facts.metrics
    if slip is None or slip.p99 is None or slip.p99 > _SMALL_SLIP_MS:
        return False
    if not metrics.scheduled_dispersion or metrics.sent_dispersion is None:
        return False
    of_schedule = check_arrivals(replace(facts.requests, sent_ns=facts.requests.scheduled_ns), law)
    if of_schedule is None or of_schedule.rejected:
        return False
    return abs(metrics.sent_dispersion / metrics.scheduled_dispersion - 1.0) <= _SAME_DISPERSION


@dataclass(frozen=True)
class RateWanders(Finding):
    law: str
    rate_per_s: float
    window_s: float
    dispersion: float
    p_value: float

    code = "rate_wanders"
    severities = (Severity.WARNING,)
    when = (
        "the numbers of sends in windows of 1, 2.5, 5, 10 or 20 s vary more than they would with the requested exponential or "
        "gamma gaps, beyond chance (0.1%)"
    )
    advices = ("The load on the target rose and fell. See the schedule slip, and what else ran on the client's machine.",)
    briefs = ("The rate of sends wandered: see the schedule slip",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        law = configured_law(facts.manifest)
        found = None if law is None else wandering_rate(facts.requests, law)
        if law is None or found is None:
            return None
        return cls(law.name, law.rate_per_s, found.window_s, found.dispersion, found.p_value)

    def _sentence(self) -> str:
        return (
            f"The rate of sends wanders: in windows of {self.window_s:g} s their numbers have {self.dispersion:.1f} times the "
            f"variance of {self.law} gaps at {self.rate_per_s:g} requests/s, p = {self.p_value:.1g}."
        )
