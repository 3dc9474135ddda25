"""A worker and a master that do not keep to the protocol, over real sockets: ``benchmarks/hostile_workers.py`` uses them."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Any

import msgspec
import zmq
from xxhash import xxh3_64_intdigest

from harness.distribution.admission import NONCE_BYTES, Admission, Handshake, Token
from harness.distribution.byte_streams import PIECE_BYTES, Incoming, Outgoing, Piece, Received
from harness.distribution.envelopes import (
    ADMITTED,
    CHALLENGE,
    JOIN,
    PAYLOAD,
    PING,
    PONG,
    PROOF,
    Admitted,
    Challenge,
    Content,
    Join,
    Pong,
    Proof,
    Sealed,
    encoded,
    fields,
    from_master,
    from_worker,
    sealed_ping,
)
from harness.distribution.messages import (
    PLAN,
    PROTOCOL,
    Finished,
    Hello,
    PlanConfirmed,
    SetCommand,
    StartAt,
    WorkerReady,
    decode_plan,
    decode_to_worker,
    pack,
    unpack,
)
from harness.journal.run_identity import new_run_id
from harness.journal.worker_journal import Began, JournalWriter
from harness.run.worker import WorkerPlan

BEAT = {"state": "ready", "current_cpu_usage": 1.0, "current_memory_usage": 1}
_BEAT_S = 1.0
_POLL_MS = 50
_PATIENCE_S = 40.0


class Stopped(Exception):  # noqa: N818  not an error
    """The case is over."""


class HostileWorker:
    """A connection to the master. Every wait answers pings and beats, and raises Stopped when ``is_over`` is true."""

    def __init__(self, port: int, token: Token, is_over: Callable[[], bool]) -> None:
        self.name = f"hostile_{token_hex(8)}"
        self.commands: list[int] = []
        self.start: StartAt | None = None
        self.run_id: str | None = None
        self.plan: WorkerPlan | None = None
        self.is_done = False
        self._token = token
        self._is_over = is_over
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.IDENTITY, self.name.encode())
        self._socket.connect(f"tcp://127.0.0.1:{port}")
        self._handshake: Handshake | None = None
        self._beat_s = 0.0
        self._plan_bytes = BytesIO()
        self._incoming = Incoming(PLAN, self._plan_bytes)

    def close(self) -> None:
        self._context.destroy(linger=500)

    # ---- what it sends

    def raw(self, *frames: bytes) -> None:
        self._socket.send_multipart(list(frames))

    def locust(self, kind: Any, data: Any, name: Any = None) -> None:
        self.raw(msgspec.msgpack.encode((kind, data, self.name if name is None else name)))

    def sealed(self, kind: str, data: bytes) -> None:
        """In the handshake's name, or with a signature of zeros where there was none."""
        made = self._handshake
        self.locust(kind, fields(Sealed(data, bytes(32) if made is None else made.of_worker.sign(kind, data))))

    def say(self, message: Any) -> None:
        """A message of bench, or whatever MessagePack can hold."""
        self.sealed(PAYLOAD, pack(self.run_id, message))

    # ---- what a worker does

    def join(self) -> None:
        """Connect and be admitted."""
        nonce = token_bytes(NONCE_BYTES)
        self.locust("client_ready", "2.47.0")
        self.wait(lambda: False, 0.3)
        self.locust(JOIN, fields(Join(nonce)))
        challenge = self._await_content(Challenge)
        self._handshake = Handshake(self._token, self.name, nonce, challenge.nonce)
        self.locust(PROOF, fields(Proof(nonce, self._handshake.worker_proof)))
        self._await_content(Admitted)

    def greet(self) -> None:
        from importlib.metadata import version

        self.say(Hello(PROTOCOL, version("inflight-bench"), "hostile.example", 1.0))

    def take_plan(self) -> WorkerPlan:
        """Wait for the plan; returns it."""
        self.wait(lambda: self.plan is not None)
        assert self.plan is not None
        return self.plan

    def confirm(self) -> None:
        assert self.plan is not None
        self.say(PlanConfirmed(hashlib.sha256(self._plan_bytes.getvalue()).hexdigest(), self.plan.schedule_digest))

    def get_ready(self) -> WorkerPlan:
        """Everything until the start has come, as a good worker would."""
        self.join()
        self.greet()
        plan = self.take_plan()
        self.confirm()
        self.say(WorkerReady())
        self.wait(lambda: self.start is not None)
        return plan

    def send_journal(self, data: bytes) -> None:
        """All of its journal, and an empty probe."""
        for offset in range(0, max(1, len(data)), PIECE_BYTES):
            piece = data[offset : offset + PIECE_BYTES]
            is_last = offset + len(piece) == len(data)
            self.say(Piece("journal", offset, piece, xxh3_64_intdigest(piece), is_last))
        self.say(Piece("probe", 0, b"", xxh3_64_intdigest(b""), True))

    def finish(self, sent: int = 0) -> None:
        self.say(Finished(sent, 0, None))

    def wait(self, is_enough: Callable[[], bool], limit_s: float = _PATIENCE_S) -> None:
        """Take messages until it is enough. Raises Stopped."""
        end_s = time.monotonic() + limit_s
        while not is_enough() and time.monotonic() < end_s:
            self._take(None)

    # ---- what it receives

    def _await_content(self, kind: type[Any]) -> Any:
        end_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end_s:
            if (content := self._take(kind)) is not None:
                return content
        raise Stopped

    def _take(self, kind: type[Any] | None) -> Content | None:
        """Take a message; returns its content if it has the type."""
        if self._is_over():
            raise Stopped
        if time.monotonic() - self._beat_s > _BEAT_S:
            self._beat_s = time.monotonic()
            self.locust("heartbeat", BEAT)
        if not self._socket.poll(_POLL_MS):
            return None
        envelope = from_master(self._socket.recv_multipart(), "")
        if isinstance(envelope.content, Sealed):
            if envelope.kind == PING:
                ping = sealed_ping(envelope.content.data)
                self.sealed(PONG, encoded(Pong(ping.sent_ns, envelope.received_ns, time.monotonic_ns())))
            else:
                self.run_id, data = unpack(envelope.content.data)
                self._take_message(decode_to_worker(data))
        return envelope.content if kind is not None and isinstance(envelope.content, kind) else None

    def _take_message(self, message: Any) -> None:
        match message:
            case Piece() if self.plan is None:
                self.say(self._incoming.accept(message))
                if self._incoming.is_complete:
                    self.plan = decode_plan(self._plan_bytes.getvalue(), Path())
            case SetCommand(command):
                self.commands.append(command)
            case StartAt():
                self.start = message


def journal_bytes(began: Began, *entries: Any) -> bytes:
    """A whole journal with entries of any kind in sound frames."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal-0.bin"
        with JournalWriter(path) as journal:
            for entry in (began, *entries):
                journal.append(entry)
        return path.read_bytes()


class HostileMaster:
    """A master's port. It admits a worker with the right token, and sends it what it should not."""

    def __init__(self, token: Token) -> None:
        self._admission = Admission(token)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self.port = int(self._socket.bind_to_random_port("tcp://127.0.0.1"))
        self.handshake: Handshake | None = None
        self.run_id: str | None = new_run_id()
        self.received: list[Any] = []
        self.is_acknowledging = True
        self._peer = ""

    def close(self) -> None:
        self._context.destroy(linger=0)

    def locust(self, kind: Any, data: Any) -> None:
        self.raw(msgspec.msgpack.encode((kind, data, self._peer)))

    def raw(self, frame: bytes) -> None:
        self._socket.send_multipart([self._peer.encode(), frame])

    def say(self, message: Any) -> None:
        self.sealed(pack(self.run_id, message))

    def sealed(self, data: bytes) -> None:
        assert self.handshake is not None
        self.locust(PAYLOAD, fields(Sealed(data, self.handshake.of_master.sign(PAYLOAD, data))))

    def send_plan(self, plan: bytes) -> None:
        outgoing = Outgoing(PLAN, BytesIO(plan))
        outgoing.end()
        for piece in outgoing.due(0):
            self.say(piece)

    def serve(self, seconds: float, is_enough: Callable[[], bool] = lambda: False) -> None:
        """Answer as a good master would, so far."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s and not is_enough():
            if self._socket.poll(_POLL_MS):
                with suppress(zmq.ZMQError):
                    self._answer()

    def _answer(self) -> None:
        envelope = from_worker(self._socket.recv_multipart(), "")
        self._peer = envelope.peer
        match envelope.content:
            case Join(nonce):
                self.locust(CHALLENGE, fields(Challenge(self._admission.challenge(self._peer, nonce))))
            case Proof(nonce, proof):
                made = self._admission.admit(self._peer, nonce, proof)
                sent = bytes(32) if made is None else made.master_proof
                self.handshake = made
                self.locust(ADMITTED, fields(Admitted(sent)))
            case Sealed(data=data) if envelope.kind == PAYLOAD:
                _, message = msgspec.msgpack.decode(data)
                self.received.append(message)
                if message.get("type") == "piece" and self.is_acknowledging:
                    self.say(Received(message["stream"], message["offset"] + len(message["data"]), message["last"]))
            case _ if envelope.kind == "client_ready":
                self.locust("ack", None)
            case _ if envelope.kind == "heartbeat":
                self.locust("heartbeat", None)


@contextmanager
def closing(made: HostileWorker | HostileMaster) -> Iterator[None]:
    try:
        yield
    except Stopped:
        pass
    finally:
        made.close()
