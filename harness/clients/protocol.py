"""The seam between a run and a serving protocol.

A Client is a small picklable value: it encodes requests before the run, opens the connection that the hot loop uses, and
decodes what came back after the run. Between the two only time stamps and raw bytes are handled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

import msgspec

from harness.records.record import Outcome
from workloads.request import Request

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises of bytes that are no JSON, no UTF-8, or nested more deeply than Python's calls may be."""

TokenCount = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""How many tokens a server says there are, in JSON; more is no count, and sums of such counts fit 64 bits."""

TokenId = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A token's id in JSON, as large as Triton's ``output_ids`` (INT32) have it."""

OnResponses = Callable[[Sequence[int], Sequence[bytes]], None]
"""Takes responses as they are read, with when each arrived (ns of ``now_ns``)."""


class MalformedResponseError(Exception):
    """A response's bytes are not what the protocol promises."""


class ExchangeFailedError(Exception):
    """An exchange broke; ``outcome`` is the kind of failure."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class Response(msgspec.Struct, frozen=True, gc=False):
    """What one response says. Unknown is None.

    ``token_ids`` are what the server returned, an echoed prompt included; ``server_tokens`` is its own count of the
    generated tokens in this response, ``server_tokens_so_far`` that of all up to its end (in protocols that count so, and
    perhaps in the last response alone). ``error`` set means that the server refused the request, ``refused`` that it did
    so because it is full. ``request_id`` is the id that our request had, where the server repeats it; ``final`` is its own
    word on whether this response is the last.
    """

    token_ids: tuple[int, ...] | None = None
    text: str | None = None
    server_tokens: int | None = None
    server_tokens_so_far: int | None = None
    server_input_tokens: int | None = None
    error: str | None = None
    refused: bool = False
    request_id: str | None = None
    final: bool | None = None


@dataclass(frozen=True, slots=True)
class ConnectionUsage:
    """The sockets behind one worker's Connection: how many it began with, how many were ever opened, and the exchanges that
    waited because the server takes no more at once on any of them. ``longest_wait_ns`` is None where none did.
    ``unstamped_reads`` are those of which the kernel did not say when their bytes had come: their time is that of the read.
    """

    per_worker: int
    opened: int
    limit_reached: int = 0
    total_wait_ns: int = 0
    longest_wait_ns: int | None = None
    unstamped_reads: int = 0


class Connection(Protocol):
    """An open connection that carries many exchanges at once, over one socket or several."""

    async def prepare(self, in_flight: int, timeout_s: float) -> None:
        """Open beforehand what so many exchanges at once will need; ``timeout_s`` is for each connection.

        Raises ExchangeFailedError.
        """
        ...

    async def exchange(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> None:
        """Send one encoded request and call ``on_responses`` with the bytes of responses as they are read.

        Returns when the server has ended its answer. Raises ExchangeFailedError.
        """
        ...

    def reset_usage(self) -> None:
        """Count reads from now on: those of the warm-up, when the kernel may not stamp yet, are not the run's."""
        ...

    def usage(self, since_ns: int) -> ConnectionUsage:
        """What the connection's sockets were put to; waits that ended before ``since_ns`` (of ``now_ns``) do not count."""
        ...

    async def close(self) -> None: ...


class Client(Protocol):
    """One serving protocol, pointed at one model."""

    @property
    def streaming(self) -> bool:
        """Whether answers are asked for token by token."""
        ...

    @property
    def excludes_prompt(self) -> bool:
        """Whether requests ask the server to leave the prompt out of its answer."""
        ...

    def sockets(self, in_flight: int) -> int:
        """The most sockets that a connection opens for so many requests in flight."""
        ...

    def encode(self, index: int, request: Request) -> bytes:
        """The bytes to send for ``request``; ``index`` becomes its id on the wire."""
        ...

    def decode(self, body: bytes) -> Response:
        """Read one response. Raises MalformedResponseError."""
        ...

    async def connect(self, timeout_s: float) -> Connection:
        """Open a connection on the running loop. Raises ExchangeFailedError when the server cannot be reached."""
        ...


_FULL = re.compile(
    r"exceeds maximum queue size|maximum queue size of"  # Triton
    r"|request queue is full|queue is full|queue full"  # SGLang, and proxies
    r"|overloaded|too many (concurrent )?requests",  # text-generation-inference, gateways
    re.IGNORECASE,
)


def says_full(message: str) -> bool:
    """Whether an error means that the server takes no more for now."""
    return _FULL.search(message) is not None
