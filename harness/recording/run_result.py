"""The result of a run: its records, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from harness.clients.protocol import ConnectionUsage
from harness.records.record import Record


@dataclass(frozen=True)
class RunResult:
    """What came of it: one record for each request that was due, sorted by when.

    ``ran_out`` says that users of a closed loop found nothing left to send before its end.
    ``problem`` says why the client could not write down what it measured, and so stopped. ``started_at`` is None where a
    recovered run's journals do not tell it.
    """

    records: tuple[Record, ...]
    started_at: datetime | None
    duration_s: float
    interrupted: bool
    warm_up_failures: tuple[str, ...]
    ran_out: bool = False
    connections: tuple[ConnectionUsage | None, ...] = ()  # by worker; None of one that died
    problem: str | None = None
