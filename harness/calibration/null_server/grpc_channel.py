"""gRPC over HTTP/2 (RFC 9113; ``PROTOCOL-HTTP2.md`` of grpc/grpc) for the null server.

Supported are flow control in both directions, frame sizes, padding, and several requests on one stream; header tables are off.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from urllib.parse import quote

import grpc

from harness.calibration.null_server.channel import DirectChannel, Inbox
from harness.calibration.null_server.pacing import Answer, DueResponses, Pace, Responses
from harness.clients.transport.http2_frames import (
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    FRAME_HEADER_BYTES,
    LARGEST_WINDOW,
    PREFACE,
    Flag,
    FrameType,
    ProtocolViolationError,
    Setting,
    decoded_headers,
    frame,
    literal_headers,
    unpadded,
)

_PREFIX_BYTES = 5
_REFILL_BYTES = 2**20
_HEADERS = literal_headers([(":status", "200"), ("content-type", "application/grpc")])
_OK = literal_headers([("grpc-status", "0")])
_STAMP = struct.Struct("<q")


class Call:
    """One stream: the received bytes of its requests, and its unfinished answers."""

    __slots__ = ("answers", "half_closed", "headers_sent", "method", "received", "stream_id", "window")

    def __init__(self, stream_id: int, method: str, window: int) -> None:
        self.stream_id = stream_id
        self.method = method
        self.window = window
        self.received = b""
        self.answers: set[Answer] = set()
        self.half_closed = False
        self.headers_sent = False


OnMessage = Callable[["GrpcChannel", Call, bytes, int], None]
"""Answers one message of a call; the last argument is when it was received."""


class GrpcChannel(DirectChannel):
    """One client's connection."""

    def __init__(self, due: DueResponses, inbox: Inbox, on_message: OnMessage) -> None:
        super().__init__(due, inbox)
        self._on_message = on_message
        self._preface_read = False
        self._unread = b""
        self._received_ns = 0  # of what is being read
        self._calls: dict[int, Call] = {}
        self._block: tuple[int, int, bytes] | None = None  # headers that a CONTINUATION completes: stream, flags, so far
        self._window = self._initial_window = DEFAULT_WINDOW
        self._unacknowledged_bytes = 0
        self._handlers: dict[int, Callable[[int, int, bytes], None]] = {
            FrameType.DATA: self._on_data,
            FrameType.HEADERS: self._on_headers,
            FrameType.RST_STREAM: self._on_reset,
            FrameType.SETTINGS: self._on_settings,
            FrameType.PING: self._on_ping,
            FrameType.WINDOW_UPDATE: self._on_window_update,
            FrameType.CONTINUATION: self._on_continuation,
        }

    # ---- answering

    def answer(self, call: Call, message: bytearray, stamp_at: int, count: int, pace: Pace, received_ns: int) -> None:
        """Send ``message`` (its prefix included) ``count`` times at ``pace``, each with its time in ns at ``stamp_at``.

        A message must fit the initial window of a stream, since it is never split.
        """
        starts = range(0, len(message), DEFAULT_FRAME_BYTES)
        parts = [bytes(message[start : start + DEFAULT_FRAME_BYTES]) for start in starts]
        frames = bytearray(b"".join(frame(FrameType.DATA, 0, call.stream_id, part) for part in parts))
        stamp = partial(_stamp, FRAME_HEADER_BYTES + stamp_at)
        responses = Responses(frames, stamp, self._opening(call), count)
        answer = Answer(self, responses, pace, received_ns, call.stream_id, len(message))
        call.answers.add(answer)
        self.due.add(answer)

    def reply(self, call: Call, message: bytes) -> None:
        """Send one short message at once, and end the call."""
        body = struct.pack(">BI", 0, len(message)) + message
        self._window -= len(body)
        opening, trailers = self._opening(call), self._trailers(call, grpc.StatusCode.OK, "")
        self.write(opening + frame(FrameType.DATA, 0, call.stream_id, body) + trailers)
        self._forget(call)

    def end(self, call: Call, code: grpc.StatusCode = grpc.StatusCode.OK, details: str = "") -> None:
        """End a call with a status; unsent responses are dropped."""
        self.write(self._opening(call) + self._trailers(call, code, details))
        self._forget(call)

    def ending(self, answer: Answer) -> bytes:
        call = self._calls[answer.stream_id]
        call.answers.discard(answer)
        if call.answers or not call.half_closed:
            return b""
        del self._calls[answer.stream_id]
        return self._trailers(call, grpc.StatusCode.OK, "")

    def accepts(self, answer: Answer) -> bool:
        """Take the size of the response off the windows, where they and the socket have room."""
        size = answer.window_bytes
        call = self._calls[answer.stream_id]
        if self._full or size > self._window or size > call.window:
            self.hold(answer)
            return False
        self._window -= size
        call.window -= size
        return True

    def _opening(self, call: Call) -> bytes:
        if call.headers_sent:
            return b""
        call.headers_sent = True
        return frame(FrameType.HEADERS, Flag.END_HEADERS, call.stream_id, _HEADERS)

    def _trailers(self, call: Call, code: grpc.StatusCode, details: str) -> bytes:
        block = _OK
        if code is not grpc.StatusCode.OK:
            block = literal_headers([("grpc-status", str(code.value[0])), ("grpc-message", quote(details, safe=" "))])
        return frame(FrameType.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, call.stream_id, block)

    def _forget(self, call: Call) -> None:
        self._calls.pop(call.stream_id, None)
        for answer in call.answers:
            answer.cancel()

    # ---- reading

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        settings = ((Setting.HEADER_TABLE_SIZE, 0), (Setting.INITIAL_WINDOW_SIZE, LARGEST_WINDOW))
        self.write(frame(FrameType.SETTINGS, 0, 0, b"".join(struct.pack(">HI", key, value) for key, value in settings)))
        self._open_window(LARGEST_WINDOW - DEFAULT_WINDOW)

    def connection_lost(self, error: Exception | None) -> None:
        for call in list(self._calls.values()):
            self._forget(call)

    def read(self, data: bytes, received_ns: int) -> None:
        self._received_ns = received_ns
        data = self._unread + data if self._unread else data
        position, end = 0, len(data)
        if not self._preface_read:
            if not data.startswith(PREFACE[:end]):
                self._transport.abort()
                return
            if end < len(PREFACE):
                self._unread = data
                return
            self._preface_read, position = True, len(PREFACE)
        while end - position >= FRAME_HEADER_BYTES and self.is_open:
            start = position + FRAME_HEADER_BYTES
            high, low, kind, flags, stream_id = struct.unpack_from(">HBBBI", data, position)
            size = high << 8 | low
            if size > DEFAULT_FRAME_BYTES:
                self._transport.abort()
                return
            if start + size > end:
                break
            position = start + size
            handler = self._handlers.get(kind)
            if handler is not None:  # unknown kinds must be ignored
                try:
                    handler(flags, stream_id, data[start:position])
                except ProtocolViolationError:
                    self._transport.abort()
                    return
        self._unread = data[position:]

    def _open_window(self, size: int) -> None:
        self.write(frame(FrameType.WINDOW_UPDATE, 0, 0, struct.pack(">I", size)))

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._unacknowledged_bytes += len(payload)
        if self._unacknowledged_bytes >= _REFILL_BYTES:
            self._open_window(self._unacknowledged_bytes)
            self._unacknowledged_bytes = 0
        call = self._calls.get(stream_id)
        if call is None:
            return
        call.half_closed = bool(flags & Flag.END_STREAM)
        data = call.received + (unpadded(flags, payload) if flags & Flag.PADDED else payload)
        while len(data) >= _PREFIX_BYTES and stream_id in self._calls:
            compressed, size = struct.unpack_from(">BI", data)
            if len(data) < _PREFIX_BYTES + size:
                break
            message, data = data[_PREFIX_BYTES : _PREFIX_BYTES + size], data[_PREFIX_BYTES + size :]
            if compressed:
                self.end(call, grpc.StatusCode.UNIMPLEMENTED, "compressed messages are not supported")
                return
            self._on_message(self, call, message, self._received_ns)
        call.received = data
        self._end_if_over(call)

    def _end_if_over(self, call: Call) -> None:
        """End the call where the client has half-closed it and every answer is sent."""
        if call.half_closed and not call.answers and call.stream_id in self._calls:
            cut = bool(call.received)
            self.end(call, grpc.StatusCode.INTERNAL, "the request ended within a message") if cut else self.end(call)

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = unpadded(flags, payload)
        if flags & Flag.PRIORITY:
            block = block[5:]
        self._block = (stream_id, flags, block)
        if flags & Flag.END_HEADERS:
            self._take_headers()

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != stream_id:
            self._transport.abort()
            return
        self._block = (stream_id, self._block[1], self._block[2] + payload)
        if flags & Flag.END_HEADERS:
            self._take_headers()

    def _take_headers(self) -> None:
        assert self._block is not None
        stream_id, flags, block = self._block
        self._block = None
        headers = decoded_headers(block)
        call = Call(stream_id, headers.get(":path", ""), self._initial_window)
        self._calls[stream_id] = call
        call.half_closed = bool(flags & Flag.END_STREAM)
        self._end_if_over(call)

    def _on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        call = self._calls.get(stream_id)
        if call is not None:
            self._forget(call)

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & Flag.ACK:
            return
        for key, value in struct.iter_unpack(">HI", payload[: len(payload) // 6 * 6]):
            if key == Setting.INITIAL_WINDOW_SIZE:
                grown, self._initial_window = value - self._initial_window, value
                for call in self._calls.values():
                    call.window += grown
        self.write(frame(FrameType.SETTINGS, Flag.ACK, 0, b""))
        self.release()

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not flags & Flag.ACK:
            self.write(frame(FrameType.PING, Flag.ACK, 0, payload))

    def _on_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = int.from_bytes(payload)
        if stream_id == 0:
            self._window += size
        elif stream_id in self._calls:
            self._calls[stream_id].window += size
        self.release()


def _stamp(position: int, buffer: bytearray, sent_ns: int) -> None:
    _STAMP.pack_into(buffer, position, sent_ns)
