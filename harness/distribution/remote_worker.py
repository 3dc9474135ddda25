"""A worker on another host as the coordinator sees it: its plan on the way there, its journal and its state on the way back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import astuple, dataclass, field
from io import BytesIO

from bench_records.manifest import ClockOffset
from harness.clients.protocol import ConnectionUsage
from harness.distribution.byte_streams import Incoming, Outgoing, Piece, Received
from harness.distribution.clock_sync import ClockExchange, offset_at
from harness.distribution.dropped_messages import BadMessageError
from harness.distribution.messages import (
    JOURNAL,
    PLAN,
    SAMPLES,
    Finished,
    FromWorker,
    Hello,
    JournalProblem,
    PlanConfirmed,
    Progress,
    WorkerReady,
    encode_plan,
)
from harness.errors import RunError
from harness.host.clock import now_ns
from harness.journal.worker_journal import JournalReader
from harness.run.worker import JournalFailed, WorkerPlan

_MOST_FAILURES = 16  # reports of a journal that cannot be written
_MOST_COUNT = 1 << 53


@dataclass(slots=True)
class Peer:
    """A host that has connected, with the exchanges of clocks so far; ``silent_since_ns`` is None while it is heard."""

    id: str
    hello: Hello
    exchanges: list[ClockExchange] = field(default_factory=list)
    silent_since_ns: int | None = None

    def offset(self, at_ns: int) -> ClockOffset | None:
        """Its clock less this host's."""
        return offset_at(self.exchanges, at_ns)


class RemoteWorker:
    """The worker that carries out ``plan`` at ``peer``; its journal is copied to the plan's.

    A single thread calls ``take`` and ``due``; all else is for any. Raises RunError where the plan cannot be sent, OSError
    where the journal cannot be written.
    """

    def __init__(self, peer: Peer, plan: WorkerPlan) -> None:
        try:
            encoded = encode_plan(plan)
        except ValueError as error:
            raise RunError(f"the requests of a distributed run must be Unicode text: {error}") from error
        self.peer = peer
        self.number = plan.worker
        self.journal = JournalReader(plan.journal, plan.run_id)
        self.sent = 0
        self.ready: WorkerReady | None = None
        self.finished: Finished | None = None
        self._loss: str | None = None
        self.is_abandoned = False
        self.heard_ns = now_ns()  # of the last message
        self.confirmed_ns: int | None = None
        self.grown_ns: int | None = None  # when a copy last grew, or the worker ended
        self.timeout_s = plan.timeout_s
        self._has_start = False
        self._requests, self._warm_up = len(plan.requests), len(plan.warm_up)
        self._files = ExitStack()
        self._incoming = {
            name: Incoming(name, self._files.enter_context(path.open("xb")))
            for name, path in ((JOURNAL, plan.journal), (SAMPLES, plan.samples))
        }
        self._plan_sha256, self._digest = hashlib.sha256(encoded).hexdigest(), plan.schedule_digest
        self._plan = Outgoing(PLAN, BytesIO(encoded))
        self._plan.end()
        self._failures: list[JournalFailed] = []

    @property
    def name(self) -> str:
        return f"worker {self.number} on {self.peer.hello.host}"

    @property
    def lost_reason(self) -> str | None:
        """Why its requests without a record are lost; None where it is not lost."""
        return None if self._loss is None else f"its worker, on {self.peer.hello.host}, was lost: {self._loss}"

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or has records that are not here yet."""
        if self.lost_reason is not None:
            return False
        return self.finished is None or not all(stream.is_complete for stream in self._incoming.values())

    @property
    def has_begun(self) -> bool:
        """Whether its journal, which it opens at the start, has come."""
        return self._incoming[JOURNAL].length > 0 or self.finished is not None

    @property
    def ended_in_order(self) -> bool:
        """Whether its process that sends ended with status 0, or has not ended."""
        return self.finished is None or self.finished.exit_status == 0

    @property
    def end_reason(self) -> str:
        if self.lost_reason is not None:
            return self.lost_reason
        status = None if self.finished is None else self.finished.exit_status
        return f"its worker, on {self.peer.hello.host}, ended with status {status}"

    @property
    def stop_reason(self) -> str | None:
        """Why it stopped sending before the end of the run, by itself; None where it did not."""
        return None if self.finished is None else self.finished.stopped

    @property
    def usage(self) -> ConnectionUsage | None:
        return None if self.finished is None else self.finished.usage

    def journal_failures(self) -> Iterator[JournalFailed]:
        while self._failures:
            yield self._failures.pop(0)

    def due(self, at_ns: int) -> Iterator[Piece]:
        """The pieces of the plan to send now."""
        return self._plan.due(at_ns)

    def expect_start(self) -> None:
        """The start is sent to it: from now on it may record."""
        self._has_start = True

    def lose(self, reason: str) -> None:
        """It is not waited for any more; what still comes of it is taken."""
        self._loss = self._loss or reason

    def abandon(self, reason: str) -> None:
        """It is lost, and has to stop."""
        self.lose(reason)
        self.is_abandoned = True

    def take(self, message: FromWorker, at_ns: int) -> Received | None:
        """Take a message from the worker; returns the acknowledgement of a piece.

        Raises BadMessageError where it cannot be true at this moment, and OSError where a copy cannot be written.
        """
        self.heard_ns = at_ns
        match message:
            case Piece():
                return self._take_piece(message, at_ns)
            case Received():
                self._take_acknowledgement(message, at_ns)
            case PlanConfirmed():
                self._confirm(message, at_ns)
            case WorkerReady():
                self._take_ready(message)
            case Progress(sent):
                self._check_sent("progress", sent)
                self.sent = max(self.sent, sent)
            case JournalProblem():
                if len(self._failures) < _MOST_FAILURES:
                    self._failures.append(JournalFailed(f"{self.name}: {message.problem}", message.ended))
            case Finished():
                self._finish(message, at_ns)
            case Hello():
                raise BadMessageError("hello: a second one")
        return None

    def close(self) -> None:
        self._files.close()

    def _take_piece(self, piece: Piece, at_ns: int) -> Received:
        if piece.stream not in self._incoming:
            raise BadMessageError(f"piece: of an unknown stream {piece.stream}")
        if piece.data and not self._has_start:
            raise BadMessageError(f"piece: {piece.stream} before the start")
        incoming = self._incoming[piece.stream]
        before = incoming.length, incoming.is_complete
        received = incoming.accept(piece)
        if before != (incoming.length, incoming.is_complete):
            self.grown_ns = at_ns
        return received

    def _take_acknowledgement(self, received: Received, at_ns: int) -> None:
        if received.stream != PLAN:
            raise BadMessageError(f"received: of an unknown stream {received.stream}")
        self._plan.acknowledge(received, at_ns)

    def _confirm(self, confirmed: PlanConfirmed, at_ns: int) -> None:
        if (confirmed.plan_sha256, confirmed.schedule_digest) != (self._plan_sha256, self._digest):
            self.abandon("it confirmed a plan that is not its own")
            raise BadMessageError("confirmed: of a plan that is not its own")
        self.confirmed_ns = at_ns

    def _take_ready(self, ready: WorkerReady) -> None:
        if self.confirmed_ns is None and ready.problem is None:
            raise BadMessageError("ready: without its plan")
        if len(ready.warm_up_failures) > self._warm_up:
            raise BadMessageError(f"ready: {len(ready.warm_up_failures)} failures of {self._warm_up} warm-up requests")
        self.ready = self.ready or ready

    def _finish(self, finished: Finished, at_ns: int) -> None:
        self._check_sent("finished", finished.sent)
        usage = finished.usage
        if usage is not None and any(value is not None and not 0 <= value <= _MOST_COUNT for value in astuple(usage)):
            raise BadMessageError("finished: the use of its connections has impossible numbers")
        if self.finished is None:
            self.sent, self.finished, self.grown_ns = finished.sent, finished, at_ns

    def _check_sent(self, kind: str, sent: int) -> None:
        if sent > self._requests:
            raise BadMessageError(f"{kind}: {sent} requests sent, of {self._requests}")
