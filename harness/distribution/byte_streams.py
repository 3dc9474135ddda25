"""Growing files copied to another host over messages that may be lost: pieces by offset, acknowledged, sent again in time.

The sender keeps a window of pieces without acknowledgement; the receiver accepts what continues its copy and acknowledges its
length. So a copy is at any moment a prefix of the file, and complete when both lengths are equal (go-back-N, RFC 3366 2.2.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, BinaryIO

import msgspec
from msgspec import Meta
from xxhash import xxh3_64_intdigest

from harness.distribution.dropped_messages import BadMessageError

PIECE_BYTES = 256 << 10
WINDOW_BYTES = 4 << 20
RESEND_NS = 5_000_000_000  # longer than a connection takes to be made again
_MOST_BYTES = 1 << 50

StreamName = Annotated[str, Meta(max_length=32)]
Length = Annotated[int, Meta(ge=0, le=_MOST_BYTES)]


class Piece(msgspec.Struct, frozen=True, tag="piece"):
    """Bytes of a stream from ``offset`` on. ``last``: the stream ends with them."""

    stream: StreamName
    offset: Length
    data: Annotated[bytes, Meta(max_length=PIECE_BYTES)]
    checksum: Annotated[int, Meta(ge=0)]
    last: bool


class Received(msgspec.Struct, frozen=True, tag="received"):
    """The length of the receiver's copy of a stream, and whether that is all of it."""

    stream: StreamName
    length: Length
    is_whole: bool


class Outgoing:
    """A stream that is sent: ``source`` may grow until ``end`` is called."""

    def __init__(self, name: str, source: BinaryIO) -> None:
        self._name = name
        self._source = source
        self._acknowledged = 0
        self._next = 0
        self._sent = 0  # the most that ``_next`` has been
        self._progress_ns: int | None = None  # when the copy last grew, or the first piece was sent
        self._length: int | None = None
        self._last_sent = False
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        """Whether the stream has ended, and the receiver has all of it."""
        return self._is_complete

    def end(self) -> None:
        """The source has all its bytes."""
        self._length = self._source.seek(0, 2)

    def due(self, now_ns: int) -> Iterator[Piece]:
        """The pieces to send now: new bytes within the window, or those without acknowledgement again."""
        is_waiting = self._next > self._acknowledged or (self._last_sent and not self._is_complete)
        if is_waiting and self._progress_ns is not None and now_ns - self._progress_ns > RESEND_NS:
            self._next, self._last_sent, self._progress_ns = self._acknowledged, False, now_ns
        while not self._last_sent and self._next - self._acknowledged < WINDOW_BYTES:
            self._source.seek(self._next)
            data = self._source.read(PIECE_BYTES)
            last = self._length is not None and self._next + len(data) >= self._length
            if not data and not last:
                return
            if self._progress_ns is None or self._next == self._acknowledged:
                self._progress_ns = now_ns
            yield Piece(self._name, self._next, data, xxh3_64_intdigest(data), last)
            self._next += len(data)
            self._sent = max(self._sent, self._next)
            self._last_sent = last

    def acknowledge(self, received: Received, now_ns: int) -> None:
        """Take the receiver's length; one that is older than another has no effect.

        Raises BadMessageError for more than was sent.
        """
        if received.length > self._sent:
            raise BadMessageError(f"received: {received.length} bytes of {self._name}, of which {self._sent} were sent")
        if received.is_whole and received.length != self._length:
            raise BadMessageError(f"received: {received.length} bytes as all of {self._name}, which has {self._length}")
        self._is_complete = self._is_complete or received.is_whole
        if received.length > self._acknowledged:
            self._acknowledged, self._progress_ns = received.length, now_ns


class Incoming:
    """A stream that is received into ``sink``."""

    def __init__(self, name: str, sink: BinaryIO) -> None:
        self._name = name
        self._sink = sink
        self._length = 0
        self._is_complete = False

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    @property
    def length(self) -> int:
        return self._length

    def accept(self, piece: Piece) -> Received:
        """Append the piece if it continues the copy and is undamaged; returns the acknowledgement.

        Raises BadMessageError for bytes beyond the end of the stream; OSError.
        """
        is_whole = xxh3_64_intdigest(piece.data) == piece.checksum
        if is_whole and self._is_complete and piece.offset + len(piece.data) > self._length:
            raise BadMessageError(f"piece: {self._name} goes on after its last piece")
        if is_whole and not self._is_complete and piece.offset == self._length:
            self._sink.write(piece.data)
            self._sink.flush()
            self._length += len(piece.data)
            self._is_complete = self._is_complete or piece.last
        return Received(self._name, self._length, self._is_complete)
