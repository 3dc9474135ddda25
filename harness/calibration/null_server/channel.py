"""The null server's end of a connection. A write reaches the kernel before it returns, so a stamp taken before it is exact."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

from harness.calibration.null_server.pacing import Answer, DueResponses
from harness.clients.transport.tcp import Arrival, PiecesProtocol, TcpTransport


class Inbox:
    """A queue of the received pieces of all channels, of which each iteration of the event loop handles one, first in, first
    out. The end of a client's stream is a piece without bytes.

    The loop reads every socket before each iteration. Handling a request takes 0.1 ms; were sockets not read meanwhile, the
    kernel would join the pieces of a connection, and stamp only the last of them.
    """

    def __init__(self, arrival: Arrival) -> None:
        self._arrival = arrival
        self._queue: deque[tuple[DirectChannel, bytes, int]] = deque()

    def put(self, channel: DirectChannel, data: bytes) -> None:
        """Queue ``data``, which was read just now, for ``channel``."""
        self._queue.append((channel, data, self._arrival.ns))
        if len(self._queue) == 1:
            asyncio.get_running_loop().call_soon(self._handle_one)

    def _handle_one(self) -> None:
        channel, data, received_ns = self._queue[0]
        try:
            if channel.is_open:
                channel.handle(data, received_ns)
        finally:
            del self._queue[0]
            if self._queue:
                asyncio.get_running_loop().call_soon(self._handle_one)


class DirectChannel(PiecesProtocol):
    """Base of both protocols' connections. While the transport buffers what the socket does not take, answers are held."""

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
        return True  # earlier pieces are handled first

    def handle(self, data: bytes, received_ns: int) -> None:
        """Handle a piece that the kernel received at ``received_ns``; an empty one closes the connection."""
        if data:
            self.read(data, received_ns)
        else:
            self._transport.close()

    def read(self, data: bytes, received_ns: int) -> None:
        """Parse bytes that the kernel received at ``received_ns``, and answer the requests in them."""
        raise NotImplementedError

    def write(self, data: bytes | bytearray) -> None:
        """Hand ``data`` to the socket; no effect where the connection is lost."""
        self._transport.write(data)

    def accepts(self, answer: Answer) -> bool:
        if self._full:
            self.hold(answer)
        return not answer.held

    def hold(self, answer: Answer) -> None:
        """Hold an answer until ``release``."""
        answer.held = True
        self._held.append(answer)

    def release(self) -> None:
        """Queue every held answer again."""
        held, self._held = self._held, []
        for answer in held:
            self.due.add(answer)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self.release()
