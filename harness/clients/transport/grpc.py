"""gRPC calls of one method, bytes in and bytes out (gRPC over HTTP/2: ``PROTOCOL-HTTP2.md`` of grpc/grpc).

A unary call and a stream that is half-closed after its only request are the same bytes, so there is one kind of call.

CallFailedError
├── NoConnectionMadeError   no connection could carry the call
└── BadAnswerError          the answer violates gRPC or HTTP/2
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

import grpc

from harness.clients.answer_limits import (
    DEFAULT_ANSWER_LIMITS,
    AnswerLimits,
    AnswerTooLongError,
    answer_too_long,
    message_too_long,
    too_many_responses,
)
from harness.clients.protocol import AnswerEnd, ConnectionUsage, OnResponses, cancelled_at
from harness.clients.transport.http2 import Headers
from harness.clients.transport.http2_frames import ErrorCode, error_text, literal_headers
from harness.clients.transport.http2_pool import ConnectionLimits, Http2Connections, NoConnectionError, OutgoingRequest
from harness.clients.transport.tcp import Arrival
from harness.clients.transport.url import parse_grpc

_PREFIX = struct.Struct(">BI")  # of a message: whether it is compressed, its length
_PREFIX_BYTES = _PREFIX.size
_STATUS = {str(code.value[0]): code for code in grpc.StatusCode}
_CONTENT_TYPE = "application/grpc"
_USER_AGENT = "inflight-bench"


class CallFailedError(Exception):
    """A call ended with a status other than OK."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class NoConnectionMadeError(CallFailedError):
    """There was no connection for the call, or the server closed it without processing the call."""

    def __init__(self, details: str) -> None:
        super().__init__(grpc.StatusCode.UNAVAILABLE, details)


class BadAnswerError(CallFailedError):
    """The answer violates gRPC or HTTP/2."""

    def __init__(self, details: str) -> None:
        super().__init__(grpc.StatusCode.INTERNAL, details)


class _Receiver(NamedTuple):
    """Who receives the messages of an answer, and whether each as it arrives."""

    on_responses: OnResponses
    at_once: bool


class _Call(OutgoingRequest):
    """One call: splits its stream into messages; ``ended`` holds its result."""

    __slots__ = ("_arrival", "_at_once", "_limits", "_on_responses", "_partial", "_room_bytes", "_room_responses", "ended")

    def __init__(
        self, header_block: bytes, request: bytes, receiver: _Receiver, arrival: Arrival, limits: AnswerLimits
    ) -> None:
        super().__init__(header_block, _PREFIX.pack(0, len(request)) + request)
        self._on_responses, self._at_once = receiver
        self._arrival = arrival
        self._limits = limits
        self._room_bytes = limits.max_answer_bytes
        self._room_responses = limits.max_responses
        self._partial: bytearray | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_over(self) -> bool:
        return self.ended.done()

    def on_data(self, data: bytes, start: int, stop: int) -> None:
        self._room_bytes = room = self._room_bytes - (stop - start)
        if room < 0:  # or it was given up, and the server does not have the reset yet
            self._give_up(answer_too_long(self._limits))
            return
        if self._partial is not None:
            self._partial += memoryview(data)[start:stop]
            self._cut_partial()
            return
        while stop - start >= _PREFIX_BYTES:
            compressed, size = _PREFIX.unpack_from(data, start)
            end = start + _PREFIX_BYTES + size
            if end > stop:
                break
            if compressed:
                self._give_up(BadAnswerError("the server compressed a message, which was not offered"))
                return
            self._room_responses = room = self._room_responses - 1
            if room < 0:
                self._give_up(too_many_responses(self._limits))
                return
            self._on_responses((self._arrival.ns,), (data[start + _PREFIX_BYTES : end],))
            start = end
        if start < stop:
            self._partial = bytearray(memoryview(data)[start:stop])
            self._check_length(self._partial)

    @property
    def takes_messages(self) -> bool:
        return self._partial is None and not self._at_once

    def on_messages(self, times_ns: Sequence[int], messages: Sequence[bytes]) -> None:
        size = sum(map(len, messages)) + _PREFIX_BYTES * len(messages)
        if size <= self._room_bytes and len(messages) <= self._room_responses:
            self._room_bytes -= size
            self._room_responses -= len(messages)
            self._on_responses(times_ns, messages)
            return
        for time_ns, message in zip(times_ns, messages, strict=True):  # one of them exceeds a limit
            self._arrival.ns = time_ns
            frame = _PREFIX.pack(0, len(message)) + message
            self.on_data(frame, 0, len(frame))

    def _check_length(self, partial: bytearray) -> None:
        """Give up where the length of an incomplete message is beyond its limit: nothing more of it is kept."""
        if len(partial) >= _PREFIX_BYTES and _PREFIX.unpack_from(partial)[1] > self._limits.max_message_bytes:
            self._give_up(message_too_long(self._limits))

    def _cut_partial(self) -> None:
        """Pass on the messages that are complete now. A message of many frames is copied once."""
        assert self._partial is not None
        if len(self._partial) >= _PREFIX_BYTES:
            _, size = _PREFIX.unpack_from(self._partial)
            if len(self._partial) < _PREFIX_BYTES + size:
                self._check_length(self._partial)
                return
            whole, self._partial = bytes(self._partial), None
            self._room_bytes += len(whole)  # which have been counted
            self.on_data(whole, 0, len(whole))

    def on_headers(self, headers: Headers, ended: bool) -> None:
        if self.head_ns is None:
            self.head_ns = self._arrival.ns
        if not ended:
            problem = _why_no_grpc(headers)
            if problem is not None:
                self._give_up(problem)
            return
        status = headers.get("grpc-status")
        if status == "0":
            if self._partial is not None:
                self.fail(BadAnswerError("the answer ended within a message"))
            elif not self.ended.done():
                self.ended.set_result(None)
        elif status is not None:
            code = _STATUS.get(status, grpc.StatusCode.UNKNOWN)
            self.fail(CallFailedError(code, unquote(headers.get("grpc-message", ""))))
        elif (http_status := headers.get(":status", "200")) != "200":
            self.fail(_http_status_error(http_status))
        else:
            self.fail(BadAnswerError("the answer ended without a gRPC status"))

    def on_reset(self, error_code: int) -> None:
        if error_code in (ErrorCode.REFUSED_STREAM, ErrorCode.ENHANCE_YOUR_CALM):
            refused = f"the server refused the stream ({error_text(error_code)})"
            self.fail(CallFailedError(grpc.StatusCode.RESOURCE_EXHAUSTED, refused))
        else:
            self.fail(CallFailedError(grpc.StatusCode.CANCELLED, f"the server reset the stream ({error_text(error_code)})"))

    def on_lost(self, reason: str) -> None:
        self.fail(CallFailedError(grpc.StatusCode.UNAVAILABLE, reason))

    def on_unprocessed(self, reason: str) -> None:
        """Fail. The request could be repeated, but would then load the server later than scheduled, without a trace of that."""
        self.fail(NoConnectionMadeError(reason))

    def on_violation(self, problem: str) -> None:
        self.fail(BadAnswerError(problem))

    def on_unsent(self, problem: str) -> None:
        self.fail(NoConnectionMadeError(problem))

    def fail(self, error: CallFailedError | AnswerTooLongError) -> None:
        if not self.ended.done():
            self.ended.set_exception(error)

    def _give_up(self, error: CallFailedError | AnswerTooLongError) -> None:
        """Fail, keep nothing that is incomplete, and take nothing more."""
        self.fail(error)
        self._partial = None
        self._room_bytes = -1


def _why_no_grpc(head: Headers) -> CallFailedError | None:
    """Why an answer with this head, which has a body, is no gRPC, as that of a proxy that fails; None where it may be."""
    kind, status = head.get("content-type", ""), head.get(":status", "200")
    if kind.startswith(_CONTENT_TYPE) or status.startswith("1"):
        return None
    if status != "200":
        return _http_status_error(status)
    return BadAnswerError(f"the answer is no gRPC, but {kind}") if kind else None


def _http_status_error(status: str) -> CallFailedError:
    """A status of HTTP alone is that of a proxy. 429 says that it takes no more requests."""
    code = grpc.StatusCode.RESOURCE_EXHAUSTED if status == "429" else grpc.StatusCode.UNKNOWN
    return CallFailedError(code, f"the answer is no gRPC, but HTTP status {status}")


class GrpcCaller:
    """Calls one method of the service at ``address`` (``parse_grpc``), over connections within ``limits``.

    ``answer_limits`` are those of each answer.
    """

    def __init__(
        self, address: str, method: str, limits: ConnectionLimits, answer_limits: AnswerLimits = DEFAULT_ANSWER_LIMITS
    ) -> None:
        origin = parse_grpc(address)
        self.arrival = Arrival()
        self._limits = answer_limits
        self._connections = Http2Connections(origin, limits, self.arrival, answer_limits.max_header_bytes)
        self._headers = literal_headers(
            [
                (":method", "POST"),
                (":scheme", "https" if origin.is_encrypted else "http"),
                (":path", method),
                (":authority", origin.address),
                ("te", "trailers"),
                ("content-type", _CONTENT_TYPE),
                ("user-agent", _USER_AGENT),
            ]
        )

    async def connect(self, timeout_s: float) -> None:
        """Open the initial connections. Raises NoConnectionMadeError."""
        try:
            await self._connections.open(timeout_s)
        except NoConnectionError as error:
            raise NoConnectionMadeError(str(error)) from error

    async def prepare(self, in_flight: int) -> None:
        """Open the connections that this many calls at once will have."""
        await self._connections.prepare(in_flight)

    async def call(self, request: bytes, on_responses: OnResponses, timeout_s: float) -> AnswerEnd:
        """Send ``request`` and hand the messages of the answer to ``on_responses``, perhaps late, many at once.

        Raises CallFailedError with the status of the call, DEADLINE_EXCEEDED after ``timeout_s``. Cancelling the task
        resets the stream. Raises AnswerTooLongError.
        """
        return await self._call(request, _Receiver(on_responses, False), timeout_s)

    async def call_at_once(self, request: bytes, on_responses: OnResponses, timeout_s: float) -> AnswerEnd:
        """The same, each message as it arrives."""
        return await self._call(request, _Receiver(on_responses, True), timeout_s)

    async def _call(self, request: bytes, receiver: _Receiver, timeout_s: float) -> AnswerEnd:
        loop = asyncio.get_running_loop()
        call = _Call(self._headers, request, receiver, self.arrival, self._limits)
        timer = loop.call_later(timeout_s, self._on_deadline, call, timeout_s)
        try:
            self._connections.send(call)
            await call.ended
        except asyncio.CancelledError as cancelled:
            cancelled_at(cancelled, call.end)
            raise
        finally:
            timer.cancel()
            self._connections.drop(call)  # no effect where the server has ended it
        return call.end

    def _on_deadline(self, call: _Call, timeout_s: float) -> None:
        if call.is_sent or self._connections.is_connected:
            call.fail(CallFailedError(grpc.StatusCode.DEADLINE_EXCEEDED, f"no end within {timeout_s:g} s"))
        else:
            call.fail(NoConnectionMadeError(f"no connection within {timeout_s:g} s"))

    def reset_usage(self) -> None:
        self.arrival.unstamped_reads = 0

    def usage(self, since_ns: int) -> ConnectionUsage:
        return self._connections.usage(since_ns)

    async def close(self) -> None:
        self._connections.close()
