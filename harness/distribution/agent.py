"""A worker of a run on its own host: the hot loop of local runs in a process of its own, its journal copied to the master."""

from __future__ import annotations

import hashlib
import multiprocessing
import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from socket import gethostname

from harness.distribution.admission import Token
from harness.distribution.byte_streams import Incoming, Outgoing, Piece, Received
from harness.distribution.dropped_messages import BadMessageError, DroppedMessages, printable
from harness.distribution.envelopes import UNDECODABLE
from harness.distribution.link import Deliver, Delivered, Dropped, Heard, Left, LinkProcess, NotAdmitted, Opened, Silent
from harness.distribution.messages import (
    JOURNAL,
    LONGEST_TEXT,
    PLAN,
    PROTOCOL,
    SAMPLES,
    Dismissed,
    Finished,
    FromWorker,
    Hello,
    JournalProblem,
    PlanConfirmed,
    Progress,
    SetCommand,
    StartAt,
    ToWorker,
    WorkerReady,
    check_run,
    decode_plan,
    decode_to_worker,
    pack,
    unpack,
)
from harness.errors import RunError
from harness.host.clock import now_ns
from harness.host.cpus import available_cores
from harness.journal.set_aside import set_aside
from harness.run.file_limits import allow_files, files_needed
from harness.run.shared_state import Command, Control
from harness.run.worker import WorkerPlan
from harness.run.worker_process import WorkerProcess, start_worker
from workloads.schedule.schedule import ClosedPart

_MODULE = "harness.distribution.locust_worker"
_PERIOD_S = 0.2
_REPEAT_NS = 1_000_000_000
_FAREWELL_NS = 60_000_000_000  # for the master to take the last records
_ABORTED_WITHIN_NS = 5_000_000_000
_TOGETHER_NS = 2_000_000_000  # a Ctrl-C that reaches master and worker ends the run, and not this worker alone
_MOST_PLAN_BYTES = 8 << 30
_MOST_NOTED = 10  # dropped messages, by reason


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """How a worker's run ended. ``refusal``: it took no part; ``is_whole``: the master has everything that it recorded, else
    ``kept`` is the folder of its journal, None where it has none.
    """

    requests: int
    refusal: str | None
    is_whole: bool
    kept: Path | None


@dataclass(frozen=True, slots=True)
class OwnStop:
    """Why and when (of ``now_ns``) this worker stopped sending before the end of the run, without the master's command."""

    reason: str
    at_ns: int


class Agent:
    """Takes part in one run of the master at ``host`` and ``port``, with its files in a folder of the run below ``folder``.

    ``token`` is the run's. ``note`` is called with what a user should read.
    """

    def __init__(self, host: str, port: int, token: Token, folder: Path, note: Callable[[str], None]) -> None:
        self._folder = folder
        self._note = note
        self._link = LinkProcess(_MODULE, [host, str(port)], token.environment)
        self._dropped: DroppedMessages[str] = DroppedMessages()
        self._refusal: str | None = None
        self._aborted_ns: int | None = None
        self._is_leaving = False
        self._run_id: str | None = None
        self._plan_bytes = BytesIO()
        self._incoming = Incoming(PLAN, self._plan_bytes)
        self._outgoing: dict[str, Outgoing] = {}
        self._files = ExitStack()
        self._process: WorkerProcess | None = None
        self._control: Control | None = None
        self._plan: WorkerPlan | None = None
        self._sent = 0
        self._finished = False
        self._is_ready = False
        self._ready: WorkerReady | None = None
        self._alive_ns = 0
        self._has_begun = False
        self._reported_ns = 0
        self._dismissed: Dismissed | None = None
        self._master_is_gone = False
        self._stop_ns: int | None = None
        self._start_ns: int | None = None  # of the run, on this host's clock
        self._own_stop: OwnStop | None = None

    def stop(self) -> None:
        """Send nothing more and leave when what is in flight has ended. A second call cancels that, too, a third one leaves at
        once, as does the first where nothing is in flight any more.
        """
        if self._control is None:
            raise KeyboardInterrupt
        if self._finished or self._aborted_ns is not None:
            self._is_leaving = True
        elif self._control.command is Command.RUN:
            self._drain_alone("it was stopped on its host")
        else:
            self._advance(self._control, Command.ABORT)

    def take_part(self) -> WorkerResult:
        """Wait for the master and carry out its plan. Raises RunError where that cannot be done."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            while not self._is_over():
                self._take()
                self._serve_worker()
        except OSError as error:
            unusable = RunError(f"--work_dir {self._folder} cannot be used: {error}")
            if not self._is_ready:
                self._send(_not_ready(unusable))
            raise unusable from error
        finally:
            if self._process is not None and self._process.is_alive:
                self._process.process.kill()
            self._files.close()
            self._link.close()
        is_whole = all(stream.is_complete for stream in self._outgoing.values()) and bool(self._outgoing)
        own = None if self._plan is None else self._plan.journal.parent
        kept = None if is_whole or not self._outgoing else own
        if own is not None and kept is None:
            shutil.rmtree(own, ignore_errors=True)
        with suppress(OSError):  # journals of other runs are in it
            self._folder.rmdir()
        refusal = self._refusal if self._dismissed is None else self._dismissed.refusal
        return WorkerResult(self._sent, refusal, is_whole, kept)

    def _is_over(self) -> bool:
        if self._is_leaving or self._refusal is not None:
            return True
        if self._dismissed is not None and (self._process is None or self._finished):
            return True
        if not self._finished:
            return self._master_is_gone and self._process is None
        return self._master_is_gone or (self._stop_ns is not None and now_ns() - self._stop_ns > _FAREWELL_NS)

    def _take(self) -> None:
        event = self._link.receive(_PERIOD_S)
        match event:
            case Delivered(payload=payload):
                try:
                    run_id, data = unpack(payload)
                    self._take_message(run_id, decode_to_worker(data))
                except (*UNDECODABLE, BadMessageError) as error:
                    self._drop(str(error))
            case Dropped(reason=reason, count=count):
                self._drop(reason, count)
            case NotAdmitted(reason):
                self._refusal = reason
            case Silent() | Left():
                if self._dismissed is None:
                    self._note("The master is silent: nothing more is sent.")
                self._master_is_gone = True
                self._drain_alone("it heard nothing more of the master")
            case Heard():
                self._master_is_gone = False
            case Opened():
                self._send(Hello(PROTOCOL, version("inflight-bench"), gethostname(), available_cores().available))
                self._note("Connected; waiting for the run.")

    def _drop(self, reason: str, count: int = 1) -> None:
        reason = printable(reason)
        if self._dropped.add("", reason, count) and len(list(self._dropped)) <= _MOST_NOTED:
            self._note(f"Dropped a message from the master's side: {reason}.")

    def _take_message(self, run_id: str | None, message: ToWorker) -> None:
        """Raises BadMessageError for what cannot be true at this moment, and RunError for a plan that cannot be carried out."""
        if self._run_id is None and isinstance(message, Piece):
            self._run_id = run_id  # the first piece of the plan
        if self._run_id is not None or not isinstance(message, Dismissed):  # a master may turn away before it has a run
            check_run(run_id, self._run_id, message)
        match message:
            case Piece():
                if message.stream != PLAN or message.offset > _MOST_PLAN_BYTES:
                    raise BadMessageError(f"piece: of {message.stream}, from {message.offset} on")
                self._send(self._incoming.accept(message))
                if self._incoming.is_complete and self._process is None:
                    self._begin()
            case Received():
                if message.stream not in self._outgoing:
                    raise BadMessageError(f"received: of an unknown stream {message.stream}")
                self._outgoing[message.stream].acknowledge(message, now_ns())
            case StartAt():
                self._start(message)
            case SetCommand() if self._control is not None:
                self._follow(self._control, Command(message.command), message.end_ns)
            case Dismissed():
                self._dismissed = message
                if self._process is not None and self._process.is_alive:
                    self._process.process.kill()

    def _drain_alone(self, reason: str) -> None:
        """Send nothing more, although the master did not say so."""
        if self._control is None or self._plan is None:
            return
        if self._control.command is Command.RUN and self._is_needed(self._plan, self._control):
            self._own_stop = OwnStop(reason, now_ns())
        self._control.advance(Command.DRAIN)

    def _is_needed(self, plan: WorkerPlan, control: Control) -> bool:
        """Whether the run has requests left for this worker."""
        worker = control.of_worker(plan.worker)
        planned_end_ns = plan.part.end_ns if isinstance(plan.part, ClosedPart) else None
        end_ns = worker.end_ns if planned_end_ns is None else min(planned_end_ns, worker.end_ns)
        is_over = self._start_ns is not None and now_ns() - self._start_ns >= end_ns
        return worker.sent < len(plan.requests) and not is_over

    def _follow(self, control: Control, command: Command, end_ns: int | None) -> None:
        """Obey the master's command."""
        if end_ns is not None:
            control.end_at(end_ns)
        if command is not Command.RUN and self._own_stop is not None and now_ns() - self._own_stop.at_ns < _TOGETHER_NS:
            self._own_stop = None
        self._advance(control, command)

    def _advance(self, control: Control, command: Command) -> None:
        control.advance(command)
        if command is Command.ABORT and self._aborted_ns is None:
            self._aborted_ns = now_ns()

    def _start(self, message: StartAt) -> None:
        """Raises BadMessageError where the worker is not ready."""
        if self._process is None or not self._is_ready:
            raise BadMessageError("start: before this worker was ready")
        if not self._has_begun:  # it comes again until the journal has
            self._has_begun, self._start_ns = True, message.start_ns
            self._note("The run begins.")
            self._process.send_start(message.start_ns)

    def _begin(self) -> None:
        """Start the worker's process with the plan that has come."""
        data = self._plan_bytes.getvalue()
        self._plan_bytes.close()
        try:
            plan = decode_plan(data, self._folder)
            if plan.run_id != self._run_id:
                raise BadMessageError(f"plan: of another run ({plan.run_id}) than its pieces")
        except BadMessageError as error:
            self._send(WorkerReady(problem=f"its plan is damaged, or of another version of bench: {error}"))
            raise RunError(f"the master's plan cannot be read: {error}") from None
        set_aside(plan.journal.parent, self._note)
        plan.journal.parent.mkdir()
        self._plan = plan
        self._send(PlanConfirmed(hashlib.sha256(data).hexdigest(), plan.schedule_digest))
        try:
            allow_files(files_needed([plan.part], plan.clients, plan.timeout_s))
            context = multiprocessing.get_context("spawn")
            self._control = Control(context, plan.worker + 1, len(plan.clients))
            self._process = start_worker(plan, context, self._control)
            self._process.send_plan(plan)
        except RunError as error:
            self._send(_not_ready(error))
            raise
        self._note(f"Worker {plan.worker}: {len(plan.requests):,} requests.")

    def _serve_worker(self) -> None:
        """Pass on what the worker's process reports and writes."""
        worker, control, plan = self._process, self._control, self._plan
        if worker is None or control is None or plan is None:
            return
        is_alive = worker.is_alive  # before the last look at what it has written
        if not self._is_ready:
            self._pass_on_ready(worker)
        elif not self._finished:
            for failed in worker.journal_failures():
                self._send(JournalProblem(failed.problem[:LONGEST_TEXT], failed.ended))
        sent = control.sent_by(plan.worker)
        if sent != self._sent or now_ns() - self._alive_ns > _REPEAT_NS:
            self._sent, self._alive_ns = sent, now_ns()
            self._send(Progress(sent))
            if self._ready is not None and not self._has_begun:  # a connection that breaks loses messages
                self._send(self._ready)
        self._send_pieces(plan)
        if is_alive and self._aborted_ns is not None and now_ns() - self._aborted_ns > _ABORTED_WITHIN_NS:
            worker.process.kill()  # it did not end by itself
        if not is_alive and not self._finished:
            self._finish()
        if self._finished and now_ns() - self._reported_ns > _REPEAT_NS:  # a connection that breaks loses messages
            self._reported_ns = now_ns()
            stopped = None if self._own_stop is None else self._own_stop.reason
            self._send(Finished(self._sent, worker.process.exitcode or 0, control.usage_of(worker.number), stopped))

    def _pass_on_ready(self, worker: WorkerProcess) -> None:
        if not worker.pipe.poll():
            return
        self._is_ready = True
        try:
            ready = worker.await_ready()
        except RunError as error:
            self._send(_not_ready(error))
            raise
        self._ready = WorkerReady(tuple(text[:LONGEST_TEXT] for text in ready.warm_up_failures))
        self._send(self._ready)

    def _send_pieces(self, plan: WorkerPlan) -> None:
        for name, path in ((JOURNAL, plan.journal), (SAMPLES, plan.samples)):
            if name not in self._outgoing and path.exists():
                self._outgoing[name] = Outgoing(name, self._files.enter_context(path.open("rb")))
        for stream in self._outgoing.values():
            for piece in stream.due(now_ns()):
                self._send(piece)

    def _finish(self) -> None:
        for name in (JOURNAL, SAMPLES):
            if name not in self._outgoing:
                self._outgoing[name] = Outgoing(name, BytesIO())
        for stream in self._outgoing.values():
            stream.end()
        self._finished, self._stop_ns = True, now_ns()

    def _send(self, message: FromWorker) -> None:
        self._link.send(Deliver("", pack(self._run_id, message)))


def _not_ready(error: RunError) -> WorkerReady:
    return WorkerReady(problem=str(error)[:LONGEST_TEXT])
