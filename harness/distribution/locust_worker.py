"""The process that runs Locust's worker beside a worker of a run: connection, heartbeats, clock exchanges. It imports locust.

Run: python -m harness.distribution.locust_worker FD MASTER_HOST MASTER_PORT
The run's token is in its environment.
"""

from __future__ import annotations

import locust  # isort: skip  # first, since it replaces what other modules import

import logging
import os
import secrets
import socket
import sys
import time

import gevent
import locust.runners
from gevent.event import Event
from locust.env import Environment
from locust.event import Events
from locust.runners import WorkerRunner

from harness.distribution.admission import NONCE_BYTES, Handshake, Token, token_of_environment
from harness.distribution.dropped_messages import BadMessageError, DroppedMessages, printable
from harness.distribution.envelopes import (
    JOIN,
    PAYLOAD,
    PING,
    PONG,
    PROOF,
    Admitted,
    Answered,
    Challenge,
    Content,
    Envelope,
    Join,
    Pong,
    Proof,
    Quit,
    Refused,
    Sealed,
    encoded,
    fields,
    sealed_ping,
)
from harness.distribution.link import (
    Deliver,
    Delivered,
    Dropped,
    FrameSocket,
    Heard,
    Left,
    LinkClosedError,
    NotAdmitted,
    Opened,
    Silent,
    decode_order,
)
from harness.distribution.locust_sockets import use_guarded_sockets

_CONNECT_ATTEMPTS = 800  # of 5 s each, so that a worker may be started an hour before its master
_SILENT_AFTER_S = 10.0
_WATCH_PERIOD_S = 0.2
_ASK_PERIOD_S = 0.5
_ADMITTED_WITHIN_S = 20.0


class _Runner(WorkerRunner):
    """Locust's worker without users, which obeys nothing but the end, and the messages that its master has signed."""

    def __init__(self, environment: Environment, host: str, port: int, frames: FrameSocket, token: Token) -> None:
        self.handshake: Handshake | None = None
        self.is_admitted = False
        self.is_answered = Event()
        self.refusal: str | None = None
        self.heard_s = time.monotonic()
        self.dropped: DroppedMessages[str] = DroppedMessages()
        self._frames = frames
        self._token = token
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        use_guarded_sockets(self.drop)
        super().__init__(environment, host, port)  # returns when the master has answered

    def drop(self, address: str, reason: str) -> None:
        self.dropped.add(address, printable(reason))

    def handle_message(self, msg: Envelope) -> None:  # type: ignore[override]  # the guarded socket returns it
        """Whatever happens here, the greenlet that receives goes on."""
        try:
            self._handle(msg)
        except BadMessageError as error:
            self.drop(msg.address, str(error))
        except Exception as error:
            self.drop(msg.address, f"{msg.kind} cannot be handled: {error!r}")

    def join_run(self) -> None:
        """Ask the master until it admits or refuses this worker, or does neither in time."""
        deadline_s = time.monotonic() + _ADMITTED_WITHIN_S
        while not self.is_admitted and self.refusal is None:
            self._say(JOIN, Join(self._nonce))
            if time.monotonic() > deadline_s:
                self.refusal = "the master does not answer as this version of bench does: install the same version on both"
            self.is_answered.wait(_ASK_PERIOD_S)

    def say_sealed(self, kind: str, data: bytes) -> None:
        assert self.handshake is not None
        self._say(kind, Sealed(data, self.handshake.of_worker.sign(kind, data)))

    def _say(self, kind: str, content: Content) -> None:
        self.send_message(kind, fields(content))

    def _handle(self, message: Envelope) -> None:
        match message.content:
            case Answered() if message.kind == "ack":
                self.connection_event.set()
            case Answered():
                self.last_heartbeat_timestamp = time.time()  # Locust's own watch reads it
                self.heard_s = time.monotonic()
            case Quit():
                self.greenlet.kill(block=False)
            case Challenge(nonce) if not self.is_admitted:
                self.handshake = Handshake(self._token, self.client_id, self._nonce, nonce)
                self._say(PROOF, Proof(self._nonce, self.handshake.worker_proof))
            case Refused(reason) if not self.is_admitted:
                self.refusal = printable(reason)
            case Admitted(proof) if not self.is_admitted:
                self._take_admission(proof)
            case Sealed() as sealed if message.kind == PAYLOAD:
                self._frames.send_if_open(Delivered("", self._opened(PAYLOAD, sealed)))
            case Sealed() as sealed:
                self._answer(self._opened(PING, sealed), message.received_ns)
            case _:
                pass  # what has no use here, or comes again

    def _take_admission(self, proof: bytes) -> None:
        if self.handshake is None:
            raise BadMessageError("admitted without a challenge")
        if proof != self.handshake.master_proof:
            self.refusal = "the program that answers there does not know the token: it is not this run's master"
            return
        self.is_admitted = True
        self.is_answered.set()

    def _opened(self, kind: str, sealed: Sealed) -> bytes:
        handshake = self.handshake
        if handshake is None or not handshake.of_master.is_valid(kind, sealed.data, sealed.signature):
            raise BadMessageError(f"{kind}: not signed by the master")
        return sealed.data

    def _answer(self, data: bytes, received_ns: int) -> None:
        ping = sealed_ping(data)
        self.say_sealed(PONG, encoded(Pong(ping.sent_ns, received_ns, time.monotonic_ns())))


class _Worker:
    def __init__(self, frames: FrameSocket, host: str, port: int) -> None:
        self._frames = frames
        self._is_silent = False
        environment = Environment(events=Events(), user_classes=[])
        self._runner = _Runner(environment, host, port, frames, token_of_environment())
        environment.runner = self._runner

    def work(self) -> None:
        """Join the run, and carry out orders until the process that gives them closes the pipe."""
        gevent.spawn(self._watch)
        self._runner.join_run()
        refusal = self._runner.refusal
        self._frames.send_if_open(Opened() if refusal is None else NotAdmitted(refusal))
        try:
            while True:
                data = self._frames.receive(None)
                assert data is not None
                order = decode_order(data)
                if isinstance(order, Deliver) and self._runner.is_admitted:
                    self._runner.say_sealed(PAYLOAD, order.payload)
        except LinkClosedError:
            self._runner.send_message("quit")
            gevent.sleep(0.2)  # for the socket to send it

    def _watch(self) -> None:
        """Report a master that is silent, is heard again, or has ended: Locust then ends the greenlets of its worker."""
        self._runner.heard_s = time.monotonic()
        while True:
            gevent.sleep(_WATCH_PERIOD_S)
            self._report_dropped()
            if not len(self._runner.greenlet):
                self._frames.send_if_open(Left(""))
                return
            is_silent = time.monotonic() - self._runner.heard_s > _SILENT_AFTER_S
            if is_silent != self._is_silent and self._runner.is_admitted:
                self._is_silent = is_silent
                self._frames.send_if_open(Silent("") if is_silent else Heard(""))

    def _report_dropped(self) -> None:
        dropped, self._runner.dropped = self._runner.dropped, DroppedMessages()
        for address, reason, count in dropped:
            self._frames.send_if_open(Dropped("", address, reason, count))


def _exit_when_orphaned(parent: int) -> None:
    """End this process with the one that started it, also while it waits for a master."""
    while os.getppid() == parent:
        gevent.sleep(_WATCH_PERIOD_S)
    os._exit(1)


def _exit_when_given_up(end: socket.socket) -> None:
    """End this process when the one that started it closes the pipe and no master has answered: there is none to leave."""
    while end.recv(1, socket.MSG_PEEK):
        gevent.sleep(_WATCH_PERIOD_S)
    os._exit(0)


def main() -> None:
    descriptor, host, port = sys.argv[1:]
    logging.getLogger("locust").setLevel(logging.CRITICAL)
    locust.runners.CONNECT_RETRY_COUNT = _CONNECT_ATTEMPTS
    gevent.spawn(_exit_when_orphaned, os.getppid())
    end = socket.socket(fileno=int(descriptor))
    waiting = gevent.spawn(_exit_when_given_up, end)
    worker = _Worker(FrameSocket(end), host, int(port))
    waiting.kill()
    worker.work()
    os._exit(0)  # no greenlet has anything left to do


if __name__ == "__main__":
    assert locust is not None
    main()
