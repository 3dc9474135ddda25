"""A worker on another host as the coordinator sees it: its plan on the way there, its journal and its state on the way back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import BytesIO

from harness.clients.protocol import ConnectionUsage
from harness.distribution.byte_streams import Incoming, Outgoing, Piece, Received
from harness.distribution.clock_sync import ClockExchange, Offset, offset_at
from harness.distribution.messages import (
    JOURNAL,
    PLAN,
    PROBE,
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
from harness.journal.worker_journal import JournalReader
from harness.run.worker import JournalFailed, WorkerPlan


@dataclass(slots=True)
class Peer:
    """A host that has connected, with the exchanges of clocks so far; ``silent_since_ns`` is None while it is heard."""

    id: str
    hello: Hello
    exchanges: list[ClockExchange] = field(default_factory=list)
    silent_since_ns: int | None = None

    def offset(self, at_ns: int) -> Offset | None:
        """Its clock less this host's."""
        return offset_at(self.exchanges, at_ns)


class RemoteWorker:
    """The worker that carries out ``plan`` at ``peer``; its journal is copied to the plan's.

    A single thread calls ``take`` and ``due``; the properties can be read from any. Raises RunError where the plan cannot be
    sent, OSError where the journal cannot be written.
    """

    def __init__(self, peer: Peer, plan: WorkerPlan) -> None:
        try:
            encoded = encode_plan(plan)
        except ValueError as error:
            raise RunError(f"the requests of a distributed run must be Unicode text: {error}") from error
        self.peer = peer
        self.number = plan.worker
        self.journal = JournalReader(plan.journal)
        self.sent = 0
        self.ready: WorkerReady | None = None
        self.finished: Finished | None = None
        self.lost_reason: str | None = None
        self._files = ExitStack()
        self._incoming = {
            name: Incoming(name, self._files.enter_context(path.open("wb")))
            for name, path in ((JOURNAL, plan.journal), (PROBE, plan.probe))
        }
        self._plan_sha256, self._digest = hashlib.sha256(encoded).hexdigest(), plan.schedule_digest
        self._plan = Outgoing(PLAN, BytesIO(encoded))
        self._plan.end()
        self._failures: list[JournalFailed] = []

    @property
    def name(self) -> str:
        return f"worker {self.number} on {self.peer.hello.host}"

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
    def end_reason(self) -> str:
        if self.lost_reason is not None:
            return self.lost_reason
        status = None if self.finished is None else self.finished.exit_status
        return f"its worker, on {self.peer.hello.host}, ended with status {status}"

    @property
    def usage(self) -> ConnectionUsage | None:
        return None if self.finished is None else self.finished.usage

    def journal_failures(self) -> Iterator[JournalFailed]:
        while self._failures:
            yield self._failures.pop(0)

    def due(self, now_ns: int) -> Iterator[Piece]:
        """The pieces of the plan to send now."""
        return self._plan.due(now_ns)

    def take(self, message: FromWorker, now_ns: int) -> Received | None:
        """Take a message from the worker; returns the acknowledgement of a piece.

        Raises OSError where a copy cannot be written, and RunError where the worker has another plan than its own.
        """
        match message:
            case Piece():
                return self._incoming[message.stream].accept(message) if message.stream in self._incoming else None
            case Received():
                self._plan.acknowledge(message, now_ns)
            case PlanConfirmed():
                self._confirm(message)
            case WorkerReady():
                self.ready = message
            case Progress():
                self.sent = max(self.sent, message.sent)
            case JournalProblem():
                self._failures.append(JournalFailed(message.problem, message.ended))
            case Finished():
                self.sent, self.finished = message.sent, message
        return None

    def close(self) -> None:
        self._files.close()

    def _confirm(self, confirmed: PlanConfirmed) -> None:
        if (confirmed.plan_sha256, confirmed.schedule_digest) != (self._plan_sha256, self._digest):
            raise RunError(f"{self.name} confirmed a plan that is not its own: start it anew")
