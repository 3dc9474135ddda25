"""HTTP/2 frames as gRPC uses them (RFC 9113), for the hot path: one call to ``data_received`` hands on every message that came.

gRPC's own Python client costs about 80 µs a streamed response, because each read is an operation of its own that crosses
threads. Here a response costs the parsing of one frame header. Only what a gRPC client needs is spoken: no server push, no
priorities, no padding of what is sent. Header compression is ``hpack``'s; the table of the server's encoder is set to
zero, so that a block of headers means the same wherever it stands and may be read once and remembered.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from enum import IntEnum, IntFlag
from functools import lru_cache
from typing import Protocol, cast

from hpack import Decoder, HPACKError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER_BYTES = 9
LARGEST_WINDOW = 2**31 - 1
_REFILL_BYTES = 2**30  # of the connection's window, before it is opened again
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_BYTES = 16_384
_LAST_STREAM_ID = 2**31 - 1

Headers = dict[str, str]


class FrameType(IntEnum):
    """RFC 9113, section 6."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Flag(IntFlag):
    """RFC 9113, section 6; ACK of SETTINGS and PING has END_STREAM's bit."""

    NONE = 0
    END_STREAM = 1
    ACK = 1
    END_HEADERS = 4
    PADDED = 8
    PRIORITY = 32


class Setting(IntEnum):
    """RFC 9113, section 6.5.2."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5


class ErrorCode(IntEnum):
    """RFC 9113, section 7; those that mean something to a client."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    REFUSED_STREAM = 7
    CANCEL = 8
    ENHANCE_YOUR_CALM = 11


class StreamEvents(Protocol):
    """What happens to one stream; called while bytes are being read, so each must return soon."""

    def on_data(self, payload: bytes) -> None: ...

    def on_headers(self, headers: Headers, ended: bool) -> None: ...

    def on_reset(self, error_code: int) -> None: ...

    def on_lost(self, reason: str) -> None: ...


def frame(kind: FrameType, flags: int, stream_id: int, payload: bytes) -> bytes:
    """The bytes of one frame."""
    return struct.pack(">HBBBI", len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream_id) + payload


def literal_headers(headers: list[tuple[str, str]]) -> bytes:
    """A header block that neither uses nor fills a table (RFC 7541, section 6.2.2), so that it may be sent again and again."""
    return b"".join(b"\x00" + _string(name) + _string(value) for name, value in headers)


def _string(text: str) -> bytes:
    raw = text.encode("ascii")
    if len(raw) < 127:
        return bytes([len(raw)]) + raw
    rest, length = len(raw) - 127, b"\x7f"
    while rest >= 128:
        length, rest = length + bytes([rest % 128 + 128]), rest // 128
    return length + bytes([rest]) + raw


@lru_cache(maxsize=1024)
def decoded_headers(block: bytes) -> tuple[tuple[str, str], ...]:
    """The headers of a block that uses no table. Raises HPACKError or UnicodeDecodeError."""
    decoder = Decoder()
    decoder.max_allowed_table_size = 0
    decoder.header_table_size = 0
    return tuple((str(name), str(value)) for name, value in decoder.decode(block))


class Http2Protocol(asyncio.Protocol):
    """One connection. ``ready`` is done when the server has sent its settings, or failed with ConnectionError."""

    def __init__(self) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.accepts = True  # whether a new stream may be opened here
        self._streams: dict[int, StreamEvents] = {}
        self._next_id = 1
        self._begun = False  # whether the server's first frame has been seen
        self._left = b""
        self._block: tuple[int, int, bytes] | None = None  # headers that a CONTINUATION completes: stream, flags, so far
        self._unacknowledged_bytes = 0
        self._max_streams = _LAST_STREAM_ID
        self._room: deque[asyncio.Future[None]] = deque()
        self._max_frame_bytes = DEFAULT_FRAME_BYTES
        self._initial_window = DEFAULT_WINDOW
        self._window = DEFAULT_WINDOW
        self._unsent: dict[int, tuple[int, bytes]] = {}  # by stream: what its window still allows, what waits
        self._handlers: dict[int, Callable[[int, int, bytes], None]] = {
            FrameType.DATA: self._on_data,
            FrameType.HEADERS: self._on_headers,
            FrameType.RST_STREAM: self._on_reset,
            FrameType.SETTINGS: self._on_settings,
            FrameType.PING: self._on_ping,
            FrameType.GOAWAY: self._on_goaway,
            FrameType.WINDOW_UPDATE: self._on_window_update,
            FrameType.CONTINUATION: self._on_continuation,
        }

    # ---- sending

    async def open_stream(self, header_block: bytes, body: bytes, events: StreamEvents) -> int:
        """Send one request, whole, and return its stream id; waits while the server allows no further stream."""
        while len(self._streams) >= self._max_streams:
            self._room.append(asyncio.get_running_loop().create_future())
            await self._room[-1]
        if not self.accepts:
            raise ConnectionError("the connection closed before the request was sent")
        stream_id = self._next_id
        self._next_id += 2
        self.accepts = self._next_id < _LAST_STREAM_ID
        self._streams[stream_id] = events
        headers = frame(FrameType.HEADERS, Flag.END_HEADERS, stream_id, header_block)
        if len(body) <= min(self._window, self._initial_window, self._max_frame_bytes):
            self._window -= len(body)
            self._transport.write(headers + frame(FrameType.DATA, Flag.END_STREAM, stream_id, body))
        else:
            self._transport.write(headers)
            self._unsent[stream_id] = (self._initial_window, body)
            self._send_unsent()
        return stream_id

    def reset(self, stream_id: int) -> None:
        """Break a stream off and tell the server; nothing more is heard of it."""
        if self._streams.get(stream_id) is not None:
            self._forget(stream_id)
            self._transport.write(frame(FrameType.RST_STREAM, 0, stream_id, struct.pack(">I", ErrorCode.CANCEL)))

    def close(self) -> None:
        self.accepts = False
        self._transport.close()

    def _send_unsent(self) -> None:
        for stream_id, (window, body) in list(self._unsent.items()):
            while body and (size := min(len(body), window, self._window, self._max_frame_bytes)) > 0:
                part, body = body[:size], body[size:]
                window, self._window = window - size, self._window - size
                self._transport.write(frame(FrameType.DATA, Flag.NONE if body else Flag.END_STREAM, stream_id, part))
            if body:
                self._unsent[stream_id] = (window, body)
            else:
                del self._unsent[stream_id]

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's is none by its type
        settings = ((Setting.HEADER_TABLE_SIZE, 0), (Setting.ENABLE_PUSH, 0), (Setting.INITIAL_WINDOW_SIZE, LARGEST_WINDOW))
        payload = b"".join(struct.pack(">HI", key, value) for key, value in settings)
        transport.write(PREFACE + frame(FrameType.SETTINGS, 0, 0, payload))
        self._open_window(LARGEST_WINDOW - DEFAULT_WINDOW)

    def connection_lost(self, error: Exception | None) -> None:
        reason = f"the connection was lost: {error}" if error else "the server closed the connection"
        self.accepts = False
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(reason))
        streams, self._streams = self._streams, {}
        for events in streams.values():
            events.on_lost(reason)
        self._wake_waiting()

    def data_received(self, data: bytes) -> None:
        data = self._left + data if self._left else data
        position, end = 0, len(data)
        while end - position >= FRAME_HEADER_BYTES:
            start = position + FRAME_HEADER_BYTES
            high, low, kind, flags, stream_id = struct.unpack_from(">HBBBI", data, position)
            if not self._begun:  # RFC 9113, section 3.4: SETTINGS come first
                if kind != FrameType.SETTINGS or stream_id or high << 8 | low > DEFAULT_FRAME_BYTES:
                    self._fail("what it sends is not HTTP/2")
                    return
                self._begun = True
            position = start + (high << 8 | low)
            if position > end:
                position = start - FRAME_HEADER_BYTES
                break
            handler = self._handlers.get(kind)
            if handler is not None:  # unknown kinds must be ignored
                handler(flags, stream_id & _LAST_STREAM_ID, data[start:position])
        self._left = data[position:]

    def _fail(self, problem: str) -> None:
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(problem))
        self._transport.abort()

    def _open_window(self, size: int) -> None:
        self._transport.write(frame(FrameType.WINDOW_UPDATE, 0, 0, struct.pack(">I", size)))

    def _forget(self, stream_id: int) -> None:
        self._streams.pop(stream_id, None)
        self._unsent.pop(stream_id, None)
        if self._room and len(self._streams) < self._max_streams:
            self._wake_waiting()

    def _wake_waiting(self) -> None:
        while self._room:
            waiting = self._room.popleft()
            if not waiting.done():
                waiting.set_result(None)

    # ---- frames

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._unacknowledged_bytes += len(payload)
        if self._unacknowledged_bytes >= _REFILL_BYTES:
            self._open_window(self._unacknowledged_bytes)
            self._unacknowledged_bytes = 0
        events = self._streams.get(stream_id)
        if events is None:
            return
        events.on_data(unpadded(flags, payload) if flags & Flag.PADDED else payload)
        if flags & Flag.END_STREAM:
            self._forget(stream_id)
            events.on_headers({}, True)

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = unpadded(flags, payload)
        if flags & Flag.PRIORITY:
            block = block[5:]
        if flags & Flag.END_HEADERS:
            self._take_headers(flags, stream_id, block)
        else:
            self._block = (stream_id, flags, block)

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != stream_id:
            self._fail("it sent a continuation of headers that it had not begun")
            return
        _, first_flags, block = self._block
        self._block = None
        if flags & Flag.END_HEADERS:
            self._take_headers(first_flags, stream_id, block + payload)
        else:
            self._block = (stream_id, first_flags, block + payload)

    def _take_headers(self, flags: int, stream_id: int, block: bytes) -> None:
        try:
            headers = dict(decoded_headers(block))
        except (HPACKError, UnicodeDecodeError) as error:
            self._fail(f"its headers cannot be read: {error}")
            return
        events = self._streams.get(stream_id)
        if events is None:
            return
        ended = bool(flags & Flag.END_STREAM)
        if ended:
            self._forget(stream_id)
        events.on_headers(headers, ended)

    def _on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        events = self._streams.get(stream_id)
        if events is not None and len(payload) == 4:
            self._forget(stream_id)
            events.on_reset(int.from_bytes(payload))

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if flags & Flag.ACK:
            return
        for key, value in struct.iter_unpack(">HI", payload[: len(payload) // 6 * 6]):
            if key == Setting.MAX_CONCURRENT_STREAMS:
                self._max_streams = value
            elif key == Setting.MAX_FRAME_SIZE:
                self._max_frame_bytes = value
            elif key == Setting.INITIAL_WINDOW_SIZE:
                grown, self._initial_window = value - self._initial_window, value
                self._unsent = {unsent: (window + grown, body) for unsent, (window, body) in self._unsent.items()}
        self._transport.write(frame(FrameType.SETTINGS, Flag.ACK, 0, b""))
        if not self.ready.done():
            self.ready.set_result(None)
        self._send_unsent()

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not flags & Flag.ACK:
            self._transport.write(frame(FrameType.PING, Flag.ACK, 0, payload))

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        """The server takes no further stream, and will not answer those above the last id that it names."""
        self.accepts = False
        last_id = int.from_bytes(payload[:4]) & _LAST_STREAM_ID
        reason = payload[8:].decode("utf-8", "replace") or "no reason given"
        for refused in [known for known in self._streams if known > last_id]:
            events = self._streams[refused]
            self._forget(refused)
            events.on_lost(f"the server is closing the connection: {reason}")
        self._wake_waiting()

    def _on_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = int.from_bytes(payload) & _LAST_STREAM_ID
        if stream_id == 0:
            self._window += size
        elif stream_id in self._unsent:
            window, body = self._unsent[stream_id]
            self._unsent[stream_id] = (window + size, body)
        self._send_unsent()


def unpadded(flags: int, payload: bytes) -> bytes:
    """A frame's payload without its padding."""
    if not flags & Flag.PADDED or not payload:
        return payload
    return payload[1 : len(payload) - payload[0]]
