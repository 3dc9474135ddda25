"""A server's end of one connection. Its writes reach the kernel before they return: a stamp taken before one is the truth."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

from harness.calibration.null_server.pacing import Answer, DueResponses
from harness.clients.transport.tcp import Arrival, PiecesProtocol, TcpTransport


class Inbox:
    """What every channel has received and is yet to work on: one piece in each turn of the event loop, the oldest first. The
    end of what a client sends is a piece, too, without bytes.

    Before each turn the loop reads every socket. A request takes 0.1 ms to answer; were others left unread meanwhile, the
    kernel would join those of one connection, and then it knows only when the last of them came.
    """

    def __init__(self, arrival: Arrival) -> None:
        self._arrival = arrival
        self._waiting: deque[tuple[DirectChannel, bytes, int]] = deque()

    def put(self, channel: DirectChannel, data: bytes) -> None:
        """Let ``channel`` work on ``data``, which was read just now."""
        self._waiting.append((channel, data, self._arrival.ns))
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._work_on_one)

    def _work_on_one(self) -> None:
        channel, data, received_ns = self._waiting[0]
        try:
            if channel.is_open:
                channel.work_on(data, received_ns)
        finally:
            del self._waiting[0]
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._work_on_one)


class DirectChannel(PiecesProtocol):
    """Base of both protocols' connections. What the socket does not take at once, the transport keeps, and answers are held."""

    def __init__(self, due: DueResponses, inbox: Inbox) -> None:
        self.due = due
        self._inbox = inbox
        self._held: list[Answer] = []
        self._full = False

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("TcpTransport", transport)

    def data_received(self, data: bytes) -> None:
        self._inbox.put(self, data)

    def eof_received(self) -> bool:
        self._inbox.put(self, b"")
        return True  # what was sent before it is worked on first

    def work_on(self, data: bytes, received_ns: int) -> None:
        """Read what the kernel received at ``received_ns``; close where the client has ended."""
        if data:
            self.read(data, received_ns)
        else:
            self._transport.close()

    def read(self, data: bytes, received_ns: int) -> None:
        """Work on what the kernel received at ``received_ns``."""
        raise NotImplementedError

    def write(self, data: bytes | bytearray) -> None:
        """Hand ``data`` to the socket; nothing where the connection is gone."""
        self._transport.write(data)

    def takes(self, answer: Answer) -> bool:
        if self._full:
            self.hold(answer)
        return not answer.held

    def hold(self, answer: Answer) -> None:
        """Keep an answer back until ``release``."""
        answer.held = True
        self._held.append(answer)

    def release(self) -> None:
        """Let every held answer try again."""
        held, self._held = self._held, []
        for answer in held:
            self.due.add(answer)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self.release()
