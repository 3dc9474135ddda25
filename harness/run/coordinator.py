"""One run: starts the workers, gives them one start time, follows their journals, and accounts for every request."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.context import SpawnProcess
from types import FrameType

from harness.clients.protocol import Client
from harness.errors import RunError
from harness.host.clock import now_ns
from harness.host.cpu_priority import giving_way
from harness.host.signals import signals_blocked
from harness.journal.worker_journal import Ended, JournalReader
from harness.recording.accounting import WorkerEnd, account_for_all, ran_out
from harness.recording.recorder import Recorder
from harness.recording.run_result import RunResult
from harness.records.record import Record
from harness.records.run_folder import RunFolder
from harness.run.file_limits import allow_files, files_needed
from harness.run.live_statistics import LiveStatistics, Snapshot
from harness.run.shared_state import Control, Phase
from harness.run.worker import JournalFailed, Ready, WorkerPlan, run_worker
from workloads.request import Request
from workloads.schedule import AnySchedule, ClosedSchedule

_START_DELAY_NS = 200_000_000  # enough for every worker to be asleep before the first arrival
_FOLLOW_PERIOD_S = 0.1
_MOST_A_TURN = 1_000  # exchanges of one worker, before the others' and the live line have their turn

OnProgress = Callable[[Snapshot], None]
# Entered when the warm-up is over; what it gives is told the start time; left when every worker has ended. It raises nothing.
Watch = AbstractContextManager[Callable[[int], object]]


def _watch_nothing() -> Watch:
    return nullcontext(lambda start_ns: None)


@dataclass(frozen=True)
class RunPlan:
    """What to run. ``timeout_s`` limits each request; warm-up requests are sent before the clock starts.

    ``worker_cores`` are cores for the workers alone, one each; empty where they share.
    """

    schedule: AnySchedule
    client: Client
    recorder: Recorder
    folder: RunFolder
    workers: int
    warm_up: tuple[Request, ...]
    timeout_s: float
    worker_cores: tuple[int, ...] = ()
    watch: Watch = field(default_factory=_watch_nothing)


def execute(plan: RunPlan, on_progress: OnProgress) -> RunResult:
    """Carry out the run. The first SIGINT or SIGTERM stops sending and drains, the second breaks off what is in flight.

    Raises RunError when a worker cannot start, every warm-up request fails, or too few files may be open.
    """
    allow_files(files_needed(plan.schedule, plan.workers, plan.client, plan.timeout_s))
    context = multiprocessing.get_context("spawn")
    control = Control(context, plan.workers)
    with _stopping_on_signals(control), _kept_off(plan.worker_cores), ExitStack() as watching:
        processes: list[SpawnProcess] = []
        try:
            pipes = _start_workers(plan, context, control, processes)
            failures = _await_ready(plan, processes, pipes, control)
            tell_start = watching.enter_context(plan.watch)
            start_ns = now_ns() + _START_DELAY_NS
            started_at = datetime.now(UTC) + timedelta(microseconds=_START_DELAY_NS / 1e3)
            for pipe in pipes:
                with suppress(BrokenPipeError):  # that worker has died since; its requests will be recorded as lost
                    pipe.send(start_ns)
            tell_start(start_ns)
            journals = [JournalReader(plan.folder.journal(worker)) for worker in range(plan.workers)]
            records, failed = giving_way(_follow, plan, journals, processes, pipes, control, start_ns, on_progress)
            duration_s, phase = (now_ns() - start_ns) / 1e9, control.phase
        finally:
            _end_workers(processes)
    ends = [
        WorkerEnd(journal.ended or _told(failed, worker), control.sent_by(worker), f"its worker ended with status {code}")
        for worker, (journal, code) in enumerate(zip(journals, (process.exitcode for process in processes), strict=True))
    ]
    accounted = account_for_all(plan.recorder, records, ends)
    interrupted = phase is not Phase.RUN
    return RunResult(
        records=accounted,
        started_at=started_at,
        duration_s=duration_s,
        interrupted=interrupted and not failed,
        warm_up_failures=failures,
        ran_out=not interrupted and ran_out(plan.recorder.schedule, accounted),
        connections=tuple(control.usage_of(worker) for worker in range(plan.workers)),
        problem=failed[0][1].problem if failed else None,
    )


def _told(failed: Sequence[tuple[int, JournalFailed]], worker: int) -> Ended | None:
    """The last entry that the worker's journal did not take, but the worker told."""
    return next((said.ended for number, said in failed if number == worker and said.ended is not None), None)


@contextmanager
def _stopping_on_signals(control: Control) -> Iterator[None]:
    def on_signal(number: int, frame: FrameType | None) -> None:
        control.advance(Phase.DRAIN if control.phase is Phase.RUN else Phase.ABORT)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, before)  # who blocked them wants no gap before and after, not deafness
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _kept_off(cores: tuple[int, ...]) -> Iterator[None]:
    """This process, which follows the run, leaves the workers' cores to them."""
    before = os.sched_getaffinity(0)
    if cores and before - set(cores):
        os.sched_setaffinity(0, before - set(cores))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _start_workers(
    plan: RunPlan, context: multiprocessing.context.SpawnContext, control: Control, processes: list[SpawnProcess]
) -> list[Pipe]:
    """Start every worker, adding it to ``processes`` as soon as it runs; returns the pipes to them."""
    pipes: list[Pipe] = []
    for worker in range(plan.workers):
        ours, theirs = context.Pipe()
        part = plan.schedule.part(worker, plan.workers)
        worker_plan = WorkerPlan(
            worker=worker,
            client=plan.client,
            part=part,
            requests=[plan.schedule.requests[index] for index in part.indices],
            warm_up=plan.warm_up[worker :: plan.workers],
            timeout_s=plan.timeout_s,
            journal=plan.folder.journal(worker),
            schedule_digest=plan.schedule.digest,
            core=plan.worker_cores[worker] if plan.worker_cores else None,
            probe=plan.folder.worker_probe(worker),
        )
        process = context.Process(
            target=run_worker, args=(worker_plan, theirs, control), name=f"bench-worker-{worker}", daemon=True
        )
        with signals_blocked():
            process.start()
        theirs.close()
        processes.append(process)
        pipes.append(ours)
    return pipes


def _await_ready(plan: RunPlan, processes: list[SpawnProcess], pipes: list[Pipe], control: Control) -> tuple[str, ...]:
    failures: list[str] = []
    waiting = dict(zip(pipes, processes, strict=True))
    while waiting:
        for pipe in wait_for_any(list(waiting), timeout=_FOLLOW_PERIOD_S):
            assert isinstance(pipe, Pipe)
            process = waiting.pop(pipe)
            try:
                ready: Ready = pipe.recv()
            except EOFError:
                process.join()
                raise RunError(f"{process.name} ended with status {process.exitcode} before the run began") from None
            if ready.problem is not None:
                raise RunError(f"{process.name} cannot reach the server: {ready.problem}")
            failures.extend(ready.warm_up_failures)
        if control.phase is not Phase.RUN:
            raise KeyboardInterrupt
    if plan.warm_up and len(failures) == len(plan.warm_up):
        raise RunError(f"every warm-up request failed; the first said: {failures[0]}")
    return tuple(failures)


def _follow(
    plan: RunPlan,
    journals: list[JournalReader],
    processes: list[SpawnProcess],
    pipes: list[Pipe],
    control: Control,
    start_ns: int,
    on_progress: OnProgress,
) -> tuple[dict[int, Record], list[tuple[int, JournalFailed]]]:
    """Turn exchanges into records while they are written, until every worker has ended; stop all when one cannot write."""
    statistics = LiveStatistics(_requests_to_come(plan.schedule))
    records: dict[int, Record] = {}
    failed: list[tuple[int, JournalFailed]] = []
    running = True
    while running:
        running = any(process.is_alive() for process in processes)
        limit = _MOST_A_TURN if running else None
        behind = False
        for worker, journal in enumerate(journals):
            for number, exchange in enumerate(islice(journal.read_new(), limit), start=1):
                record = plan.recorder.record(exchange, worker)
                records[record.index] = record
                statistics.add(record)
                behind = behind or number == limit
        failed += _failed_journals(pipes)
        if failed:
            control.advance(Phase.DRAIN)
        on_progress(statistics.snapshot(max(0.0, (now_ns() - start_ns) / 1e9), control.sent, control.phase is not Phase.RUN))
        if running and not behind:
            time.sleep(_FOLLOW_PERIOD_S)
    return records, failed


def _failed_journals(pipes: Sequence[Pipe]) -> Iterator[tuple[int, JournalFailed]]:
    """What workers said that could not write their journals."""
    for worker, pipe in enumerate(pipes):
        with suppress(EOFError, OSError):  # that worker has ended
            while pipe.poll():
                said = pipe.recv()
                assert isinstance(said, JournalFailed)
                yield worker, said


def _requests_to_come(schedule: AnySchedule) -> int | None:
    """How many requests there will be; None where the clock ends what users send."""
    return None if isinstance(schedule, ClosedSchedule) and schedule.end_ns is not None else len(schedule)


def _end_workers(processes: list[SpawnProcess]) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()
    for process in processes:
        process.join()
