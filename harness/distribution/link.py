"""The pipe between a process of bench and the process beside it that runs Locust, and the values that pass through it.

Locust runs on gevent, which replaces Python's sockets and threads; in a process of its own it and the run cannot disturb each
other. What bench sends to another host passes through as opaque bytes.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from harness.distribution.clock_sync import ClockExchange
from harness.distribution.live_histograms import LiveUpdate
from harness.errors import RunError
from harness.host.signals import signals_blocked

_LENGTH = struct.Struct("<I")
_READ_BYTES = 1 << 20
_END_TIMEOUT_S = 5.0
_SEND_TIMEOUT_S = 20.0  # a process that takes nothing for so long hangs


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """The master listens on ``port``; or the worker has reached its master (0)."""

    port: int = 0


class Delivered(msgspec.Struct, frozen=True, tag="delivered"):
    """Bytes from another host: from a worker, or (``peer`` is empty) from the master."""

    peer: str
    payload: bytes


class Silent(msgspec.Struct, frozen=True, tag="silent"):
    """No heartbeat has come from the peer for some seconds."""

    peer: str


class Left(msgspec.Struct, frozen=True, tag="left"):
    """The peer has ended its connection."""

    peer: str


class Heard(msgspec.Struct, frozen=True, tag="heard"):
    """Heartbeats of a silent peer come again."""

    peer: str


class ClockExchanged(msgspec.Struct, frozen=True, tag="clock"):
    """One exchange of time stamps with a worker."""

    peer: str
    exchange: ClockExchange


class StopAsked(msgspec.Struct, frozen=True, tag="stop"):
    """The button of the web page was pressed."""


class Dropped(msgspec.Struct, frozen=True, tag="dropped"):
    """``count`` messages were dropped because of ``reason``. They came from ``address``; ``peer`` is empty where their
    connection is not admitted.
    """

    peer: str
    address: str
    reason: str
    count: int


class NotAdmitted(msgspec.Struct, frozen=True, tag="not_admitted"):
    """The worker takes no part in the run of this master."""

    reason: str


LinkEvent = Opened | Delivered | Silent | Left | Heard | ClockExchanged | StopAsked | Dropped | NotAdmitted


class Deliver(msgspec.Struct, frozen=True, tag="deliver"):
    """Bytes for another host: for a worker, or (``peer`` is empty) for the master."""

    peer: str
    payload: bytes


class Show(msgspec.Struct, frozen=True, tag="show"):
    """Numbers for the web page."""

    update: LiveUpdate


LinkOrder = Deliver | Show

_encode = msgspec.msgpack.Encoder().encode
decode_event = msgspec.msgpack.Decoder(LinkEvent).decode
decode_order = msgspec.msgpack.Decoder(LinkOrder).decode


class LinkClosedError(Exception):
    """The process at the other end has ended."""


class FrameSocket:
    """Whole messages over a stream socket, from any thread."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._lock = threading.Lock()

    def send(self, message: LinkEvent | LinkOrder) -> None:
        """Raises LinkClosedError."""
        payload = _encode(message)
        try:
            with self._lock:
                self._stream.sendall(_LENGTH.pack(len(payload)) + payload)
        except OSError as error:  # a part of the message may be sent, so nothing can follow it
            with suppress(OSError):
                self._stream.shutdown(socket.SHUT_RDWR)
            raise LinkClosedError from error

    def send_if_open(self, message: LinkEvent | LinkOrder) -> None:
        """As ``send``; nothing where the other end is gone, which ``receive`` raises."""
        with suppress(LinkClosedError):
            self.send(message)

    def receive(self, timeout_s: float | None) -> bytes | None:
        """The next message; None where none comes within ``timeout_s``. Raises LinkClosedError."""
        while (message := self._taken()) is None:
            if timeout_s is not None and not select.select([self._stream], [], [], timeout_s)[0]:
                return None
            try:
                data = self._stream.recv(_READ_BYTES)
            except OSError as error:
                raise LinkClosedError from error
            if not data:
                raise LinkClosedError
            self._buffer += data
        return message

    def close(self) -> None:
        self._stream.close()

    def _taken(self) -> bytes | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
        if len(self._buffer) < end:
            return None
        message = bytes(memoryview(self._buffer)[_LENGTH.size : end])
        del self._buffer[:end]
        return message


class LinkProcess:
    """A process that runs ``module`` of this package, with the other end of ``frames`` as its first argument.

    ``secrets`` are variables of its environment: arguments are in the list of processes.
    """

    def __init__(self, module: str, arguments: Sequence[str], secrets: Mapping[str, str] | None = None) -> None:
        ours, theirs = socket.socketpair()
        with theirs, signals_blocked():  # a Ctrl-C is this process's: the run drains, and its link stays up
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno()), *arguments],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "LOCUST_SKIP_URLLIB3_PATCH": "1", **(secrets or {})},
                stdout=subprocess.DEVNULL,
            )
        ours.settimeout(_SEND_TIMEOUT_S)
        self.frames = FrameSocket(ours)

    def receive(self, timeout_s: float) -> LinkEvent | None:
        """The next event; None where none comes in time. Raises RunError where the process has ended."""
        try:
            data = self.frames.receive(timeout_s)
        except LinkClosedError:
            raise RunError(f"the process that connects this host to the others ended with status {self._end()}") from None
        return None if data is None else decode_event(data)

    def send(self, order: LinkOrder) -> None:
        """Pass an order on; nothing where the process has ended, which ``receive`` raises."""
        self.frames.send_if_open(order)

    def close(self) -> None:
        """End the process, which first leaves Locust in order."""
        self.frames.close()
        self._end()

    def _end(self) -> int:
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_TIMEOUT_S)
        finally:  # a second Ctrl-C does not leave it behind
            self._process.kill()
        return self._process.wait()
