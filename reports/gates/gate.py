"""A requirement of a run with its result and the evidence for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from reports.criteria import Requirement
from reports.metrics.clustered_arrivals import clustered_arrivals
from reports.metrics.configuration import OPEN_LOOP, ConfiguredLoad
from reports.metrics.in_flight import Queue, QueueGrowth, queue_of
from reports.metrics.requests import Requests
from reports.metrics.run_metrics import Metrics
from reports.statistics.estimate import Reason

_LEFT_BEHIND = 0.02  # of the arrivals, in overload: 5 % at 1.05 times the capacity


class Status(StrEnum):
    """PASSED or FAILED if the evidence is on one side of the limit; else UNDECIDED."""

    PASSED = "passed"
    FAILED = "FAILED"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Beyond:
    """The share of the requests that were beyond a gate's limit, its limits over runs like this one, and how large it may be:
    from 0 to 1. Each limit is wrong in at most 5 % of runs.
    """

    share: float
    low: float
    high: float
    allowed: float


@dataclass(frozen=True, slots=True)
class Evidence:
    """A number of a run with its limits, in the metric's unit; None is unknown.

    A percentile, attainment and the share of failures are judged by the requests ``beyond`` the limit. A percentile has no
    limits here: those of its own interval do not decide.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    beyond: Beyond | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """A requirement and its result; ``shown`` is the number in words, ``limits`` those of its interval where it has one, and
    ``grounds`` the rest of the evidence.
    """

    requirement: Requirement
    status: Status
    evidence: Evidence
    shown: str
    grounds: tuple[str, ...] = ()
    limits: str | None = None

    @property
    def why(self) -> str:
        """The evidence in words."""
        shown = self.shown if self.limits is None else f"{self.shown}, 95 %: {self.limits}"
        return "; ".join((shown, *self.grounds))


def growth_of(queue: Queue | None, rate_per_s: float | None) -> QueueGrowth | None:
    """The growth of the queue of an open loop, where a longer run has longer latencies: a queue that grows since the load
    drifts leaves few of the arrivals behind.
    """
    found = None if queue is None else queue.growth(rate_per_s)
    return found if found is not None and found.share_left_behind >= _LEFT_BEHIND else None


@dataclass(frozen=True)
class JudgedRun:
    """A run whose numbers and requests (the load's alone) are judged by requirements."""

    requests: Requests
    metrics: Metrics
    load: ConfiguredLoad = OPEN_LOOP

    @cached_property
    def growth(self) -> QueueGrowth | None:
        """The growth of its queue, as ``growth_of`` has it."""
        return None if self.load.closed else growth_of(queue_of(self.requests), self.load.rate_per_s)

    @cached_property
    def clustered(self) -> Reason | None:
        """The reason why no number that depends on the load has an interval: arrivals in few clusters."""
        return clustered_arrivals(self.requests, self.load.ramp_up_s)

    @property
    def length_s(self) -> float:
        """The time over which requests were due."""
        due_ns = self.requests.scheduled_ns
        return float(due_ns.max() - due_ns.min()) / 1e9 if due_ns.size else 0.0
