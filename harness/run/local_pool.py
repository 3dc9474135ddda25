"""The workers of a run as processes of this host."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait as wait_for_any

from harness.clients.protocol import ConnectionUsage
from harness.journal.set_aside import set_aside
from harness.run.file_limits import allow_files, files_needed
from harness.run.shared_state import Command, Control
from harness.run.worker import WorkerPlan
from harness.run.worker_process import WorkerProcess, start_worker

_START_DELAY_NS = 200_000_000  # enough for every worker to be asleep before the first arrival
_PERIOD_S = 0.1


class LocalPool:
    """A WorkerPool of ``count`` processes, which share memory with this one and send to ``targets``."""

    start_delay_ns = _START_DELAY_NS

    def __init__(self, count: int, targets: int = 1) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._control = Control(self._context, count, targets)
        self._workers: list[WorkerProcess] = []

    @property
    def workers(self) -> Sequence[WorkerProcess]:
        return tuple(self._workers)

    def start(self, plans: Sequence[WorkerPlan]) -> None:
        allow_files(files_needed([plan.part for plan in plans], plans[0].clients, plans[0].timeout_s))
        for plan in plans:
            set_aside(plan.journal, _note)
            set_aside(plan.samples, _note)
            self._workers.append(start_worker(plan, self._context, self._control))
        for worker, plan in zip(self._workers, plans, strict=True):
            worker.send_plan(plan)

    def await_ready(self) -> tuple[str, ...]:
        failures: list[str] = []
        waiting = {worker.pipe: worker for worker in self._workers}
        while waiting:
            for pipe in wait_for_any(list(waiting), timeout=_PERIOD_S):
                assert isinstance(pipe, Pipe)
                failures.extend(waiting.pop(pipe).await_ready().warm_up_failures)
            if self.command is not Command.RUN:
                raise KeyboardInterrupt
        return tuple(failures)

    def start_clock(self, start_ns: int) -> None:
        for worker in self._workers:
            worker.send_start(start_ns)

    @property
    def command(self) -> Command:
        return self._control.command

    def advance(self, command: Command) -> None:
        self._control.advance(command)

    def end_at(self, end_ns: int) -> None:
        self._control.end_at(end_ns)

    @property
    def sent(self) -> int:
        return self._control.sent

    @property
    def answered(self) -> int:
        return self._control.answered

    def sent_by(self, worker: int) -> int:
        return self._control.sent_by(worker)

    def usage_of(self, worker: int) -> ConnectionUsage | None:
        return self._control.usage_of(worker)

    def close(self) -> None:
        for worker in self._workers:
            if worker.is_alive:
                worker.process.kill()
        for worker in self._workers:
            worker.process.join()


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")
