"""The interface between a run and a serving protocol.

A Client is a small picklable value: it encodes requests before the run, opens the connection that the hot loop uses, and
decodes responses after the run. During the run only time stamps and raw bytes are handled.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, NamedTuple, Protocol, Self, TypeVar

import msgspec

from bench_records.record import Outcome
from harness.clients.secret_values import Spellings
from harness.clients.server_times import ServerTimes
from workloads.elements.request import Request

NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of msgspec for bytes that are not JSON, not UTF-8, or nested more deeply than Python's call stack allows."""

TokenCount = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""A token count in JSON. Larger numbers are refused, so that sums of counts fit 64 bits."""

TokenId = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A token id in JSON, of the range of Triton's ``output_ids`` (INT32)."""

OnResponses = Callable[[Sequence[int], Sequence[bytes]], None]
"""Called with the arrival times (ns of ``now_ns``) and the bytes of responses as they are read."""


class AnswerEnd(NamedTuple):
    """An answer that the server ended in order.

    ``missing`` is that it lacks the end marker of the protocol, in words; None where it does not. ``connect_ns`` is how long
    the request waited for a connection to open, or for room on one; None where there was one. ``router_ns`` is how long it was
    in routers, by what they say; None where none says it. ``written_ns`` is when the kernel was given its last byte, and
    ``head_ns`` when the head of the answer arrived, in ns of ``now_ns``; None where that is unknown.
    """

    missing: str | None = None
    connect_ns: int | None = None
    router_ns: int | None = None
    written_ns: int | None = None
    head_ns: int | None = None


class MalformedResponseError(Exception):
    """The bytes of a response do not conform to the protocol."""


_Body = TypeVar("_Body")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SHOWN_OF_BODY = 200  # bytes


def read_json(decode: Callable[[bytes], _Body], body: bytes, noun: str) -> _Body:
    """``decode(body)``. Raises MalformedResponseError where the body is not ``noun``, which has an article; it shows the body.

    JSON may have half of a surrogate pair (RFC 8259, section 8.2), as from a server that cuts UTF-16 between two events.
    msgspec refuses it, so it becomes a question mark.
    """
    try:
        return decode(body)
    except NOT_JSON as error:
        try:
            if _SURROGATE.search(body) is not None:
                return decode(json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            pass
        shown = f"{error}: {body[:_SHOWN_OF_BODY]!r}" if body.strip() else "the body of the answer is empty"
        raise MalformedResponseError(f"not {noun}: {shown}") from error


_LONGEST_PROBLEM = 2_000  # characters: a server may have written the message


class ExchangeFailedError(Exception):
    """An exchange failed; ``outcome`` is the kind of failure, and ``end`` what is known of the answer up to there."""

    def __init__(self, outcome: Outcome, message: str, end: AnswerEnd | None = None) -> None:
        super().__init__(message[:_LONGEST_PROBLEM])
        self.outcome = outcome
        self.end = end


def cancelled_at(cancelled: asyncio.CancelledError, end: AnswerEnd) -> None:
    """Have what cancels an exchange, and catches ``cancelled``, find in it what is known of the answer up to there.

    As an argument, since ``asyncio.timeout`` catches no subclass of CancelledError before Python 3.12.
    """
    cancelled.args = (end,)


def end_at_cancellation(expired: TimeoutError) -> AnswerEnd | None:
    """What ``cancelled_at`` left in the error that ``asyncio.timeout`` made a TimeoutError of; None where nothing did."""
    cancelled = expired.__cause__ or expired.__context__  # the context alone in early releases of Python 3.11
    args = () if cancelled is None else cancelled.args
    return next((each for each in args if isinstance(each, AnswerEnd)), None)


class Repetition(Enum):
    """Whether the text of a streamed response begins with the text of all responses before it."""

    NONE = "none"
    POSSIBLE = "possible"
    CERTAIN = "certain"


class Response(msgspec.Struct, frozen=True, gc=False):
    """The content of one response. Unknown is None.

    ``token_ids`` are those that the server returned, an echoed prompt included; ``server_tokens`` is the server's count of
    the generated tokens in this response, ``server_tokens_so_far`` its count of all up to the end of this response (in
    protocols with such a count, and perhaps in the last response alone). ``server_reasoning_tokens`` are those of it that the
    server calls reasoning, whether it sends them or not. The server found ``server_cached_tokens`` of the
    prompt's ``server_input_tokens`` in its prefix cache. ``error`` is set where the request failed; ``refused`` is True where
    it failed because the server is full. ``request_id`` is the id of the request, where the server repeats it; ``final`` is the
    server's mark of the last response. ``opening`` marks a chunk that names the role and has no text. The first
    ``reasoning_characters`` of ``text`` are reasoning, which precedes the answer that a user sees. ``choices`` is the number of
    choices as far as this response shows it, and ``finish_reasons`` has the reasons of the choices that end in it.
    ``server_times`` are what the server measured of the request up to this response. ``repetition`` is that of
    ``text``.
    """

    token_ids: tuple[int, ...] | None = None
    text: str | None = None
    server_tokens: int | None = None
    server_tokens_so_far: int | None = None
    server_reasoning_tokens: int | None = None
    server_input_tokens: int | None = None
    server_cached_tokens: int | None = None
    error: str | None = None
    refused: bool = False
    request_id: str | None = None
    final: bool | None = None
    opening: bool = False
    reasoning_characters: int = 0
    choices: int = 1
    finish_reasons: tuple[str, ...] = ()
    server_times: ServerTimes | None = None
    repetition: Repetition = Repetition.NONE


@dataclass(frozen=True, slots=True)
class ConnectionUsage:
    """The sockets of one worker's Connection: how many it began with, how many were ever opened, and the exchanges that
    waited because every socket had as many in flight as the server allows. ``longest_wait_ns`` is None where none waited.
    ``unstamped_reads`` are reads without an arrival time from the kernel: their time is that of the read.
    """

    per_worker: int
    opened: int
    limit_reached: int = 0
    total_wait_ns: int = 0
    longest_wait_ns: int | None = None
    unstamped_reads: int = 0


def usage_of_all(usages: Sequence[ConnectionUsage]) -> ConnectionUsage:
    """The use of one worker's sockets to several servers together."""
    longest_ns = [usage.longest_wait_ns for usage in usages if usage.longest_wait_ns is not None]
    return ConnectionUsage(
        per_worker=sum(usage.per_worker for usage in usages),
        opened=sum(usage.opened for usage in usages),
        limit_reached=sum(usage.limit_reached for usage in usages),
        total_wait_ns=sum(usage.total_wait_ns for usage in usages),
        longest_wait_ns=max(longest_ns, default=None),
        unstamped_reads=sum(usage.unstamped_reads for usage in usages),
    )


class Exchanging(Protocol):
    """What carries out exchanges."""

    async def exchange(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> AnswerEnd | None:
        """Send one encoded request and call ``on_responses`` with the bytes of responses as they are read.

        They may be handed over late, many at once, with the times of their arrival. Returns when the server has ended its
        answer in order; None where there is nothing to say of it. Raises ExchangeFailedError.
        """
        ...

    async def exchange_at_once(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> AnswerEnd | None:
        """As ``exchange``, but every response is handed over as it arrives, which costs more."""
        ...


class Connection(Exchanging, Protocol):
    """An open connection that carries many exchanges at once, over one socket or several."""

    async def prepare(self, in_flight: int, timeout_s: float) -> None:
        """Open the sockets that ``in_flight`` exchanges will need; ``timeout_s`` is for each connection.

        Raises ExchangeFailedError.
        """
        ...

    def reset_usage(self) -> None:
        """Restart the count of reads: those of the warm-up, when the kernel may not stamp yet, are not part of the run."""
        ...

    def usage(self, since_ns: int) -> ConnectionUsage:
        """The use of the sockets since ``reset_usage``; waits that ended before ``since_ns`` (of ``now_ns``) do not count."""
        ...

    async def close(self) -> None: ...


class Client(Protocol):
    """One serving protocol, pointed at one model."""

    @property
    def streaming(self) -> bool:
        """Whether answers are requested token by token."""
        ...

    @property
    def excludes_prompt(self) -> bool:
        """Whether requests exclude the prompt from the answer."""
        ...

    @property
    def expects_finish_reason(self) -> bool | None:
        """Whether the server was seen to send a finish_reason, so that an answer without one is not complete; None where the
        protocol has none.
        """
        ...

    @property
    def continuous_usage(self) -> bool | None:
        """Whether the server was seen to count tokens in each response on request; None where the protocol has no request."""
        ...

    @property
    def hidden(self) -> Spellings:
        """What is replaced wherever the server repeats it, since it is a secret."""
        ...

    def sockets(self, in_flight: int) -> int:
        """The largest number of sockets that a connection opens for ``in_flight`` requests in flight."""
        ...

    def for_decoding(self) -> Self:
        """The client without what only sending needs, which may hold secrets."""
        ...

    def for_run(self, run_id: str) -> Self:
        """The client for requests of a run, whose ids on the wire contain ``run_id`` where the protocol has room for it."""
        ...

    def encode(self, index: int, request: Request) -> bytes:
        """The bytes to send for ``request``; ``index`` becomes its id on the wire."""
        ...

    def decode(self, body: bytes) -> Response:
        """Parse one response. Raises MalformedResponseError."""
        ...

    async def connect(self, timeout_s: float) -> Connection:
        """Open a connection on the running loop. Raises ExchangeFailedError when the server cannot be reached."""
        ...


_FULL = re.compile(
    r"exceeds maximum queue size|maximum queue size of"  # Triton
    r"|request queue is full|queue is full|queue full"  # SGLang, and proxies
    r"|overloaded|too many (concurrent )?requests|rate[ _-]?limit",  # text-generation-inference, gateways
    re.IGNORECASE,
)


def is_full_message(message: str) -> bool:
    """Whether an error message means that the server is full, or takes no more for now."""
    return _FULL.search(message) is not None
