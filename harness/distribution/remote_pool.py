"""The workers of a run on other hosts, or apart on this one, reached over Locust's master and workers.

A thread takes what the workers send and copies their journals into the run's folder, where the coordinator follows them as it
follows those of its own processes. Latencies never cross hosts: each worker stamps by its own clock, from a start that is sent
to it in that clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version

from bench_records.manifest import DistributedWorker, Distribution, DroppedFrom, TurnedAway
from harness.clients.protocol import ConnectionUsage
from harness.distribution.admission import NO_TOKEN, Token
from harness.distribution.clock_sync import report_clock
from harness.distribution.dropped_messages import BadMessageError, DroppedMessages, printable
from harness.distribution.envelopes import UNDECODABLE
from harness.distribution.link import (
    ClockExchanged,
    Deliver,
    Delivered,
    Dropped,
    Heard,
    Left,
    LinkEvent,
    LinkProcess,
    Opened,
    Show,
    Silent,
    StopAsked,
)
from harness.distribution.live_histograms import LiveUpdate
from harness.distribution.messages import (
    PROTOCOL,
    Dismissed,
    FromWorker,
    Hello,
    SetCommand,
    StartAt,
    ToWorker,
    check_run,
    decode_from_worker,
    pack,
    unpack,
)
from harness.distribution.page_guard import TOKEN_VARIABLE, LiveAddress
from harness.distribution.remote_worker import Peer, RemoteWorker
from harness.errors import RunError
from harness.host.clock import now_ns
from harness.journal.set_aside import set_aside
from harness.run.shared_state import Command
from harness.run.worker import NO_CONNECTION, WorkerPlan

_MODULE = "harness.distribution.locust_master"
_START_DELAY_NS = 2_000_000_000  # for the start to reach every worker, through two event loops and a network
_PERIOD_S = 0.1
_REPEAT_NS = 1_000_000_000
_FEWEST_EXCHANGES = 32
_ABORTED_WITHIN_NS = 15_000_000_000  # a worker kills what does not end within 5 s
_JOIN_TIMEOUT_S = 5.0
_MOST_NOTED = 10  # dropped messages, by sender and reason
_MOST_TURNED_AWAY = 100
_OTHER_PROTOCOL = "it speaks another version of the protocol: install the same version of bench"
_LEFT = "it ended before it had passed on all that it recorded"


@dataclass(frozen=True)
class Master:
    """Where workers are awaited, and how many. ``page`` is the address of the web page, None without one.

    ``port`` 0 is any free one. A worker that is silent for ``lost_after_s`` (beyond Locust's own 4 s) is lost; a worker that
    hears nothing of the master for 10 s stops sending by itself. One that is heard, but sends no message of bench for
    ``stuck_after_s``, or is not ready so long after its warm-up must have ended, is lost, too.
    """

    host: str
    port: int
    workers: int
    wait_s: float
    page: LiveAddress | None = None
    lost_after_s: float = 15.0
    stuck_after_s: float = 120.0
    token: Token = NO_TOKEN


class RemotePool:
    """A WorkerPool of workers on other hosts. ``note`` is called with what a user should read; from any thread."""

    start_delay_ns = _START_DELAY_NS

    def __init__(self, master: Master, note: Callable[[str], None]) -> None:
        self._master = master
        self._tell = note
        page = master.page
        shown = ([], {}) if page is None else ([page.host, str(page.port)], {TOKEN_VARIABLE: page.token})
        self._link = LinkProcess(_MODULE, [master.host, str(master.port), *shown[0]], {**master.token.environment, **shown[1]})
        self._port: int | None = None
        self._run_id: str | None = None
        self._command = Command.RUN
        self._sent_command = Command.RUN
        self._end_ns: int | None = None
        self._sent_end_ns: int | None = None
        self._starts: dict[int, StartAt] = {}
        self._repeated_ns = 0
        self._start_ns: int | None = None
        self._peers: dict[str, Peer] = {}
        self._workers: tuple[RemoteWorker, ...] = ()
        self._turned_away: list[TurnedAway] = []
        self._dropped: DroppedMessages[str] = DroppedMessages()
        self._noted = 0
        self._noted_ends: set[int] = set()
        self._aborted_ns: int | None = None
        self._problem: RunError | None = None
        self._missing_worker: Callable[[], str | None] = lambda: None
        self._await_own: Callable[[], object] = lambda: None
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="bench-distribution", daemon=True)

    def open(self) -> int:
        """Listen; returns the port. Raises RunError where it cannot."""
        self._thread.start()
        while self._port is None:
            if self._problem is not None:
                address = f"--master_bind_host {self._master.host} --master_bind_port {self._master.port}"
                raise RunError(f"{address}: workers cannot be awaited there; choose another host or port")
            time.sleep(_PERIOD_S)
        return self._port

    def watch(self, missing_worker: Callable[[], str | None], await_own: Callable[[], object]) -> None:
        """Take account of workers that were started here: give up waiting once ``missing_worker`` says why one of them cannot
        come, and call ``await_own`` when they are dismissed, so that the CPU of their processes is known after the run.
        """
        self._missing_worker, self._await_own = missing_worker, await_own

    @property
    def has_page(self) -> bool:
        return self._master.page is not None

    @property
    def workers(self) -> Sequence[RemoteWorker]:
        return self._workers

    def start(self, plans: Sequence[WorkerPlan]) -> None:
        """Wait for the workers, and deal them the plans."""
        peers = self._awaited(len(plans))
        for plan in plans:
            set_aside(plan.journal, self._note)
            set_aside(plan.samples, self._note)
        self._run_id = plans[0].run_id
        self._workers = tuple(RemoteWorker(peer, plan) for peer, plan in zip(peers, plans, strict=True))
        for worker in self._workers:
            if worker.peer.id not in self._peers:  # it left while the plans were made
                worker.lose(_LEFT)

    def _awaited(self, count: int) -> list[Peer]:
        """The first ``count`` workers that came and stayed."""
        deadline_s = time.monotonic() + self._master.wait_s
        while len(peers := list(self._peers.values())) < count:
            self._check()
            if self._command is not Command.RUN:
                raise KeyboardInterrupt
            missing = self._missing_worker()
            if missing is not None:
                raise RunError(missing)
            if time.monotonic() > deadline_s:
                raise RunError(
                    f"--expect_workers {count}: {len(peers)} came within {self._master.wait_s:g} s; start the "
                    f"others with 'bench worker --master_host HOST --master_port {self._port}', or raise "
                    "--expect_workers_max_wait"
                )
            time.sleep(_PERIOD_S)
        return peers[:count]

    def await_ready(self) -> tuple[str, ...]:
        waiting = list(self._workers)
        while waiting:
            self._check()
            if self._command is not Command.RUN:
                raise KeyboardInterrupt
            for worker in waiting:
                self._check_start(worker)
            waiting = [worker for worker in waiting if worker.ready is None or len(worker.peer.exchanges) < _FEWEST_EXCHANGES]
            time.sleep(_PERIOD_S)
        return tuple(failure for worker in self._workers if worker.ready for failure in worker.ready.warm_up_failures)

    def start_clock(self, start_ns: int) -> None:
        self._start_ns = start_ns
        for worker in self._workers:
            offset = worker.peer.offset(now_ns())
            assert offset is not None  # await_ready waited for exchanges
            self._starts[worker.number] = StartAt(start_ns + offset.offset_ns)
            worker.expect_start()
            self._send(worker.peer.id, self._starts[worker.number])

    @property
    def command(self) -> Command:
        return self._command

    def advance(self, command: Command) -> None:
        """A second ABORT waits for no worker any more. It may come when the thread has ended or hangs."""
        if command is Command.ABORT and self._command is Command.ABORT:
            for worker in self._workers:
                if worker.is_alive:
                    worker.abandon("it was not waited for, because the run was stopped again")
        elif command is Command.ABORT:
            self._aborted_ns = now_ns()
        self._command = max(command, self._command)

    def end_at(self, end_ns: int) -> None:
        self._end_ns = end_ns

    @property
    def answered(self) -> None:
        return None  # a worker reports answers when they have ended

    @property
    def sent(self) -> int:
        return sum(worker.sent for worker in self._workers)

    def sent_by(self, worker: int) -> int | None:
        """None of a worker that was lost: it may have sent more since its last message."""
        one = self._workers[worker]
        return None if one.finished is None else one.sent

    def usage_of(self, worker: int) -> ConnectionUsage | None:
        return self._workers[worker].usage

    def show(self, update: LiveUpdate) -> None:
        """Show the numbers on the web page."""
        self._link.send(Show(update))

    def close(self) -> None:
        """Dismiss the workers, leave Locust, and wait for the workers that were started here."""
        for peer in list(self._peers):  # the thread goes on
            self._send(peer, Dismissed("the run was given up" if self._start_ns is None else None))
        time.sleep(4 * _PERIOD_S)  # for the link to pass it on
        self._is_closing.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN_TIMEOUT_S)
        self._link.close()
        for worker in self._workers:
            worker.close()
        self._await_own()

    def distribution(self) -> Distribution:
        """For the manifest: each worker with its clock and its end, those that were turned away, and dropped messages."""
        end_ns = now_ns()
        return Distribution(
            workers=tuple(self._described(worker, end_ns) for worker in self._workers),
            turned_away=tuple(self._turned_away),
            dropped_messages=self._dropped.total,
            dropped=tuple(DroppedFrom(sender=sender, reason=reason, count=count) for sender, reason, count in self._dropped),
        )

    def _described(self, worker: RemoteWorker, end_ns: int) -> DistributedWorker:
        return DistributedWorker(
            number=worker.number,
            host=worker.peer.hello.host,
            cores=worker.peer.hello.cores,
            lost=worker.lost_reason if worker.ended_in_order else worker.end_reason,
            stopped=worker.stop_reason,
            clock=None if self._start_ns is None else report_clock(worker.peer.exchanges, self._start_ns, end_ns),
        )

    def _check(self) -> None:
        if self._problem is not None:
            raise self._problem

    def _check_start(self, worker: RemoteWorker) -> None:
        if worker.ready is not None and worker.ready.problem is not None:
            advice = ". Its host must reach the target's address" if NO_CONNECTION in worker.ready.problem else ""
            raise RunError(f"{worker.name} cannot begin: {worker.ready.problem}{advice}")
        if worker.lost_reason is not None:
            raise RunError(f"the run cannot begin: {worker.lost_reason}")
        if worker.finished is not None:
            raise RunError(f"{worker.name} ended with status {worker.finished.exit_status} before the run began")

    def _follow(self) -> None:
        """The thread: take events, send what is due. Whatever is raised here ends the run, which keeps its records."""
        try:
            while not self._is_closing.is_set():
                event = self._link.receive(_PERIOD_S)
                if event is not None:
                    self._take(event)
                self._send_due()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        match error:
            case RunError():
                self._problem = error
            case OSError():
                self._problem = RunError(f"a worker's journal cannot be copied: {error}")
            case _:
                self._problem = RunError(f"the connection to the workers failed: {error!r}")
        for worker in self._workers:
            worker.abandon(str(self._problem))
        if self._start_ns is not None:  # before the start it ends the command
            self._note(f"The run ends, with what is recorded: {self._problem}.")

    def _take(self, event: LinkEvent) -> None:
        match event:
            case Opened(port):
                self._port = port
            case Delivered(peer, payload):
                self._take_message(peer, payload)
            case ClockExchanged(peer, exchange):
                if peer in self._peers:
                    self._peers[peer].exchanges.append(exchange)
            case Silent(peer):
                if peer in self._peers:
                    self._peers[peer].silent_since_ns = now_ns()
            case Left(peer):
                self._take_leave(peer)
            case Heard(peer):
                if peer in self._peers:
                    self._peers[peer].silent_since_ns = None
            case Dropped(peer, address, reason, count):
                self._drop(self._name_of(peer, address), reason, count)
            case StopAsked():
                self.advance(Command.DRAIN)

    def _take_leave(self, peer: str) -> None:
        if not self._workers:
            self._peers.pop(peer, None)
        for worker in self._workers:
            if worker.peer.id == peer and worker.is_alive:
                worker.lose(_LEFT)

    def _take_message(self, peer: str, payload: bytes) -> None:
        try:
            run_id, data = unpack(payload)
            self._take_from_worker(peer, run_id, decode_from_worker(data))
        except UNDECODABLE as error:
            self._drop(self._name_of(peer, ""), str(error))
            if peer not in self._peers:
                self._turn_away(peer, "?", _OTHER_PROTOCOL)
        except BadMessageError as error:
            self._drop(self._name_of(peer, ""), str(error))

    def _take_from_worker(self, peer: str, run_id: str | None, message: FromWorker) -> None:
        """Raises BadMessageError, and OSError where the worker's journal cannot be written."""
        if not isinstance(message, Hello):
            check_run(run_id, self._run_id, message)
        if isinstance(message, Hello) and peer not in self._peers:
            self._greet(peer, message)
            return
        worker = next((worker for worker in self._workers if worker.peer.id == peer), None)
        if worker is None:
            raise BadMessageError(f"{type(message).__name__}: of a worker without a plan")
        if (received := worker.take(message, now_ns())) is not None:
            self._send(peer, received)

    def _greet(self, peer: str, hello: Hello) -> None:
        own = version("inflight-bench")
        if hello.bench_version != own:
            self._turn_away(peer, hello.host, f"it has bench {hello.bench_version}, and the master {own}")
        elif hello.protocol != PROTOCOL:
            self._turn_away(peer, hello.host, _OTHER_PROTOCOL)
        elif self._workers or len(self._peers) >= self._master.workers:
            self._turn_away(
                peer,
                hello.host,
                f"the run has its {self._master.workers} {'worker' if self._master.workers == 1 else 'workers'}",
            )
        else:
            self._peers[peer] = Peer(peer, hello)
            self._note(f"Worker {len(self._peers)} of {self._master.workers}: {hello.host}")

    def _turn_away(self, peer: str, host: str, reason: str) -> None:
        self._send(peer, Dismissed(reason))
        if len(self._turned_away) < _MOST_TURNED_AWAY:
            self._turned_away.append(TurnedAway(host=host, reason=reason))
            self._note(f"A worker on {host} takes no part: {reason}.")

    def _name_of(self, peer: str, address: str) -> str:
        if peer in self._peers:
            return self._peers[peer].hello.host
        return address or "a connection that is no worker's"

    def _drop(self, sender: str, reason: str, count: int = 1) -> None:
        """Count messages that were dropped, and name the first of their kind."""
        reason = printable(reason)
        if self._dropped.add(sender, reason, count) and self._noted < _MOST_NOTED:
            self._noted += 1
            self._note(f"Dropped a message from {sender}: {reason}.")

    def _send_due(self) -> None:
        now = now_ns()
        for worker in self._workers:
            for piece in worker.due(now):
                self._send(worker.peer.id, piece)
            silent_ns = worker.peer.silent_since_ns
            if silent_ns is not None and worker.is_alive and now - silent_ns > self._master.lost_after_s * 1e9:
                worker.lose(f"nothing was heard of it for {self._master.lost_after_s:g} s")
            elif worker.is_alive and (reason := self._stuck_reason(worker, now)) is not None:
                worker.abandon(reason)
            self._note_end(worker)
        if self._command is not self._sent_command or self._end_ns != self._sent_end_ns:
            self._sent_command, self._sent_end_ns, self._repeated_ns = self._command, self._end_ns, 0
        if now - self._repeated_ns > _REPEAT_NS:
            self._repeated_ns = now
            self._repeat()

    def _note_end(self, worker: RemoteWorker) -> None:
        """Say once that a worker is lost, or stopped by itself."""
        if worker.lost_reason is not None:
            text = f"Worker {worker.number}: {worker.lost_reason}."
        elif worker.stop_reason is not None:
            where = f"Worker {worker.number} on {worker.peer.hello.host}"
            text = f"{where} stopped sending before the end of the run: {printable(worker.stop_reason)}."
        else:
            return
        if worker.number not in self._noted_ends:
            self._noted_ends.add(worker.number)
            self._note(text)

    def _stuck_reason(self, worker: RemoteWorker, at_ns: int) -> str | None:
        """Why a worker whose connection lives is waited for no longer."""
        stuck_s = self._master.stuck_after_s
        if self._aborted_ns is not None and at_ns - self._aborted_ns > _ABORTED_WITHIN_NS:
            return f"it did not end within {_ABORTED_WITHIN_NS / 1e9:g} s after the run was stopped"
        if worker.finished is not None and _s_since(worker.grown_ns, at_ns) > stuck_s:
            return f"it passed on no more of its journal for {stuck_s:g} s"
        if _s_since(worker.heard_ns, at_ns) > stuck_s:
            return f"it sent no message for {stuck_s:g} s"
        if worker.ready is None and _s_since(worker.confirmed_ns, at_ns) > stuck_s + worker.timeout_s:
            return f"it was not ready within {stuck_s + worker.timeout_s:g} s"
        return None

    def _repeat(self) -> None:
        """Send start, end and command again, as long as they have an effect: a connection that breaks loses messages."""
        for worker in self._workers:
            if worker.number in self._starts and not worker.has_begun:
                self._send(worker.peer.id, self._starts[worker.number])
            if (self._command is not Command.RUN or self._end_ns is not None) and worker.is_alive:
                self._send(worker.peer.id, SetCommand(self._command, self._end_ns))
            if worker.is_abandoned:
                self._send(worker.peer.id, Dismissed("the master gave it up"))

    def _note(self, text: str) -> None:
        with suppress(OSError, ValueError):  # its reader is gone: the run goes on
            self._tell(text)

    def _send(self, peer: str, message: ToWorker) -> None:
        self._link.send(Deliver(peer, pack(self._run_id, message)))


def _s_since(before_ns: int | None, at_ns: int) -> float:
    """0 where nothing was before."""
    return 0.0 if before_ns is None else (at_ns - before_ns) / 1e9
