"""The seam between a run and a serving protocol.

A Client is a small picklable value: it encodes requests before the run, opens the connection that the hot loop uses, and
decodes what came back after the run. Between the two only time stamps and raw bytes are handled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from harness.records.record import Outcome
from workloads.request import Request

OnResponse = Callable[[bytes], None]


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
    so because it is full.
    """

    token_ids: tuple[int, ...] | None = None
    text: str | None = None
    server_tokens: int | None = None
    server_tokens_so_far: int | None = None
    server_input_tokens: int | None = None
    error: str | None = None
    refused: bool = False


class Connection(Protocol):
    """An open connection that carries many exchanges at once."""

    async def exchange(self, payload: bytes, on_response: OnResponse, timeout_s: float) -> None:
        """Send one encoded request and call ``on_response`` with each response's bytes as it arrives.

        Returns when the server has ended its answer. Raises ExchangeFailedError.
        """
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

    def encode(self, index: int, request: Request) -> bytes:
        """The bytes to send for ``request``; ``index`` becomes its id on the wire."""
        ...

    def decode(self, body: bytes) -> Response:
        """Read one response. Raises MalformedResponseError."""
        ...

    async def connect(self, timeout_s: float) -> Connection:
        """Open a connection on the running loop. Raises ExchangeFailedError when the server cannot be reached."""
        ...
