"""A server's end of one connection, whose writes reach the kernel before they return: a stamp taken before one is the truth.

An event loop's own ``write`` waits for the end of the loop's turn, which can be many responses later.
"""

from __future__ import annotations

import asyncio
import os
from typing import cast

from harness.calibration.pacing import Answer, DueResponses
from harness.clock import now_ns


class DirectChannel(asyncio.Protocol):
    """Base of both protocols' connections. What the socket does not take at once, the transport keeps, and answers are held."""

    def __init__(self, due: DueResponses) -> None:
        self.due = due
        self._held: list[Answer] = []
        self._full = False

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its type
        self._transport.set_write_buffer_limits(high=0)  # to be told of every byte that waits
        self._fd = self._transport.get_extra_info("socket").fileno()

    def data_received(self, data: bytes) -> None:
        """Only stamp: first every connection that has something is read, then what came is worked on."""
        asyncio.get_running_loop().call_soon(self.read, data, now_ns())

    def read(self, data: bytes, received_ns: int) -> None:
        """Work on what was read at ``received_ns``."""
        raise NotImplementedError

    def write(self, data: bytes | bytearray) -> None:
        """Hand ``data`` to the socket; nothing where the connection is gone."""
        if self._transport.is_closing():  # its descriptor may be another's by now
            return
        if self._full:
            self._transport.write(bytes(data))
            return
        try:
            written = os.write(self._fd, data)
        except BlockingIOError:
            written = 0
        except OSError:
            self._transport.abort()
            return
        if written < len(data):
            self._transport.write(bytes(data[written:]))

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
