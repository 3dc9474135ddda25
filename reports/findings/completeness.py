"""Findings about what a run lacks: it ended early, parts of it were not recorded, or it is too small for its claims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import msgspec
import numpy as np

from bench_records.record import Outcome
from reports.criteria import parse_until
from reports.findings.finding import Finding, RunFacts, Severity
from reports.metrics.distribution import stopped_workers
from reports.metrics.precision import half_width
from reports.metrics.requests import Requests
from reports.render.counts import counted
from reports.statistics.percentiles import required_samples

_MOST_DECIMALS = 7
_NO_FAILURE = [outcome.value for outcome in (Outcome.DONE, Outcome.WITHDRAWN, Outcome.NOT_SENT, Outcome.CANCELLED)]


@dataclass(frozen=True)
class Interrupted(Finding):
    """``not_sent`` and ``scheduled`` are None in a closed loop that ends by the clock: it has no planned number of requests."""

    not_sent: int | None
    scheduled: int | None

    code = "interrupted"
    severities = (Severity.WARNING,)
    when = "the run was stopped before its end, and not some of its workers alone (`workers_stopped`)"
    advices = ("The run was stopped early; its numbers cover a shorter run than requested.",)
    briefs = ("Stopped early: the numbers cover a shorter run",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        not_sent = facts.metrics.not_sent - turns_behind_failures(facts.requests)
        if not facts.interrupted and (not not_sent or stopped_workers(facts.manifest)):
            return None
        if not facts.load.closed:
            return cls(not_sent, facts.metrics.scheduled)
        prepared = facts.load.prepared if facts.load.duration_s is None else None
        return cls(None if prepared is None else prepared - facts.metrics.scheduled, prepared)

    def _sentence(self) -> str:
        if self.not_sent is None:
            return "The run was stopped before its end."
        return f"The run was stopped; {self.not_sent:,} of {self.scheduled:,} requests were not sent."


@dataclass(frozen=True)
class EndedEarly(Finding):
    """``planned`` is None where the clock would have decided how many requests there are."""

    rule: str
    reason: str
    gave_up: bool
    requests: int
    planned: int | None

    code = "ended_early"
    severities = (Severity.WARNING, Severity.NOTE)
    when = "a rule ended the run: `--stop_if`, which is a warning, or `--until`"
    advices = (
        "The run was ended since it went badly: the load is too high, and the numbers are those of the worst part.",
        "The run ended when it was precise enough; its numbers are those of a run of this length.",
    )
    briefs = ("Ended by --stop_if: the load is too high", "Ended when precise enough")

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        end = facts.manifest.early_end
        return None if end is None else cls(end.rule, end.reason, end.gave_up, end.requests, end.planned)

    @property
    def severity(self) -> Severity:
        return self.severities[0 if self.gave_up else 1]

    @property
    def advice(self) -> str:
        return self.advices[0 if self.gave_up else 1]

    def _sentence(self) -> str:
        sent = f"{self.requests:,} of {counted(self.planned, 'request')}" if self.planned else counted(self.requests, "request")
        return f"The run was ended by {self.rule} after {sent}: {self.reason}."


@dataclass(frozen=True)
class BoundReached(Finding):
    """``half_width`` is that of the 95 % interval, as a share of the number; None where it has none."""

    until: str
    half_width: float | None
    requests: int

    code = "bound_reached"
    severities = (Severity.WARNING,)
    when = "a run with `--until` came to its bound, and its number is less precise than requested"
    advices = ("Raise --num_requests or --duration, or ask for less: twice the precision needs four times the requests.",)
    briefs = ("Not precise at its bound: raise --num_requests or --duration",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        until = facts.manifest.criteria.until
        if until is None or facts.interrupted or facts.manifest.early_end is not None:
            return None
        try:
            goal = parse_until(until)
        except ValueError:  # of another version
            return None
        estimate = goal.estimate(facts.metrics.latencies.get(goal.metric))
        if goal.is_met(estimate, margin=1.0):
            return None
        return cls(str(goal), half_width(estimate), facts.metrics.scheduled)

    def _sentence(self) -> str:
        known = "it has no interval" if self.half_width is None else f"it is known to ± {self._reached} %"
        return f"Bound reached: {self.until} was not reached by {counted(self.requests, 'request')}, and {known}."

    @property
    def _reached(self) -> str:
        """The half width in per cent, with as many digits as show that it is more than was requested."""
        reached, requested = 100.0 * (self.half_width or 0.0), 100.0 * parse_until(self.until).share
        texts = (f"{reached:.{decimals}f}" for decimals in range(1, _MOST_DECIMALS))
        return next((text for text in texts if float(text) > requested), f"{reached:.1f}")


@dataclass(frozen=True)
class TurnsNotSent(Finding):
    turns: int
    scheduled: int

    code = "turns_not_sent"
    severities = (Severity.WARNING,)
    when = "turns of sessions were not sent, since an answer that they wait for failed"
    advices = ("Fix what fails, or lower the load: broken conversations lighten the load, so results look better.",)
    briefs = ("Conversations broke off: fix what fails, or lower the load",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        turns = turns_behind_failures(facts.requests)
        return cls(turns, facts.metrics.scheduled) if turns else None

    def _sentence(self) -> str:
        return f"{self.turns:,} of {self.scheduled:,} requests were not sent, since a turn that they wait for failed."


def turns_behind_failures(requests: Requests) -> int:
    """The number of turns that were not sent since a turn before them failed; not those that waited for an answer which was in
    flight when the run was stopped.
    """
    if np.isnan(requests.parent).all():
        return 0
    place = {index: k for k, index in enumerate(requests.index.tolist())}
    is_unsent = requests.outcome == Outcome.NOT_SENT.value
    has_failed = ~np.isin(requests.outcome, _NO_FAILURE)
    behind: set[int] = set()
    for k in np.argsort(requests.index, kind="stable").tolist():  # a parent has the lower index
        if is_unsent[k] and not np.isnan(requests.parent[k]):
            parent = place[int(requests.parent[k])]
            if has_failed[parent] or parent in behind:
                behind.add(k)
    return len(behind)


@dataclass(frozen=True)
class Recovered(Finding):
    scheduled: int
    written_down: int
    lost: int
    not_sent: int
    journals: int
    torn_bytes: int

    code = "recovered"
    severities = (Severity.WARNING,)
    when = "the run was cut short, and its records were recovered from its journals"
    advices = (
        "The run was cut short, and its records were recovered from its journals: read it as a shorter run, and measure again "
        "to compare.",
    )
    briefs = ("Recovered after a crash: measure again before you compare",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        recovered = facts.manifest.recovered
        return None if recovered is None else cls(**msgspec.structs.asdict(recovered))

    def _sentence(self) -> str:
        return (
            f"The run was cut short: of {self.scheduled:,} requests, {self.written_down:,} were recorded, "
            f"{self.lost:,} are lost, {self.not_sent:,} were not sent"
            + (", and records were torn or damaged." if self.torn_bytes else ".")
        )


@dataclass(frozen=True)
class RecordingFailed(Finding):
    """``problem`` is the system's message; ``at_worker``: of the machine of a worker that Locust connects."""

    problem: str
    at_worker: bool

    code = "recording_failed"
    severities = (Severity.WARNING,)
    when = "the client could not write its journal, and stopped sending"
    advices = (
        "Free some space on the disk of the run's folder, or name another folder with --run_dir, and measure again.",
        "Free some space on the disk of that worker's folder (--work_dir of 'bench worker'; with --locust_processes the "
        "temporary directory, TMPDIR), and measure again.",
    )
    briefs = (
        "The disk was full: make room, or name another --run_dir",
        "A worker's disk was full: make room there",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        problem = facts.manifest.problem
        return cls(problem, facts.manifest.distribution is not None) if problem else None

    @property
    def advice(self) -> str:
        return self.advices[self.at_worker]

    def _sentence(self) -> str:
        return f"Sending stopped because the client could not write its journal: {self.problem}."


@dataclass(frozen=True)
class PromptsDropped(Finding):
    dropped: int

    code = "prompts_dropped"
    severities = (Severity.NOTE,)
    when = "prompts were too long, and were left out"
    advices = (
        "Prompts longer than --max_input_len, or too long for the model's context with their output, were left out; raise "
        "--max_input_len, or state it beside the numbers.",
    )
    briefs = ("Prompts were dropped as too long: raise --max_input_len",)

    @classmethod
    def check(cls, facts: RunFacts) -> Self | None:
        dropped = facts.manifest.workload.dropped_too_long
        return cls(dropped) if dropped else None

    def _sentence(self) -> str:
        return f"{counted(self.dropped, 'prompt was', 'prompts were')} dropped as too long."


@dataclass(frozen=True)
class SampleTooSmall(Finding):
    """``whole_dataset``: every prompt of a dataset was sent, so that more requests have to repeat it."""

    n: int
    needed_for_p99: int
    whole_dataset: bool

    code = "sample_too_small"
    severities = (Severity.NOTE,)
    when = "fewer than 662 latencies, the number that a claim about p99 needs at 99% confidence"
    advices = (
        "A claim about p99 needs more successful requests (99 % confidence); raise --num_requests. The intervals of so short a "
        "run are too narrow where the load changes slowly.",
        "A claim about p99 needs more successful requests (99 % confidence) than the dataset has prompts: repeat it with "
        "--repeat_dataset and a higher --num_requests. The intervals of so short a run are too narrow where the load changes "
        "slowly.",
        "A claim about p99 needs more successful requests (99 % confidence) than the conversations of the dataset have turns: "
        "use a dataset with more conversations. The intervals of so short a run are too narrow where the load changes slowly.",
    )
    briefs = (
        "Too few requests for p99: raise --num_requests",
        "Too few prompts for p99: raise --num_requests, with --repeat_dataset",
        "Too few turns for p99: use a dataset with more conversations",
    )

    @classmethod
    def check(cls, facts: RunFacts) -> SampleTooSmall | None:
        needed = required_samples(0.99)
        latency = facts.metrics.e2e_ms.scheduled
        if latency is None or latency.supports(0.99):
            return None
        whole = bool(facts.manifest.workload.whole_dataset)
        kind = ConversationsTooFew if whole and (facts.requests.session_of >= 0).any() else SampleTooSmall
        return kind(latency.n + latency.censored, needed, whole)

    @property
    def advice(self) -> str:
        return self.advices[int(self.whole_dataset)]

    def _sentence(self) -> str:
        return f"{counted(self.n, 'latency', 'latencies')} cannot support p99, which needs {self.needed_for_p99:,}."


class ConversationsTooFew(SampleTooSmall):
    """For a run that sent all conversations of a dataset (--sessions), which are not repeated."""

    advice = SampleTooSmall.advices[-1]
