"""HTTP/2 frames (RFC 9113): their types and encoding, and header blocks (RFC 7541).

Header compression is ``hpack``'s. The server's encoder table is set to size zero, so a header block means the same wherever
it occurs, and its decoding is cached.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType

from hpack import Decoder, HPACKError, OversizedHeaderListError

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER = struct.Struct(">HBBBI")  # length (its upper 16 bits, its lower 8), kind, flags, stream
FRAME_HEADER_BYTES = FRAME_HEADER.size
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_BYTES = 16_384
LARGEST_WINDOW = 2**31 - 1
LARGEST_FRAME_BYTES = 2**24 - 1
LAST_STREAM_ID = 2**31 - 1
_CACHED_BYTES = 1024  # of a header block: a cache of longer ones could fill the memory


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


class Flag:
    """RFC 9113, section 6. Plain numbers: an ``IntFlag`` makes an object for every ``&``, a fifth of a response's cost."""

    END_STREAM = 1
    ACK = 1  # of SETTINGS and PING
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
    """RFC 9113, section 7."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


def error_text(code: int) -> str:
    """The number of an error and, where it is known, its name."""
    return f"HTTP/2 error {code}" + (f", {ErrorCode(code).name}" if code in ErrorCode.__members__.values() else "")


class ProtocolViolationError(Exception):
    """The peer violated HTTP/2; the text is the violation."""


def headers_too_long(most_bytes: int) -> ProtocolViolationError:
    return ProtocolViolationError(f"the answer's headers are longer than {most_bytes:,} bytes (--max_header_bytes)")


def frame(kind: FrameType, flags: int, stream_id: int, payload: bytes) -> bytes:
    """The bytes of one frame."""
    return FRAME_HEADER.pack(len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream_id) + payload


def unpadded(flags: int, payload: bytes) -> bytes:
    """The payload without its padding. Raises ProtocolViolationError where the padding exceeds the frame."""
    if not flags & Flag.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ProtocolViolationError("a frame has more padding than bytes")
    return payload[1 : len(payload) - payload[0]]


def literal_headers(headers: list[tuple[str, str]]) -> bytes:
    """A header block that neither uses nor fills a table (RFC 7541, section 6.2.2), so that it can be sent repeatedly."""
    return b"".join(b"\x00" + _string(name) + _string(value) for name, value in headers)


def _string(text: str) -> bytes:
    raw = text.encode("ascii")
    if len(raw) < 127:
        return bytes([len(raw)]) + raw
    rest, length = len(raw) - 127, b"\x7f"
    while rest >= 128:
        length, rest = length + bytes([rest % 128 + 128]), rest // 128
    return length + bytes([rest]) + raw


def decoded_headers(block: bytes, most_bytes: int = 2**16) -> Mapping[str, str]:
    """The headers of a block, at most ``most_bytes`` when decoded. Raises ProtocolViolationError."""
    return (_decoded_once if len(block) <= _CACHED_BYTES else _decoded)(block, most_bytes)


def _decoded(block: bytes, most_bytes: int) -> Mapping[str, str]:
    decoder = Decoder(max_header_list_size=most_bytes)
    decoder.max_allowed_table_size = 0
    decoder.header_table_size = 0
    try:
        return MappingProxyType({str(name): str(value) for name, value in decoder.decode(block)})
    except OversizedHeaderListError as error:
        raise headers_too_long(most_bytes) from error
    except HPACKError as error:
        raise ProtocolViolationError(f"a header block cannot be decoded: {error}") from error


_decoded_once = lru_cache(maxsize=1024)(_decoded)
