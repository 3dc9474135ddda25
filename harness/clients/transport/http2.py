"""An HTTP/2 connection for gRPC (RFC 9113), for the hot path: one ``data_received`` passes on every received message.

gRPC's own Python client costs about 80 µs a streamed response, because each read is a separate operation across threads.
Here a response costs the parsing of one frame header. Only the parts that a gRPC client needs are implemented: no server
push, no priorities, no padding of sent frames. Where the peer violates the protocol, the connection and every stream on it
end with an error that names the violation.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS
from harness.clients.transport.http2_frames import (
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    LARGEST_FRAME_BYTES,
    LARGEST_WINDOW,
    LAST_STREAM_ID,
    PREFACE,
    ErrorCode,
    Flag,
    FrameType,
    ProtocolViolationError,
    Setting,
    decoded_headers,
    error_text,
    frame,
    headers_too_long,
    unpadded,
)
from harness.clients.transport.tcp import Arrival, PiecesProtocol
from harness.host.clock import now_ns

_REFILL_BYTES = 2**30  # received before the connection's window is extended
_MAX_UNREAD_PINGS_BYTES = 2**20  # answers to pings that the server has not read
_FIXED_BYTES: dict[int, int] = {FrameType.RST_STREAM: 4, FrameType.PING: 8, FrameType.WINDOW_UPDATE: 4}
_OF_CONNECTION = frozenset({FrameType.SETTINGS, FrameType.PING, FrameType.GOAWAY})
_FIRST_FRAME_RULE = "the answer is not HTTP/2"  # RFC 9113, section 3.4: SETTINGS come first

# Plain numbers for the loop over frames: an enumeration look-up costs more than the frame.
_UNPACK = FRAME_HEADER.unpack_from
_DATA = int(FrameType.DATA)

Headers = Mapping[str, str]


class StreamEvents(Protocol):
    """The callbacks of one stream, called while bytes are written and read, so each must return soon and raise nothing."""

    def on_written(self, given_ns: int) -> None:
        """The kernel was given the last byte of the request at ``given_ns``: before that call, in which the process may lose
        its core to the server. Not called over TLS, where the event loop's transport writes when it has time.
        """
        ...

    def on_data(self, data: bytes, start: int, stop: int) -> None:
        """``data[start:stop]`` belongs to the stream."""
        ...

    @property
    def takes_messages(self) -> bool:
        """Whether the next byte begins a gRPC message, and messages may be passed on late, many at once."""
        ...

    def on_messages(self, times_ns: Sequence[int], messages: Sequence[bytes]) -> None:
        """Whole gRPC messages, without their prefixes, and their arrival times. Only where it takes them."""
        ...

    def on_headers(self, headers: Headers, ended: bool) -> None: ...

    def on_reset(self, error_code: int) -> None: ...

    def on_lost(self, reason: str) -> None:
        """The connection is lost."""
        ...

    def on_unprocessed(self, reason: str) -> None:
        """The server closes the connection and has not processed this stream (GOAWAY: RFC 9113, section 6.8)."""
        ...

    def on_violation(self, problem: str) -> None:
        """The server violated the protocol on this connection."""
        ...


@dataclass(slots=True)
class _Unsent:
    """A request of which a part does not fit the server's windows yet."""

    window: int
    body: bytes
    position: int = 0

    @property
    def is_sent(self) -> bool:
        return self.position == len(self.body)


class Http2Protocol(PiecesProtocol):
    """One connection. ``ready`` is done when the server has sent its settings, and has a ConnectionError where that failed.

    ``on_change`` is called when there may be new room for a stream, and when ``accepts`` has changed.
    """

    def __init__(
        self, on_change: Callable[[Http2Protocol], None], max_header_bytes: int = DEFAULT_ANSWER_LIMITS.max_header_bytes
    ) -> None:
        self._max_header_bytes = max_header_bytes
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.accepts = True  # whether new streams may be opened, now or when another has ended
        self.is_lost = False
        self.max_streams = LAST_STREAM_ID  # that the server allows at once
        self._on_change = on_change
        self._streams: dict[int, StreamEvents] = {}
        self._next_id = 1
        self._settings_received = False  # the server's first frame
        self._farewell = ""  # why the server accepts no further stream
        self._unread = b""
        self._block: tuple[int, int, bytes] | None = None  # headers that a CONTINUATION completes: stream, flags, so far
        self._unacknowledged_bytes = 0
        self._max_frame_bytes = DEFAULT_FRAME_BYTES
        self._initial_window = DEFAULT_WINDOW
        self._window = DEFAULT_WINDOW
        self._unsent: dict[int, _Unsent] = {}
        self._unwritten: list[StreamEvents] = []  # whose requests the transport has whole, and the kernel not yet
        self._handlers: dict[int, Callable[[int, int, bytes], None]] = {
            FrameType.DATA: self._on_data,
            FrameType.HEADERS: self._on_headers,
            FrameType.RST_STREAM: self._on_reset,
            FrameType.SETTINGS: self._on_settings,
            FrameType.PUSH_PROMISE: self._on_push,
            FrameType.PING: self._on_ping,
            FrameType.GOAWAY: self._on_goaway,
            FrameType.WINDOW_UPDATE: self._on_window_update,
            FrameType.CONTINUATION: self._on_continuation,
        }

    # ---- sending

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    @property
    def has_room(self) -> bool:
        """Whether a stream may be opened now."""
        return self.accepts and len(self._streams) < self.max_streams

    def open_stream(self, header_block: bytes, body: bytes, events: StreamEvents) -> int:
        """Send one request, whole, and return its stream id. Only where ``has_room``."""
        assert self.has_room
        stream_id = self._next_id
        self._next_id += 2
        self.accepts = self._next_id < LAST_STREAM_ID
        self._streams[stream_id] = events
        headers = frame(FrameType.HEADERS, Flag.END_HEADERS, stream_id, header_block)
        given_ns = now_ns()
        if len(body) <= min(self._window, self._initial_window, self._max_frame_bytes):
            self._window -= len(body)
            self._transport.write(headers + frame(FrameType.DATA, Flag.END_STREAM, stream_id, body))
            self._has_sent(events, given_ns)
        else:
            unsent = _Unsent(self._initial_window, body)
            self._transport.write(headers + self._part_of(stream_id, unsent))
            if unsent.is_sent:
                self._has_sent(events, given_ns)
            else:
                self._unsent[stream_id] = unsent
        return stream_id

    def _has_sent(self, events: StreamEvents, given_ns: int) -> None:
        """The transport has a whole request, the last part from ``given_ns`` on."""
        if self._transport.get_write_buffer_size():
            self._unwritten.append(events)
        else:
            events.on_written(given_ns)

    def resume_writing(self) -> None:
        """The kernel has taken what it did not take at once."""
        unwritten, self._unwritten = self._unwritten, []
        written_ns = now_ns()
        for events in unwritten:
            events.on_written(written_ns)

    def reset(self, stream_id: int) -> None:
        """Reset a stream; it receives no further callbacks. No effect where it has ended."""
        if stream_id in self._streams:
            self._transport.write(frame(FrameType.RST_STREAM, 0, stream_id, struct.pack(">I", ErrorCode.CANCEL)))
            self._forget(stream_id)

    def close(self) -> None:
        self.accepts = False
        self._transport.close()

    def _send_unsent(self) -> None:
        """Send as much as the windows allow, the oldest request first."""
        parts: list[bytes] = []
        sent: list[int] = []
        for stream_id, unsent in self._unsent.items():
            if self._window <= 0:
                break
            parts.append(self._part_of(stream_id, unsent))
            if unsent.is_sent:
                sent.append(stream_id)
        for stream_id in sent:
            del self._unsent[stream_id]
        given_ns = now_ns()
        if any(parts):
            self._transport.write(b"".join(parts))
        for stream_id in sent:
            self._has_sent(self._streams[stream_id], given_ns)

    def _part_of(self, stream_id: int, unsent: _Unsent) -> bytes:
        """Frames with as much of a request as the windows allow; none where they are closed."""
        frames: list[bytes] = []
        while (size := min(len(unsent.body) - unsent.position, unsent.window, self._window, self._max_frame_bytes)) > 0:
            part = unsent.body[unsent.position : unsent.position + size]
            unsent.position += size
            unsent.window -= size
            self._window -= size
            frames.append(frame(FrameType.DATA, Flag.END_STREAM if unsent.is_sent else 0, stream_id, part))
        return b"".join(frames)

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's is not a subclass
        settings = (
            (Setting.HEADER_TABLE_SIZE, 0),
            (Setting.ENABLE_PUSH, 0),
            (Setting.INITIAL_WINDOW_SIZE, LARGEST_WINDOW),
        )
        payload = b"".join(struct.pack(">HI", key, value) for key, value in settings)
        transport.write(PREFACE + frame(FrameType.SETTINGS, 0, 0, payload))
        self._open_window(LARGEST_WINDOW - DEFAULT_WINDOW)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        reason = f"the connection was lost: {error}" if error else "the server closed the connection"
        if self._farewell:
            reason += f", as it had announced ({self._farewell})"
        self._end_all(reason, lambda events: events.on_lost(reason))

    def piece_ends(self, data: bytes) -> Sequence[int]:
        """The end of each frame."""
        already, waiting = len(self._unread), self._unread + data
        ends, end = [], 0
        while end + FRAME_HEADER_BYTES <= len(waiting):
            high, low, *_ = _UNPACK(waiting, end)
            end += FRAME_HEADER_BYTES + (high << 8 | low)
            ends.append(end - already)
        return [end for end in ends if 0 < end <= len(data)]

    def data_received(self, data: bytes) -> None:
        if self.is_lost:
            return
        if self._unread:
            data = self._unread + data
        try:
            position = self._read_frames(data)
        except ProtocolViolationError as error:
            self._fail(str(error))
            return
        self._unread = data[position:]

    def _read_frames(self, data: bytes) -> int:
        """Handle every whole frame; returns their total length. Raises ProtocolViolationError."""
        streams = self._streams
        position, end = 0, len(data)
        while end - position >= FRAME_HEADER_BYTES:
            high, low, kind, flags, stream_id = _UNPACK(data, position)
            length = high << 8 | low
            start = position + FRAME_HEADER_BYTES
            stop = start + length
            if not self._settings_received and (kind != FrameType.SETTINGS or stream_id):
                raise ProtocolViolationError(_FIRST_FRAME_RULE)
            if length > DEFAULT_FRAME_BYTES:  # the client's settings allow no more
                raise ProtocolViolationError(f"a frame of {length} bytes is longer than allowed")
            if stop > end:
                break
            position = stop
            if kind == _DATA and not flags and self._block is None and (events := streams.get(stream_id)) is not None:
                self._unacknowledged_bytes += length
                events.on_data(data, start, stop)
            else:
                self._handle(kind, flags, stream_id & LAST_STREAM_ID, data[start:stop])
                if self.is_lost:  # the rest is ignored
                    return end
        if self._unacknowledged_bytes >= _REFILL_BYTES:
            self._open_window(self._unacknowledged_bytes)
            self._unacknowledged_bytes = 0
        return position

    def _handle(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is not None and (kind != FrameType.CONTINUATION or stream_id != self._block[0]):
            raise ProtocolViolationError("a header block was not continued by the next frame")
        handler = self._handlers.get(kind)
        if handler is None:  # unknown kinds must be ignored
            return
        if kind != FrameType.WINDOW_UPDATE and (kind in _OF_CONNECTION) != (stream_id == 0):
            raise ProtocolViolationError(f"a {FrameType(kind).name} frame is on stream {stream_id}")
        if stream_id and (stream_id >= self._next_id or not stream_id % 2):
            raise ProtocolViolationError(f"a {FrameType(kind).name} frame is on stream {stream_id}, which was never opened")
        if len(payload) != _FIXED_BYTES.get(kind, len(payload)):
            raise ProtocolViolationError(f"a {FrameType(kind).name} frame has {len(payload)} bytes")
        handler(flags, stream_id, payload)

    def _fail(self, problem: str) -> None:
        """End the connection, because the server violated the protocol."""
        self.is_lost = True
        self._transport.abort()
        self._end_all(problem, lambda events: events.on_violation(problem))

    def _end_all(self, problem: str, end: Callable[[StreamEvents], None]) -> None:
        self.accepts = False
        self._unread = b""
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(problem))
        streams = list(self._streams.values())
        self._streams.clear()
        self._unsent.clear()
        for events in streams:
            end(events)
        self._on_change(self)

    def _open_window(self, size: int) -> None:
        self._transport.write(frame(FrameType.WINDOW_UPDATE, 0, 0, struct.pack(">I", size)))

    def _forget(self, stream_id: int) -> None:
        self._streams.pop(stream_id, None)
        self._unsent.pop(stream_id, None)
        if not self.accepts and not self._streams:
            self._transport.close()
        self._on_change(self)

    # ---- frames

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._unacknowledged_bytes += len(payload)
        payload = unpadded(flags, payload)
        events = self._streams.get(stream_id)
        if events is None:
            return
        events.on_data(payload, 0, len(payload))
        if flags & Flag.END_STREAM:
            self._forget(stream_id)
            events.on_headers({}, True)

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = unpadded(flags, payload)
        if flags & Flag.PRIORITY:
            if len(block) < 5:
                raise ProtocolViolationError("headers are shorter than their priority")
            block = block[5:]
        self._take_block(flags & Flag.END_HEADERS, flags, stream_id, block)

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is None:
            raise ProtocolViolationError("a CONTINUATION frame follows no header block")
        _, first_flags, block = self._block
        self._take_block(flags & Flag.END_HEADERS, first_flags, stream_id, block + payload)

    def _take_block(self, is_last: int, flags: int, stream_id: int, block: bytes) -> None:
        if len(block) > self._max_header_bytes:
            raise headers_too_long(self._max_header_bytes)
        if not is_last:
            self._block = (stream_id, flags, block)
            return
        self._block = None
        headers = decoded_headers(block, self._max_header_bytes)
        events = self._streams.get(stream_id)
        if events is None:
            return
        ended = bool(flags & Flag.END_STREAM)
        if ended:
            self._forget(stream_id)
        events.on_headers(headers, ended)

    def _on_reset(self, flags: int, stream_id: int, payload: bytes) -> None:
        events = self._streams.get(stream_id)
        if events is not None:
            self._forget(stream_id)
            events.on_reset(int.from_bytes(payload))

    def _on_push(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise ProtocolViolationError("the server pushes, which is disabled")

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) % 6 or (flags & Flag.ACK and payload):
            raise ProtocolViolationError(f"settings have {len(payload)} bytes")
        self._settings_received = True
        if flags & Flag.ACK:
            return
        for key, value in struct.iter_unpack(">HI", payload):
            self._set(key, value)
        self._transport.write(frame(FrameType.SETTINGS, Flag.ACK, 0, b""))
        if not self.ready.done():
            self.ready.set_result(None)
        self._send_unsent()
        self._on_change(self)

    def _set(self, key: int, value: int) -> None:
        match key:
            case Setting.MAX_CONCURRENT_STREAMS:
                self.max_streams = value
            case Setting.MAX_FRAME_SIZE:
                if not DEFAULT_FRAME_BYTES <= value <= LARGEST_FRAME_BYTES:
                    raise ProtocolViolationError(f"the server sets a maximum frame size of {value} bytes")
                self._max_frame_bytes = value
            case Setting.INITIAL_WINDOW_SIZE:
                if value > LARGEST_WINDOW:
                    raise ProtocolViolationError(f"the server sets an initial window of {value} bytes")
                grown, self._initial_window = value - self._initial_window, value
                for unsent in self._unsent.values():  # may become negative: RFC 9113, section 6.9.2
                    unsent.window += grown

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not flags & Flag.ACK:
            if self._transport.get_write_buffer_size() > _MAX_UNREAD_PINGS_BYTES:
                raise ProtocolViolationError("the server sends pings and does not read the answers")
            self._transport.write(frame(FrameType.PING, Flag.ACK, 0, payload))

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        """The server accepts no further stream, and does not answer those above the last id in the frame."""
        if len(payload) < 8:
            raise ProtocolViolationError(f"a GOAWAY frame has {len(payload)} bytes")
        self.accepts = False
        last_id = int.from_bytes(payload[:4]) & LAST_STREAM_ID
        code, words = int.from_bytes(payload[4:8]), payload[8:].decode("utf-8", "replace")
        reason = words or ("no reason given" if code == ErrorCode.NO_ERROR else error_text(code))
        self._farewell = reason
        for refused in [known for known in self._streams if known > last_id]:
            events = self._streams.pop(refused)
            self._unsent.pop(refused, None)
            events.on_unprocessed(f"the server closes the connection and has not processed the request: {reason}")
        if not self._streams:
            self._transport.close()
        self._on_change(self)

    def _on_window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = int.from_bytes(payload) & LARGEST_WINDOW
        unsent = self._unsent.get(stream_id)
        if not size:
            raise ProtocolViolationError(f"the window of stream {stream_id} was extended by 0")
        if stream_id == 0:
            self._window += size
        elif unsent is not None:
            unsent.window += size
        if max(self._window, unsent.window if unsent is not None else 0) > LARGEST_WINDOW:
            raise ProtocolViolationError(f"the window of stream {stream_id} was extended too far")
        self._send_unsent()


class TlsHttp2Protocol(Http2Protocol):
    """A connection over TLS, by the event loop's transport: arrival times are those of reading."""

    def __init__(self, on_change: Callable[[Http2Protocol], None], max_header_bytes: int, arrival: Arrival) -> None:
        super().__init__(on_change, max_header_bytes)
        self._arrival = arrival

    def _has_sent(self, events: StreamEvents, given_ns: int) -> None:
        """Nothing: when the kernel has the request is unknown."""

    def data_received(self, data: bytes) -> None:
        self._arrival.set_now()
        self._arrival.unstamped_reads += 1
        super().data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._arrival.set_now()
        super().connection_lost(error)
