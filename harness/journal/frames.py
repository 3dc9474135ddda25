"""Frames: the encoding of payloads in a file by which a reader recognises a torn one. Shared by all binary files of a run.

A frame is the payload's length (unsigned 32-bit), its XXH3 hash (unsigned 64-bit; both little-endian) and the payload.
"""

from __future__ import annotations

import os
import struct
from typing import BinaryIO

from xxhash import xxh3_64_intdigest

_HEADER = struct.Struct("<IQ")
HEADER_BYTES = _HEADER.size
_LARGE_BYTES = 2**20


def framed(payload: bytes) -> bytes:
    """The frame of ``payload``, which is not empty and at most 4 GiB long."""
    return _HEADER.pack(len(payload), xxh3_64_intdigest(payload)) + payload


def _left(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size - file.tell()


def read_frame(file: BinaryIO) -> bytes | None:
    """The payload of the next frame; None at the end of the file, and where the frame is torn or damaged.

    A crash of the machine can leave zeros at the end, so a frame of length 0 is torn, too.
    """
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    length, checksum = _HEADER.unpack(header)
    if length > _LARGE_BYTES and length > _left(file):  # a damaged length must not fill the memory
        return None
    payload = file.read(length)
    if not length or len(payload) < length or xxh3_64_intdigest(payload) != checksum:
        return None
    return payload
