"""An HTTP/2 connection for gRPC whose messages are read outside the interpreter, while nothing else arrives.

``http2.py`` and ``grpc.py`` define what is read. While an answer streams, nearly every piece is a frame with whole messages;
``event_streams.py`` reads these for a fraction of the cost. Every other frame is read by ``Http2Protocol``, after the messages
that came before it and before those that came after it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from harness.clients.transport.event_streams import EventStreams, FollowedMessages
from harness.clients.transport.http2 import Http2Protocol, StreamEvents
from harness.clients.transport.tcp import Arrival, TcpTransport

_PREFIX_BYTES = 5  # of a gRPC message
_WORTHWHILE_PIECES = 4  # with fewer, lending the connection costs more than it saves
_MOST_READS_INSIDE = 63
_LATEST_S = 0.25  # until a message is passed on: a rule that ends a run counts the answered requests (--stop_if)


class FollowedHttp2Protocol(Http2Protocol):
    """A connection that ``streams`` may read. ``arrival`` has the arrival time of what is read here."""

    def __init__(
        self, on_change: Callable[[Http2Protocol], None], max_header_bytes: int, streams: EventStreams, arrival: Arrival
    ) -> None:
        super().__init__(on_change, max_header_bytes)
        self._outside = streams
        self._arrival = arrival
        self._lendable: TcpTransport | None = None
        self._followed: int | None = None  # the descriptor that ``streams`` reads
        self._data_alone = False  # whether the last bytes were nothing but frames of DATA
        self._reads_inside = 0  # of DATA alone, until it is followed again
        self._latest: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._lendable = transport if isinstance(transport, TcpTransport) else None
        super().connection_made(transport)

    def open_stream(self, header_block: bytes, body: bytes, events: StreamEvents) -> int:
        if self._followed is not None:
            self._outside.open_streams(self._followed, self._next_id + 2)
        stream_id = super().open_stream(header_block, body, events)
        if not events.takes_messages:
            self._take_back()
        return stream_id

    def reset(self, stream_id: int) -> None:
        if stream_id in self._streams:
            self._take_back()  # what arrived before belongs to the answer, and may have ended it
        super().reset(stream_id)

    def close(self) -> None:
        self.accepts = False  # before anything that is read now frees a stream
        self._take_back()
        if self._latest is not None:
            self._latest.cancel()
        super().close()

    def data_received(self, data: bytes) -> None:
        self._data_alone = True
        super().data_received(data)
        if not self._data_alone:
            return
        if self._reads_inside:
            self._reads_inside -= 1
        else:
            self._follow()

    def on_given_back(self) -> None:
        """Read what ``streams`` did not understand. Where it read little, more is read here before the next try."""
        read = self._take_back()
        if read is None or read.is_over:
            return
        pieces = len(read.parts) + sum(len(times_ns) for messages, *_ in read.parts for times_ns, _ in messages.values())
        if pieces >= _WORTHWHILE_PIECES:
            self._reads_inside = 0
            self._follow()
        else:
            self._reads_inside = min(2 * self._reads_inside + 1, _MOST_READS_INSIDE)

    def _handle(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        self._data_alone = False
        super()._handle(kind, flags, stream_id, payload)

    def _follow(self) -> None:
        """Let ``streams`` read, where the next byte begins a frame, and each message is one that may come late."""
        if (
            self._lendable is None
            or self._unread
            or self._block is not None
            or not self._streams
            or self._lendable.is_closing()
            or not all(events.takes_messages for events in self._streams.values())
        ):
            return
        descriptor, emptied_ns = self._lendable.lend()
        try:
            self._outside.follow_messages(descriptor, emptied_ns, self._next_id, self)
        except (OSError, MemoryError):  # then it is read here
            self._lendable.take_back(emptied_ns, None)
        else:
            self._followed = descriptor
            if self._latest is None:
                self._latest = asyncio.get_running_loop().call_later(_LATEST_S, self._pass_on)

    def _pass_on(self) -> None:
        self._latest = None
        read = self._take_back()
        if read is not None and not read.is_over:
            self._follow()

    def _take_back(self) -> FollowedMessages | None:
        """Pass on what ``streams`` has read, and read here again; None where it does not read."""
        if self._followed is None or self._lendable is None:
            return None
        read = self._outside.release_messages(self._followed)
        self._followed = None
        self._lendable.take_back(read.emptied_ns, OSError(read.errno, os.strerror(read.errno)) if read.errno else None)
        self._arrival.unstamped_reads += read.unstamped_reads
        for messages_of, arrived_ns, other in read.parts:
            for stream_id, (times_ns, messages) in messages_of.items():
                self._unacknowledged_bytes += sum(map(len, messages)) + _PREFIX_BYTES * len(messages)
                events = self._streams.get(stream_id)
                if events is not None:  # else it has ended
                    events.on_messages(times_ns, messages)
            if other:
                self._arrival.ns = arrived_ns
            super().data_received(other)  # or nothing, which extends the window of the connection where that is due
        return read
