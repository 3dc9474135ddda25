"""A server's end of one connection. Its writes reach the kernel before they return: a stamp taken before one is the truth."""

from __future__ import annotations

import asyncio
from typing import cast

from harness.calibration.pacing import Answer, DueResponses
from harness.clients.tcp import Arrival, PiecesProtocol, TcpTransport


class DirectChannel(PiecesProtocol):
    """Base of both protocols' connections. What the socket does not take at once, the transport keeps, and answers are held."""

    def __init__(self, due: DueResponses, arrival: Arrival) -> None:
        self.due = due
        self._arrival = arrival
        self._held: list[Answer] = []
        self._full = False

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("TcpTransport", transport)

    def data_received(self, data: bytes) -> None:
        self.read(data, self._arrival.ns)

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
