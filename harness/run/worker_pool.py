"""The workers of a run as its coordinator sees them, whether they are processes of this host or of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from harness.clients.protocol import ConnectionUsage
from harness.journal.worker_journal import JournalReader
from harness.run.shared_state import Command
from harness.run.worker import JournalFailed, WorkerPlan


class RunWorker(Protocol):
    """One worker. Its ``journal`` is a file of this host, which grows while the worker runs."""

    @property
    def number(self) -> int: ...

    @property
    def is_alive(self) -> bool:
        """Whether its journal may still grow."""
        ...

    @property
    def journal(self) -> JournalReader: ...

    @property
    def end_reason(self) -> str:
        """The reason why its journal has no last entry, of a worker that is not alive."""
        ...

    def abandon(self, reason: str) -> None:
        """End it, and wait for it no longer."""
        ...

    def journal_failures(self) -> Iterator[JournalFailed]:
        """The new reports of a journal that could not be written."""
        ...


class WorkerPool(Protocol):
    """All workers of a run. ``start_delay_ns`` is the time that they need from the sending of the start time to the start."""

    @property
    def start_delay_ns(self) -> int: ...

    @property
    def workers(self) -> Sequence[RunWorker]:
        """The workers that have been started."""
        ...

    def start(self, plans: Sequence[WorkerPlan]) -> None:
        """Start a worker for each plan. Raises RunError."""
        ...

    def await_ready(self) -> tuple[str, ...]:
        """Wait until every worker is connected and warm; returns the errors of the warm-up requests that failed.

        Raises RunError where a worker cannot begin, and KeyboardInterrupt where the run was stopped meanwhile.
        """
        ...

    def start_clock(self, start_ns: int) -> None:
        """Send every worker the run's start, in ns of this host's ``now_ns``."""
        ...

    @property
    def command(self) -> Command: ...

    def advance(self, command: Command) -> None:
        """Set the command of all workers, unless a later one is set. It may be called by a signal handler."""
        ...

    def end_at(self, end_ns: int) -> None:
        """Let nothing be due from this time of the run on, which is ``start_delay_ns`` ahead, so that all know it by then."""
        ...

    @property
    def sent(self) -> int:
        """Requests sent by all workers, as far as it is known here."""
        ...

    @property
    def answered(self) -> int | None:
        """Requests whose first response has come; None where that is unknown before their end."""
        ...

    def sent_by(self, worker: int) -> int | None:
        """Requests sent by one worker; None where the last ones are unknown."""
        ...

    def usage_of(self, worker: int) -> ConnectionUsage | None:
        """The use of a worker's connections; None where the worker ended without publishing it."""
        ...

    def close(self) -> None:
        """End what still runs. The workers keep what they have reported."""
        ...
