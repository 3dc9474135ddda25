"""What a server may send on a connection of HTTP/2, by its rules or against them, for the laws of reading."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from hypothesis import strategies as st

from harness.clients.transport.http2_frames import Flag, FrameType, frame, literal_headers
from tests.harness.clients.transport.http2_peer import OK, prefixed

STREAMS = (1, 3, 5)  # those of the first three calls of a connection
_END_HEADERS = Flag.END_HEADERS
_stream = st.sampled_from(STREAMS)
_payload = st.binary(max_size=40)


def _padded(kind: FrameType, flags: int, stream: int, payload: bytes, padding: int) -> bytes:
    return frame(kind, flags | Flag.PADDED, stream, bytes([padding]) + payload + bytes(padding))


def _continued(stream: int, flags: int, cut: int) -> bytes:
    block = literal_headers([(":status", "200"), *OK])
    first = frame(FrameType.HEADERS, flags, stream, block[:cut])
    return first + frame(FrameType.CONTINUATION, _END_HEADERS, stream, block[cut:])


rule_abiding = st.one_of(
    st.builds(lambda s, body: frame(FrameType.DATA, 0, s, prefixed(body)), _stream, _payload),
    st.builds(lambda s, part: frame(FrameType.DATA, 0, s, part), _stream, _payload),
    st.builds(lambda s, body, pad: _padded(FrameType.DATA, 0, s, prefixed(body), pad), _stream, _payload, st.integers(0, 255)),
    st.builds(lambda s: frame(FrameType.HEADERS, _END_HEADERS, s, literal_headers([(":status", "200")])), _stream),
    st.builds(lambda s: frame(FrameType.HEADERS, _END_HEADERS | Flag.END_STREAM, s, literal_headers(OK)), _stream),
    st.builds(_continued, _stream, st.sampled_from([0, Flag.END_STREAM]), st.integers(0, 20)),
    st.builds(lambda s, code: frame(FrameType.RST_STREAM, 0, s, struct.pack(">I", code)), _stream, st.integers(0, 14)),
    st.builds(lambda payload: frame(FrameType.PING, 0, 0, payload), st.binary(min_size=8, max_size=8)),
    st.builds(lambda n: frame(FrameType.SETTINGS, 0, 0, struct.pack(">HI", 3, n)), st.integers(0, 9)),
    st.builds(lambda s, n: frame(FrameType.WINDOW_UPDATE, 0, s, struct.pack(">I", n)), _stream, st.integers(1, 1000)),
    st.builds(lambda kind, p: frame(cast("FrameType", kind), 0, 0, p), st.integers(10, 255), _payload),
    st.builds(
        lambda last: frame(FrameType.GOAWAY, 0, 0, struct.pack(">II", last, 0) + b"bye"), st.sampled_from([0, 3, 2**31 - 1])
    ),
)
any_frame = st.builds(
    lambda kind, flags, stream, payload: frame(cast("FrameType", kind), flags, stream, payload),
    st.integers(0, 12),
    st.integers(0, 255),
    st.one_of(st.integers(0, 9), st.integers(0, 2**32 - 1)),
    st.one_of(_payload, st.sampled_from([4, 6, 8]).flatmap(lambda size: st.binary(min_size=size, max_size=size))),
)


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """``data`` cut at ``places`` (modulo its length)."""
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[start:stop] for start, stop in pairwise(edges)]
