"""The journal: each exchange with the server, as raw as it came, on disk as soon as it ended.

One file a worker. A frame is its payload's length and CRC-32 (both unsigned 32-bit, little-endian) and the payload, an
Exchange as MessagePack. Whatever kills the writer, every whole frame can be read; a torn last frame is recognised.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from harness.records.record import Outcome

_MAGIC = b"inflight-bench journal 2\n"
_HEADER = struct.Struct("<II")


class Exchange(msgspec.Struct, array_like=True, frozen=True):
    """One request's exchange. Times are ns since the run's start. ``bodies[i]`` arrived at ``response_ns[i]``.

    ``due_ns`` is when it should have been sent: in an open loop the schedule says it, in a closed loop an answer does.
    ``released_ns`` is when it might be sent: later than due only where it waited for room below a ceiling.

    ``failure`` is how the transport failed, or None; what the bodies say is found out after the run.
    """

    index: int
    due_ns: int
    released_ns: int
    sent_ns: int
    done_ns: int
    response_ns: list[int]
    bodies: list[bytes]
    failure: Outcome | None
    error: str | None


class JournalWriter:
    """Appends exchanges. ``append`` returns when the operating system has one, and raises OSError if it cannot take it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._file.write(_MAGIC)
        self._encode = msgspec.msgpack.Encoder().encode

    def append(self, exchange: Exchange) -> None:
        payload = self._encode(exchange)
        frame = memoryview(_HEADER.pack(len(payload), zlib.crc32(payload)) + payload)
        while frame:  # an unbuffered write may take only a part; on a full disk the next one raises
            frame = frame[self._file.write(frame) :]

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


class JournalReader:
    """Reads a journal that may still grow: each ``read_new`` yields the whole frames written since the last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = len(_MAGIC)
        self._decode = msgspec.msgpack.Decoder(Exchange).decode

    def read_new(self) -> Iterator[Exchange]:
        """Yield new exchanges; stops before a frame that is torn, or not written to its end yet.

        A crash of the machine can leave zeros at the end: a frame of length 0 is torn, too.
        """
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._position)
            while len(header := file.read(_HEADER.size)) == _HEADER.size:
                length, checksum = _HEADER.unpack(header)
                payload = file.read(length)
                if not length or len(payload) < length or zlib.crc32(payload) != checksum:
                    return
                self._position += _HEADER.size + length
                yield self._decode(payload)
