"""A worker from the parent's side: its process, the pipe to it, and the journal that it writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import SpawnContext, SpawnProcess

from harness.errors import RunError
from harness.host.blas_threads import one_blas_thread
from harness.host.signals import signals_blocked
from harness.journal.worker_journal import JournalReader
from harness.run.shared_state import Control
from harness.run.worker import JournalFailed, Ready, WorkerPlan, run_worker

NAME_PREFIX = "bench-worker-"


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker that has been started. ``journal`` is read while the worker writes it."""

    number: int
    process: SpawnProcess
    pipe: Pipe
    journal: JournalReader
    given_up: list[str] = field(default_factory=list)

    @property
    def is_alive(self) -> bool:
        return self.process.is_alive()

    @property
    def end_reason(self) -> str:
        return self.given_up[0] if self.given_up else f"its worker ended with status {self.process.exitcode}"

    def send_plan(self, plan: WorkerPlan) -> None:
        """Give the worker what it is to do, which it reads when its modules are loaded. Raises RunError where it has ended."""
        try:
            self.pipe.send(plan)
        except OSError:
            raise self._ended_early() from None

    def await_ready(self) -> Ready:
        """Return the worker's Ready message, waiting for it. Raises RunError where the worker ends without one or failed."""
        try:
            ready: Ready = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._ended_early() from None
        if ready.problem is not None:
            raise RunError(f"{self.process.name} {ready.problem}")
        return ready

    def _ended_early(self) -> RunError:
        self.process.join()
        return RunError(f"{self.process.name} ended with status {self.process.exitcode} before the run began")

    def send_start(self, start_ns: int) -> None:
        """Send the run's start time. Where the worker has died since it was ready, its requests will be recorded as lost."""
        with suppress(BrokenPipeError):
            self.pipe.send(start_ns)

    def abandon(self, reason: str) -> None:
        """End it, and wait for it no longer; its requests without a record have ``reason``."""
        self.process.kill()
        self.given_up.append(reason)

    def journal_failures(self) -> Iterator[JournalFailed]:
        """The new reports of a journal that could not be written."""
        with suppress(EOFError, OSError):  # the worker has ended
            while self.pipe.poll():
                message = self.pipe.recv()
                assert isinstance(message, JournalFailed)
                yield message


def start_worker(plan: WorkerPlan, context: SpawnContext, control: Control) -> WorkerProcess:
    """Start a worker process, with SIGINT and SIGTERM blocked in it, and numpy in one thread. It waits to be sent its plan.

    The plan is no argument of the process: multiprocessing writes those to a pipe that it keeps open itself, and would wait
    without end for a process that died before it read them all.
    """
    ours, theirs = context.Pipe()
    process = context.Process(
        target=run_worker, args=(plan.worker, theirs, control), name=f"{NAME_PREFIX}{plan.worker}", daemon=True
    )
    with signals_blocked(), one_blas_thread():
        process.start()
    theirs.close()
    return WorkerProcess(plan.worker, process, ours, JournalReader(plan.journal, plan.run_id))
