"""Laws of reading: cuts between reads change nothing, and whatever a server sends, every call ends and nothing is raised.

Here the transport is memory, so that hypothesis can try thousands of byte streams; test_http2 has sockets.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast
from unittest.mock import patch

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.clients.answer_limits import AnswerTooLongError
from harness.clients.transport import tcp
from harness.clients.transport.grpc import CallFailedError, GrpcCaller
from harness.clients.transport.http2 import Http2Protocol
from harness.clients.transport.http2_frames import Flag, FrameType, frame, literal_headers
from harness.clients.transport.http2_pool import ConnectionLimits
from tests.harness.clients.transport.http2_frames_sent import STREAMS, any_frame, cut, rule_abiding
from tests.harness.clients.transport.http2_peer import OK, prefixed

_END_HEADERS = Flag.END_HEADERS


@dataclass
class _Wire:
    """A transport that keeps what is written."""

    written: bytearray = field(default_factory=bytearray)
    aborted: bool = False
    closed: bool = False

    def write(self, data: bytes) -> None:
        assert not self.aborted
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.aborted = True

    def close(self) -> None:
        self.closed = True


@dataclass(frozen=True)
class _Ending:
    """The messages that a call handed on, and how it ended: None for OK."""

    bodies: tuple[bytes, ...]
    failure: tuple[str, grpc.StatusCode, str] | None


@dataclass(frozen=True)
class _Seen:
    endings: tuple[_Ending, ...]
    written: bytes  # pings and settings that were acknowledged, streams that were reset
    aborted: bool


def _seen(reads: Sequence[bytes], yields: Sequence[bool] = (), settle: bool = True) -> _Seen:
    """What three calls come to when the server sends ``reads`` after its settings and then closes the connection.

    Where ``yields`` is set the calls run between two reads.
    """

    async def run() -> _Seen:
        wire, protocols = _Wire(), list[Http2Protocol]()

        async def connect(factory: Callable[[], Http2Protocol], host: str, port: int, arrival: tcp.Arrival) -> Http2Protocol:
            protocol = factory()
            protocol.connection_made(cast("asyncio.Transport", wire))
            protocol.data_received(frame(FrameType.SETTINGS, 0, 0, b""))
            protocols.append(protocol)
            return protocol

        caller = GrpcCaller("memory:1", "/service/Method", ConnectionLimits(1, 1))
        with patch.object(tcp, "connect", connect):
            await caller.connect(5.0)
        calls = [asyncio.create_task(_ending(caller)) for _ in STREAMS]
        (protocol,) = protocols
        while protocol.open_streams < len(STREAMS):
            await asyncio.sleep(0)
        before = len(wire.written)
        for number, read in enumerate(reads):
            protocol.data_received(read)
            if settle or (number < len(yields) and yields[number]):
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        protocol.connection_lost(None)
        endings = await asyncio.wait_for(asyncio.gather(*calls), 60.0)
        await caller.close()
        return _Seen(tuple(endings), bytes(wire.written[before:]), wire.aborted)

    return asyncio.run(run())


async def _ending(caller: GrpcCaller) -> _Ending:
    bodies: list[bytes] = []
    failure = None
    try:
        await caller.call(b"request", lambda _, arrived: bodies.extend(arrived), 60.0)
    except CallFailedError as error:
        failure = (type(error).__name__, error.code, error.details)
    except AnswerTooLongError as error:
        failure = (type(error).__name__, grpc.StatusCode.INTERNAL, str(error))
    return _Ending(tuple(bodies), failure)


# ---- the laws


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(st.one_of(rule_abiding, any_frame), max_size=25), st.lists(st.integers(0, 5000), max_size=30))
def test_where_reads_are_cut_changes_nothing(frames: list[bytes], places: list[int]) -> None:
    data = b"".join(frames)
    assert _seen(cut(data, places), settle=False) == _seen([data], settle=False)


@given(st.lists(rule_abiding, max_size=15))
def test_a_byte_a_read_is_as_good_as_all_at_once(frames: list[bytes]) -> None:
    data = b"".join(frames)
    assert _seen([bytes([byte]) for byte in data], settle=False) == _seen([data], settle=False)


@given(st.lists(rule_abiding, max_size=15), st.lists(st.integers(0, 5000), max_size=20), st.lists(st.booleans(), max_size=20))
def test_calls_that_run_between_reads_end_the_same(frames: list[bytes], places: list[int], yields: list[bool]) -> None:
    data = b"".join(frames)
    assert _seen(cut(data, places), yields, settle=False).endings == _seen([data], settle=False).endings


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(rule_abiding, max_size=10), st.integers(0, 5000), st.binary(min_size=1, max_size=200))
def test_garbage_behind_a_good_beginning_ends_every_call(frames: list[bytes], place: int, garbage: bytes) -> None:
    beginning = b"".join(frames)
    beginning = beginning[: place % (len(beginning) + 1)]
    endings = _seen([beginning, garbage]).endings
    good = _seen([beginning]).endings
    for ending, before in zip(endings, good, strict=True):
        assert ending.bodies[: len(before.bodies)] == before.bodies
        assert ending == before or before.failure is not None  # what had ended well stays so


@settings(max_examples=3 * settings().max_examples)
@given(
    st.lists(rule_abiding, min_size=1, max_size=10), st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 255)), min_size=1)
)
def test_flipped_bits_end_every_call(frames: list[bytes], flips: list[tuple[int, int]]) -> None:
    data = bytearray(b"".join(frames))
    for place, flip in flips:
        data[place % len(data)] ^= flip
    endings = _seen(cut(bytes(data), [place for place, _ in flips])).endings
    assert len(endings) == len(STREAMS)


_VIOLATIONS = {
    "longer than allowed": b"\xff\xff\xff" + bytes(6),
    "more padding than bytes": frame(FrameType.DATA, Flag.PADDED, 1, bytes([9]) + b"short"),
    "never opened": frame(FrameType.DATA, 0, 7, b""),
    "stream 2, which was never opened": frame(FrameType.HEADERS, 0, 2, b""),
    "a DATA frame is on stream 0": frame(FrameType.DATA, 0, 0, b""),
    "a PING frame is on stream 1": frame(FrameType.PING, 0, 1, bytes(8)),
    "a PING frame has 7 bytes": frame(FrameType.PING, 0, 0, bytes(7)),
    "a RST_STREAM frame has 5 bytes": frame(FrameType.RST_STREAM, 0, 1, bytes(5)),
    "a GOAWAY frame has 7 bytes": frame(FrameType.GOAWAY, 0, 0, bytes(7)),
    "settings have 5 bytes": frame(FrameType.SETTINGS, 0, 0, bytes(5)),
    "settings have 6 bytes": frame(FrameType.SETTINGS, Flag.ACK, 0, bytes(6)),
    "the server sets a maximum frame size of 0 bytes": frame(FrameType.SETTINGS, 0, 0, struct.pack(">HI", 5, 0)),
    "the server sets an initial window of": frame(FrameType.SETTINGS, 0, 0, struct.pack(">HI", 4, 2**31)),
    "extended by 0": frame(FrameType.WINDOW_UPDATE, 0, 0, bytes(4)),
    "extended too far": frame(FrameType.WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**31 - 1)),
    "the server pushes": frame(FrameType.PUSH_PROMISE, 0, 1, bytes(4)),
    "not continued": frame(FrameType.HEADERS, 0, 1, b"") + frame(FrameType.PING, 0, 0, bytes(8)),
    "not continued by the next": frame(FrameType.HEADERS, 0, 1, b"") + frame(FrameType.CONTINUATION, 0, 3, b""),
    "block was not continued": frame(FrameType.HEADERS, 0, 1, b"") + frame(FrameType.DATA, 0, 1, prefixed(b"body")),
    "follows no header block": frame(FrameType.CONTINUATION, 0, 1, b""),
    "shorter than their priority": frame(FrameType.HEADERS, Flag.PRIORITY | _END_HEADERS, 1, b"1234"),
    "header block cannot be decoded": frame(FrameType.HEADERS, _END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
    "headers are longer than 262,144 bytes": frame(FrameType.HEADERS, 0, 1, b"")
    + frame(FrameType.CONTINUATION, 0, 1, bytes(16_384)) * 65,
}


@pytest.mark.parametrize(("words", "sent"), _VIOLATIONS.items())
def test_broken_rule_ends_every_call_at_once_and_is_named(words: str, sent: bytes) -> None:
    seen = _seen([sent, frame(FrameType.HEADERS, _END_HEADERS | Flag.END_STREAM, 1, literal_headers(OK))])
    assert seen.aborted
    for ending in seen.endings:
        assert ending.failure is not None
        assert ending.failure[:2] == ("BadAnswerError", grpc.StatusCode.INTERNAL)
        assert words in ending.failure[2]
        assert ending.bodies == ()


@pytest.mark.parametrize("status", ["²", "", "-1", "99", "1e3", "0x0", "+0"])
def test_status_that_is_no_number_of_grpcs_is_unknown(status: str) -> None:
    raw = status.encode()
    block = b"\x00\x0bgrpc-status" + bytes([len(raw)]) + raw
    (ending, *_) = _seen([frame(FrameType.HEADERS, _END_HEADERS | Flag.END_STREAM, 1, block)]).endings
    assert ending.failure is not None
    assert ending.failure[1] is grpc.StatusCode.UNKNOWN


def test_nothing_behind_a_message_that_cannot_be_read_is_taken_for_one() -> None:
    sent = frame(FrameType.DATA, 0, 1, b"\x01" + struct.pack(">I", 1) + b"x" + prefixed(b"one"))
    (ending, *others) = _seen([sent + frame(FrameType.DATA, 0, 1, prefixed(b"two"))], settle=False).endings
    assert ending.failure is not None
    assert ending.failure[0] == "BadAnswerError"
    assert ending.bodies == ()
    assert {other.failure and other.failure[1] for other in others} == {grpc.StatusCode.UNAVAILABLE}
