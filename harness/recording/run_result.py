"""The result of a run, which coordinator, recovery, the writing of a run's files and the command line share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from bench_records.record import Record
from harness.clients.protocol import ConnectionUsage


@dataclass(frozen=True, slots=True)
class RuleEnd:
    """A run's end by a rule: nothing was due from ``end_ns`` on. ``reason`` is the rule's, in words."""

    end_ns: int
    reason: str


@dataclass(frozen=True)
class RunResult:
    """One record for each request that was due, sorted by due time, and how the run ended.

    ``ran_out``: users of a closed loop had no request left to send before its end. ``problem`` is the error of the journal
    because of which the client stopped sending, ``rule_end`` when and why a rule ended the run. ``started_at`` is None where a
    recovered run's journals do not contain it.
    """

    records: tuple[Record, ...]
    started_at: datetime | None
    duration_s: float
    interrupted: bool
    warm_up_failures: tuple[str, ...]
    ran_out: bool = False
    connections: tuple[ConnectionUsage | None, ...] = ()  # by worker; None for one that died
    problem: str | None = None
    rule_end: RuleEnd | None = None
