"""Findings about the requests that a target had in flight: how full its batch was, and whether its users kept in step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.full_batch import FEWEST_SPELLS, LONG_SPELL, LONG_WAIT, NEAR_LIMIT, SMALLEST_BATCH
from reports.metrics.waves import IN_STEP, LEAST_WAITED, MOST_WAVES, is_burst, waited_in_batches, waves_of
from reports.render.counts import counted
from reports.render.tables import tenths

_TAIL = 0.99


@dataclass(frozen=True)
class RareQueues(Finding):
    """``largest`` is the largest number of answers that came at the same time; ``limit`` is None where the target publishes
    none.
    """

    largest: int
    limit: int | None
    near_limit: bool
    waited: int
    spells: int

    code = "rare_queues"
    severities = (Severity.WARNING, Severity.NOTE)
    when = (
        f"in an open loop, requests waited for a place in the target's batch in fewer than {FEWEST_SPELLS} spells, and one of "
        f"these holds: there was at least one spell for each {LONG_SPELL / (1 - _TAIL):,.0f} answers; or the largest batch "
        f"that the target publishes is less than {NEAR_LIMIT:g} standard deviations above the mean number in the system. A "
        "request waited if more requests than that limit were in the system when it was sent. With a target that gives "
        f"{SMALLEST_BATCH} answers or more at the same time, it also waited if it was sent while the target gave the most, and "
        f"its first token took more than {LONG_WAIT:g} medians. A note if no limit is published, none waited, and p99 TTFT has "
        "an interval"
    )
    advices = (
        "Other runs at this load have longer queues, and a p99 that may be many times as high, so only its lower limit is "
        "shown. Send ten times as many requests, or lower --request_rate.",
        "The interval of p99 holds for loads without a queue. If the target may be near its capacity, send ten times as many "
        "requests, or read the metrics of a server that publishes its largest batch: other runs can have queues that this run "
        "does not have.",
    )
    briefs = (
        "Too few queues for p99: send more requests, or lower the rate",
        "No queue seen: p99 may be higher in other runs",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        batch, ttft = facts.metrics.full_batch, facts.metrics.ttft_ms
        if batch is None:
            return None
        if batch.no_upper_limit_reason(_TAIL) is None:
            distribution = None if ttft is None else ttft.scheduled
            has_interval = distribution is not None and distribution.percentile(_TAIL).interval is not None
            if batch.limit is not None or batch.waited or not has_interval:
                return None
        return cls(batch.largest, batch.limit, batch.near_limit, batch.waited, batch.spells)

    @property
    def _is_refused(self) -> bool:
        return self.near_limit or self.waited > 0

    @property
    def severity(self) -> Severity:
        return self.severities[0 if self._is_refused else 1]

    @property
    def advice(self) -> str:
        return self.advices[0 if self._is_refused else 1]

    def _sentence(self) -> str:
        limit = "its limit is not known" if self.limit is None else f"its limit is {self.limit:,}"
        batch = f"at most {self.largest:,} answers came at the same time, and {limit}"
        if not self.waited:
            return f"No request waited for a place in the target's batch in this run: {batch}."
        spells = "one spell" if self.spells == 1 else f"{self.spells:,} spells"
        waited = counted(self.waited, "request")
        if self.limit is not None and self.largest < self.limit:  # something else bounded the batch
            return (
                f"{waited} waited for the first token, in {spells}: at most {self.largest:,} answers came at the same time, "
                f"fewer than the target's limit of {self.limit:,}."
            )
        return f"{waited} waited for a place in the target's batch, in {spells}: {batch}."


@dataclass(frozen=True)
class UsersInStep(Finding):
    """``users`` are those of a closed loop; None where it is unknown, and where all requests were sent at once."""

    users: int | None
    period_s: float
    waves: int
    share: float
    at_once: bool = False

    code = "users_in_step"
    severities = (Severity.WARNING,)
    when = (
        f"in a closed loop, or where all requests are sent at once, at least {IN_STEP:.0%} of the answers end in the same "
        "third of a period of about the median E2E latency, or of the shortest one of requests sent at once, of which the run "
        f"has {MOST_WAVES} or fewer; of requests sent at once, at least {LEAST_WAITED:.0%} waited for others to end"
    )
    advices = (
        "The requests/s of a window depend on how many waves it happens to hold. Read output tokens/s, spread the start of the "
        "users with --ramp_up, let output lengths vary, or measure for more than 20 latencies.",
        "The requests/s of a window depend on how many waves it happens to hold. Read the output tokens/s of streamed answers, "
        "let output lengths vary, or send more requests: 20 times as many as the target serves at once.",
    )
    briefs = (
        "Users in step: read output tokens/s, or spread them with --ramp_up",
        "Answers in step: read output tokens/s, or send more requests",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        closed, burst = facts.load.closed, is_burst(facts.requests)
        found = waves_of(facts.requests) if closed or burst else None
        if found is not None and burst and not waited_in_batches(facts.requests):
            return None
        users = facts.load.concurrency if closed else None
        return None if found is None else cls(users, found.period_s, found.waves, found.share, not closed)

    @property
    def advice(self) -> str:
        return self.advices[int(self.at_once)]

    def _sentence(self) -> str:
        users = "The answers" if self.at_once else "The users" if self.users is None else f"The {self.users:,} users"
        return (
            f"{users} keep in step: {self.share:.0%} of the answers end in one third of each {tenths(self.period_s)} s, "
            f"in {self.waves:,} waves."
        )
