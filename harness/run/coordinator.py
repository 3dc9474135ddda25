"""A run: starts the workers, sends them one start time, follows their journals, and accounts for every request."""

from __future__ import annotations

import os
import signal
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import islice
from types import FrameType

from bench_records.record import Record
from bench_records.run_folder import RunFolder
from harness.clients.protocol import Client
from harness.errors import JournalError, RunError, WarmUpError
from harness.host.clock import now_ns, wall_time
from harness.host.cpu_priority import run_at_low_priority
from harness.host.signals import HeldSignals
from harness.journal.run_identity import new_run_id
from harness.journal.worker_journal import Ended
from harness.recording.accounting import WorkerEnd, account_for_all, ran_out
from harness.recording.recorder import Recorder
from harness.recording.run_result import RuleEnd, RunResult
from harness.run.end_rule import EndRule, RunMoment
from harness.run.live_statistics import LiveStatistics, Snapshot
from harness.run.local_pool import LocalPool
from harness.run.shared_state import Command
from harness.run.token_limits import NO_LIMITS_OF_TOKENS, TokenLimits
from harness.run.worker import JournalFailed, WorkerPlan
from harness.run.worker_pool import RunWorker, WorkerPool
from workloads.elements.request import Balance, Request
from workloads.schedule.balance import assigned_targets
from workloads.schedule.schedule import AnySchedule, ClosedSchedule

_FOLLOW_PERIOD_S = 0.1
_NOBODY = -1
_BATCH_EXCHANGES = 1_000  # read of one journal before the other journals and the progress are served

OnProgress = Callable[[Snapshot], None]
# A context that is entered after the warm-up, while the workers start where there is none, and left when every worker has
# ended. It yields a function that takes the start time. Neither raises.
Watch = AbstractContextManager[Callable[[int], object]]


def _watch_nothing() -> Watch:
    return nullcontext(lambda start_ns: None)


@dataclass(frozen=True)
class RunPlan:
    """What to run. ``timeout_s`` limits each request; warm-up requests are sent before the clock starts.

    ``client`` is that of the first target, and decodes the answers of all; ``further`` are those of other targets, over which
    requests are spread by ``balance``.

    ``worker_cores`` are cores for the workers alone, one each; empty where they share. ``after_warm_up`` is called between
    the warm-up and the start of the clock; what it raises ends the run. ``on_start`` is called right before the start.
    ``on_record`` is called with each record of an exchange. ``end_rule`` may end the run before its planned end.
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
    after_warm_up: Callable[[], object] | None = None
    on_start: Callable[[], object] | None = None
    on_record: Callable[[Record], object] | None = None
    end_rule: EndRule | None = None
    run_id: str = field(default_factory=new_run_id)
    further: tuple[Client, ...] = ()
    balance: Balance = Balance.ROUND_ROBIN
    token_limits: TokenLimits = NO_LIMITS_OF_TOKENS


class Phase(StrEnum):
    """Phases of a run, in their order."""

    PREPARING = "preparing"  # workers start, connect and warm up
    RUNNING = "running"
    DRAINING = "draining"  # nothing more is sent; requests in flight are awaited
    ABORTING = "aborting"  # requests in flight are cancelled
    ENDED = "ended"  # no worker is left


_PHASE_OF_COMMAND = {Command.RUN: Phase.RUNNING, Command.DRAIN: Phase.DRAINING, Command.ABORT: Phase.ABORTING}


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a run's clock: ``monotonic_ns`` of ``now_ns``, and the same moment as a date."""

    monotonic_ns: int
    at: datetime


@dataclass(frozen=True, slots=True)
class _End:
    """The moment at which every worker had ended: the time since the start, and the command that was last in force."""

    duration_s: float
    command: Command


class Run:
    """One run of a plan by the workers of ``pool``, processes of this host unless it is given.

    ``execute`` is called once; the properties can be read meanwhile, from any thread.
    """

    def __init__(self, plan: RunPlan, pool: WorkerPool | None = None) -> None:
        self._plan = plan
        self._pool = LocalPool(plan.workers, 1 + len(plan.further)) if pool is None else pool
        self._assigned = assigned_targets(plan.schedule, plan.balance, 1 + len(plan.further)) if plan.further else ()
        self._statistics = LiveStatistics(_expected_requests(plan.schedule), plan.client.streaming)
        self._warm_up_failures: tuple[str, ...] = ()
        self._start: Start | None = None
        self._records: dict[int, Record] = {}
        self._owners = array("l", [_NOBODY]) * len(plan.schedule)  # the worker of each request
        self._unreadable: set[int] = set()  # workers
        self._journal_failures: list[tuple[int, JournalFailed]] = []
        self._rule_end: RuleEnd | None = None
        self._snapshot: Snapshot | None = None
        self._is_over = False

    @property
    def phase(self) -> Phase:
        if self._is_over:
            return Phase.ENDED
        return Phase.PREPARING if self._start is None else _PHASE_OF_COMMAND[self._pool.command]

    @property
    def workers(self) -> Sequence[RunWorker]:
        """The workers that have been started, with their journals."""
        return self._pool.workers

    @property
    def start(self) -> Start | None:
        """The start of the clock; None while the run prepares."""
        return self._start

    @property
    def snapshot(self) -> Snapshot | None:
        """The statistics that were reported last; None before the first report."""
        return self._snapshot

    def execute(self, on_progress: OnProgress) -> RunResult:
        """Carry out the run. The first SIGINT or SIGTERM stops sending and drains, the second cancels what is in flight,
        and the third waits for no worker of another host.

        Raises RunError when a worker cannot start, every warm-up request fails, or too few files may be open, and
        KeyboardInterrupt when a signal comes before the start.
        """
        plan = self._plan
        with _stopping_on_signals(self._pool), _affinity_without(plan.worker_cores), ExitStack() as watching:
            try:
                self._pool.start([self._worker_plan(number) for number in range(plan.workers)])
                if not plan.warm_up and plan.after_warm_up is None:  # nothing is sent until the start
                    set_start = watching.enter_context(plan.watch)  # which takes as long as the workers do
                    self._await_ready()
                else:
                    self._await_ready()
                    if plan.after_warm_up is not None:
                        plan.after_warm_up()
                    set_start = watching.enter_context(plan.watch)
                self._start_clock(set_start)
                run_at_low_priority(self._follow, on_progress)
                end = self._end()
            finally:
                self._pool.close()
                self._is_over = True
        return self._result(end)

    def _worker_plan(self, number: int) -> WorkerPlan:
        plan = self._plan
        part = plan.schedule.part(number, plan.workers)
        for index in part.indices:
            self._owners[index] = number
        return WorkerPlan(
            worker=number,
            client=plan.client,
            part=part,
            requests=[plan.schedule.requests[index] for index in part.indices],
            warm_up=plan.warm_up[number :: plan.workers],
            timeout_s=plan.timeout_s,
            journal=plan.folder.journal(number),
            schedule_digest=plan.schedule.digest,
            run_id=plan.run_id,
            core=plan.worker_cores[number] if plan.worker_cores else None,
            samples=plan.folder.worker_samples(number),
            further=plan.further,
            balance=plan.balance,
            token_limits=plan.token_limits,
            assigned=tuple(self._assigned[index] for index in part.indices) if plan.further else (),
        )

    def _await_ready(self) -> None:
        failures = self._pool.await_ready()
        if self._plan.warm_up and len(failures) == len(self._plan.warm_up):
            raise WarmUpError(f"every warm-up request failed; the first error: {failures[0]}")
        self._warm_up_failures = failures

    def _start_clock(self, set_start: Callable[[int], object]) -> None:
        """Send the start time to every worker and to ``set_start``."""
        if self._plan.on_start is not None:
            self._plan.on_start()
        monotonic_ns = now_ns() + self._pool.start_delay_ns
        self._start = Start(monotonic_ns, wall_time(monotonic_ns))
        self._pool.start_clock(self._start.monotonic_ns)
        set_start(self._start.monotonic_ns)

    def _follow(self, on_progress: OnProgress) -> None:
        """Make records of exchanges while they are written, until every worker has ended.

        Where one worker cannot write its journal, all stop sending. Raises RunError where the run's folder is gone, or
        another is in its place.
        """
        running, folder = True, self._plan.folder.identity
        while running:
            if folder is None or self._plan.folder.identity != folder:
                raise RunError(_gone(self._plan.folder))
            running = any(worker.is_alive for worker in self.workers)
            at_ns = self._elapsed_ns()
            behind = self._record_new(_BATCH_EXCHANGES if running else None)
            self._journal_failures += [
                (worker.number, failed) for worker in self.workers for failed in worker.journal_failures()
            ]
            if self._journal_failures:
                self._pool.advance(Command.DRAIN)
            if running:
                self._judge_end(at_ns, behind)
            self._snapshot = self._statistics.snapshot(max(0.0, self._elapsed_s()), self._pool.sent, self._is_stopping())
            on_progress(self._snapshot)
            if running and not behind:
                time.sleep(_FOLLOW_PERIOD_S)

    def _judge_end(self, at_ns: int, behind: bool) -> None:
        """Let the rule, if any, end the run. Records were read after ``at_ns``."""
        rule = self._plan.end_rule
        if rule is None or self._rule_end is not None or self._pool.command is not Command.RUN:
            return
        reason = rule.reason(self._moment(at_ns, behind))
        if reason is not None:
            self._rule_end = RuleEnd(max(0, self._elapsed_ns()) + self._pool.start_delay_ns, reason)
            self._pool.end_at(self._rule_end.end_ns)

    def _moment(self, at_ns: int, behind: bool) -> RunMoment:
        """What a request without a record is waiting for is known of workers of this host that live: that of another host may
        have ended, with its journal still on the way, and that of a dead worker may never have been sent.
        """
        answered = self._pool.answered
        if answered is None or any(not worker.is_alive and worker.journal.ended is None for worker in self.workers):
            return RunMoment(at_ns, None, behind=True)
        return RunMoment(at_ns, answered, behind)

    def _is_stopping(self) -> bool:
        is_over = self._rule_end is not None and self._elapsed_ns() >= self._rule_end.end_ns
        return is_over or self._pool.command is not Command.RUN

    def _record_new(self, limit: int | None) -> bool:
        """Record up to ``limit`` new exchanges of each journal; returns whether a journal may have more.

        Nothing more is read from a file that turns out not to be a journal: its worker is given up, and the others go on.
        """
        behind = False
        for worker in self.workers:
            if worker.number in self._unreadable:
                continue
            try:
                behind = self._record_new_of(worker, limit) or behind
            except JournalError as error:
                self._unreadable.add(worker.number)
                worker.abandon(f"its journal cannot be used: {error}")
        return behind

    def _record_new_of(self, worker: RunWorker, limit: int | None) -> bool:
        count = 0
        for count, exchange in enumerate(islice(worker.journal.read_new(), limit), start=1):  # noqa: B007  used below
            self._check_owner(exchange.index, worker.number)
            self._check_target(exchange.target)
            record = self._plan.recorder.record(exchange, worker.number)
            self._records[record.index] = record
            self._statistics.add(record)
            if self._plan.on_record is not None:
                self._plan.on_record(record)
            if self._plan.end_rule is not None:
                self._plan.end_rule.add(record)
        return count == limit

    def _check_owner(self, index: int, worker: int) -> None:
        """Raises JournalError for an exchange of a request that this worker did not have, or has recorded already."""
        if index >= len(self._owners) or self._owners[index] != worker:
            raise JournalError(f"it has an exchange of request {index}, which is not its own")
        if index in self._records:
            raise JournalError(f"it has request {index} twice")

    def _check_target(self, target: int) -> None:
        """Raises JournalError for an exchange with a target that the run does not have."""
        if target > len(self._plan.further):
            raise JournalError(f"it has an exchange with target {target}, of {1 + len(self._plan.further)}")

    def _elapsed_ns(self) -> int:
        assert self._start is not None
        return now_ns() - self._start.monotonic_ns

    def _elapsed_s(self) -> float:
        return self._elapsed_ns() / 1e9

    def _end(self) -> _End:
        return _End(max(0.0, self._elapsed_s()), self._pool.command)  # a run may be stopped before its first request is due

    def _result(self, end: _End) -> RunResult:
        assert self._start is not None
        recorder, failed = self._plan.recorder, self._journal_failures
        records = account_for_all(recorder, self._records, [self._worker_end(worker) for worker in self.workers])
        interrupted = end.command is not Command.RUN
        return RunResult(
            records=records,
            started_at=self._start.at,
            duration_s=end.duration_s,
            interrupted=interrupted and not failed,
            warm_up_failures=self._warm_up_failures,
            ran_out=not interrupted and self._rule_end is None and ran_out(recorder.schedule, records),
            connections=tuple(self._pool.usage_of(worker.number) for worker in self.workers),
            problem=failed[0][1].problem if failed else None,
            rule_end=self._rule_end,
        )

    def _worker_end(self, worker: RunWorker) -> WorkerEnd:
        is_readable = worker.number not in self._unreadable
        ended = (worker.journal.ended or self._reported_end(worker.number)) if is_readable else None
        return WorkerEnd(ended, self._pool.sent_by(worker.number), worker.end_reason)

    def _reported_end(self, number: int) -> Ended | None:
        """The last journal entry of a worker that could not write it and reported it instead."""
        return next((f.ended for worker, f in self._journal_failures if worker == number and f.ended is not None), None)


def _gone(folder: RunFolder) -> str:
    return (
        f"{folder.path} was deleted or renamed while the run went on, and the run was ended; a folder that was renamed has "
        "what was recorded until then: run 'bench recover' with its new name"
    )


@contextmanager
def _stopping_on_signals(pool: WorkerPool) -> Iterator[None]:
    def on_signal(number: int, frame: FrameType | None) -> None:
        pool.advance(Command.DRAIN if pool.command is Command.RUN else Command.ABORT)

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    # A caller blocks the signals so that none is lost before and after the run; during the run they must arrive.
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
    for number in {taken for held in before.values() if isinstance(held, HeldSignals) for taken in held.take()}:
        on_signal(number, None)  # it came through another thread of this process, while the caller blocked it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _affinity_without(cores: tuple[int, ...]) -> Iterator[None]:
    """Keep this process, which follows the run, off the workers' ``cores``, where others are left."""
    before = os.sched_getaffinity(0)
    if cores and before - set(cores):
        os.sched_setaffinity(0, before - set(cores))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _expected_requests(schedule: AnySchedule) -> int | None:
    """How many requests there will be; None where the clock ends what users send."""
    return None if isinstance(schedule, ClosedSchedule) and schedule.end_ns is not None else len(schedule)
