"""Frames: the encoding of payloads in a file by which a reader recognises a torn one. Shared by all binary files of a run.

A frame is the payload's length (unsigned 32-bit), its XXH3 hash (unsigned 64-bit; both little-endian) and the payload.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

from xxhash import xxh3_64, xxh3_64_intdigest

_HEADER = struct.Struct("<IQ")
HEADER_BYTES = _HEADER.size
_LARGE_BYTES = 2**20
_WINDOW_BYTES = 1 << 16
_MOST_HASHED = 64
_ALWAYS_HASHED_BYTES = 1 << 30


def framed(payload: bytes) -> bytes:
    """The frame of ``payload``, which is not empty and at most 4 GiB long."""
    return _HEADER.pack(len(payload), xxh3_64_intdigest(payload)) + payload


def append_whole(file: io.FileIO, data: bytes, end: int) -> int:
    """Append ``data`` at the ``end`` of an unbuffered file, or nothing of it; returns the new end.

    Raises OSError. Then the file ends where it did, so that what is appended later, if it finds room, can be read.
    """
    rest = memoryview(data)
    try:
        while rest:  # an unbuffered write may be partial; on a full disk the next one raises
            rest = rest[file.write(rest) :]
    except OSError:
        file.seek(end)
        file.truncate()
        raise
    return end + len(data)


def read_frame(file: BinaryIO) -> bytes | None:
    """The payload of the next frame; None at the end of the file, and where the frame is torn or damaged.

    A crash of the machine can leave zeros at the end, so a frame of length 0 is torn, too.
    """
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    length, checksum = _HEADER.unpack(header)
    if not length or (length > _LARGE_BYTES and length > _size(file) - file.tell()):  # it must not fill the memory
        return None
    payload = file.read(length)
    if len(payload) < length or xxh3_64_intdigest(payload) != checksum:
        return None
    return payload


def whole_until(file: BinaryIO) -> int:
    """The position of the first frame from here on that is torn or damaged; the end of the file where none is."""
    position = file.tell()
    while read_frame(file) is not None:
        position = file.tell()
    return position


def next_frame(file: BinaryIO, damaged: int) -> int | None:
    """The position of the first whole frame after the ``damaged`` one at that position; None where no other follows.

    First where the damaged frame ends by its own length, so that what looks like a frame within it, as an answer of a server
    may, is passed over; where no frame is there, its length is damaged, and every later position is tried.
    """
    file.seek(damaged)
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    end: int = damaged + _HEADER.size + _HEADER.unpack(header)[0]
    if end == _size(file) or _is_frame(file, end):
        return end
    return _scan(file, damaged + 1)


def _scan(file: BinaryIO, start: int) -> int | None:
    """The first whole frame from ``start`` on.

    Most positions are refused by their length alone. Where lengths are made to lie within the file, to hash all of them would
    take the square of its size, so the search ends after ``_MOST_HASHED`` times the file and ``_ALWAYS_HASHED_BYTES``.
    """
    left = _MOST_HASHED * (_size(file) - start) + _ALWAYS_HASHED_BYTES
    for position, length in _lengths_within(file, start):
        if _is_frame(file, position):
            return position
        left -= length
        if left < 0:
            return None
    return None


def _lengths_within(file: BinaryIO, start: int) -> Iterator[tuple[int, int]]:
    """Each position from ``start`` on at which the length of a frame lies within the file, and this length."""
    size = _size(file)
    for window_start in range(start, size - _HEADER.size, _WINDOW_BYTES):
        file.seek(window_start)
        window = file.read(_WINDOW_BYTES + _HEADER.size - 1)
        if not any(window):  # a crash of the machine leaves zeros
            continue
        for offset in range(len(window) - _HEADER.size + 1):
            length: int = _HEADER.unpack_from(window, offset)[0]
            if 0 < length <= size - window_start - offset - _HEADER.size:
                yield window_start + offset, length


def _is_frame(file: BinaryIO, position: int) -> bool:
    """Whether a whole frame is at ``position``, in the memory of a window, whatever its length."""
    file.seek(position)
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return False
    left, checksum = _HEADER.unpack(header)
    if not 0 < left <= _size(file) - file.tell():
        return False
    hashed = xxh3_64()
    while left and (part := file.read(min(left, _WINDOW_BYTES))):
        hashed.update(part)
        left -= len(part)
    return not left and hashed.intdigest() == checksum


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size
