"""Frames as a server may send them: whole, torn anywhere, in an odd order.

The peer is scripted, for what a real gRPC server would not do; test_triton_grpc has the real one.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress

import grpc
import pytest
from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.clients.grpc_calls import CallFailedError, GrpcCaller
from harness.clients.http2 import ErrorCode, Flag, FrameType, Setting, frame, literal_headers

_OK = [("grpc-status", "0")]
Script = Callable[["_Peer"], Awaitable[None]]


class _Peer:
    """The server's end of one connection: reads frames, writes what the script says."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def start(self, *settings: tuple[int, int]) -> None:
        assert (await self.reader.readexactly(24)).startswith(b"PRI * HTTP/2.0")
        payload = b"".join(struct.pack(">HI", key, value) for key, value in settings)
        self.writer.write(frame(FrameType.SETTINGS, 0, 0, payload))

    async def read(self, kind: FrameType) -> tuple[int, int, bytes]:
        """The next frame of ``kind``: flags, stream, payload; others are passed over."""
        while True:
            high, low, found, flags, stream = struct.unpack(">HBBBI", await self.reader.readexactly(9))
            payload = await self.reader.readexactly(high << 8 | low)
            if found == kind:
                return flags, stream, payload

    async def read_request(self) -> int:
        """Read one whole request and return its stream."""
        _, stream, _ = await self.read(FrameType.HEADERS)
        while not (await self.read(FrameType.DATA))[0] & Flag.END_STREAM:
            pass
        return stream

    def send(self, kind: FrameType, flags: int, stream: int, payload: bytes) -> None:
        self.writer.write(frame(kind, flags, stream, payload))

    def headers(self, stream: int, headers: list[tuple[str, str]], flags: int = 0) -> None:
        self.send(FrameType.HEADERS, Flag.END_HEADERS | flags, stream, literal_headers(headers))

    def message(self, stream: int, body: bytes) -> None:
        self.send(FrameType.DATA, 0, stream, struct.pack(">BI", 0, len(body)) + body)


def _calls(script: Script, *requests: bytes, timeout_s: float = 5.0) -> list[list[bytes] | CallFailedError]:
    """What each request's call gave, all of them started at once against a server that follows ``script``."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await script(_Peer(reader, writer))
            await reader.read()
        writer.close()

    async def one(caller: GrpcCaller, request: bytes) -> list[bytes] | CallFailedError:
        bodies: list[bytes] = []
        try:
            await caller.call(request, bodies.append, timeout_s)
        except CallFailedError as error:
            return error
        return bodies

    async def run() -> list[list[bytes] | CallFailedError]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        caller = GrpcCaller(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", "/service/Method")
        try:
            return await asyncio.gather(*(one(caller, request) for request in requests))
        finally:
            await caller.close()
            server.close()

    return asyncio.run(run())


def _answering(script: Callable[[_Peer, int], None]) -> Script:
    async def serve(peer: _Peer) -> None:
        await peer.start()
        stream = await peer.read_request()
        script(peer, stream)

    return serve


@settings(max_examples=25, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(1, 60), max_size=12))
def test_messages_come_whole_however_frames_and_reads_cut_them(messages: list[bytes], cuts: list[int]) -> None:
    body = b"".join(struct.pack(">BI", 0, len(message)) + message for message in messages)

    async def serve(peer: _Peer) -> None:
        await peer.start()
        stream = await peer.read_request()
        peer.headers(stream, [(":status", "200")])
        rest, wire = body, b""
        for cut in [*cuts, len(body)]:
            wire += frame(FrameType.DATA, 0, stream, rest[:cut])
            rest = rest[cut:]
        wire += frame(FrameType.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, stream, literal_headers(_OK))
        for start in range(0, len(wire), 37):
            peer.writer.write(wire[start : start + 37])
            await asyncio.sleep(0)

    assert _calls(serve, b"request") == [messages]


def test_padding_and_continued_headers_are_read() -> None:
    def answer(peer: _Peer, stream: int) -> None:
        block = literal_headers([(":status", "200"), ("grpc-status", "5"), ("grpc-message", "no%20such%20model")])
        peer.send(FrameType.DATA, Flag.PADDED, stream, bytes([3]) + struct.pack(">BI", 0, 2) + b"hi" + b"\0\0\0")
        peer.send(FrameType.HEADERS, Flag.END_STREAM | Flag.PADDED, stream, bytes([2]) + block[:5] + b"\0\0")
        peer.send(FrameType.CONTINUATION, 0, stream, block[5:9])
        peer.send(FrameType.CONTINUATION, Flag.END_HEADERS, stream, block[9:])

    (failure,) = _calls(_answering(answer), b"request")
    assert isinstance(failure, CallFailedError)
    assert (failure.code, failure.details) == (grpc.StatusCode.NOT_FOUND, "no such model")


def test_headers_compressed_with_huffman_and_the_static_table_are_read() -> None:
    encoder = Encoder()
    encoder.header_table_size = 0

    def answer(peer: _Peer, stream: int) -> None:
        peer.send(
            FrameType.HEADERS,
            Flag.END_HEADERS,
            stream,
            encoder.encode([(":status", "200"), ("content-type", "application/grpc")]),
        )
        peer.message(stream, b"one")
        peer.send(FrameType.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, stream, encoder.encode(_OK))

    assert _calls(_answering(answer), b"request") == [[b"one"]]


@pytest.mark.parametrize(
    ("send", "code", "words"),
    [
        (lambda p, s: p.headers(s, [(":status", "503")], Flag.END_STREAM), grpc.StatusCode.UNKNOWN, "HTTP status 503"),
        (lambda p, s: p.send(FrameType.DATA, Flag.END_STREAM, s, b""), grpc.StatusCode.UNKNOWN, "without a gRPC status"),
        (lambda p, s: p.send(FrameType.RST_STREAM, 0, s, struct.pack(">I", 7)), grpc.StatusCode.RESOURCE_EXHAUSTED, "error 7"),
        (lambda p, s: p.send(FrameType.RST_STREAM, 0, s, struct.pack(">I", 2)), grpc.StatusCode.CANCELLED, "error 2"),
        (lambda p, s: p.send(FrameType.DATA, 0, s, b"\x01\0\0\0\x01x"), grpc.StatusCode.INTERNAL, "compressed"),
        (lambda p, s: p.writer.close(), grpc.StatusCode.UNAVAILABLE, "closed the connection"),
    ],
)
def test_every_other_ending_is_a_failure(send: Callable[[_Peer, int], None], code: grpc.StatusCode, words: str) -> None:
    (failure,) = _calls(_answering(send), b"request")
    assert isinstance(failure, CallFailedError)
    assert failure.code is code
    assert words in failure.details


def test_answer_that_ends_within_a_message_is_a_failure() -> None:
    def answer(peer: _Peer, stream: int) -> None:
        peer.send(FrameType.DATA, 0, stream, struct.pack(">BI", 0, 100) + b"part")
        peer.headers(stream, _OK, Flag.END_STREAM)

    (failure,) = _calls(_answering(answer), b"request")
    assert isinstance(failure, CallFailedError)
    assert failure.code is grpc.StatusCode.INTERNAL


def test_large_request_keeps_to_the_windows_of_the_server() -> None:
    request = bytes(range(256)) * 1000
    received = bytearray()

    async def serve(peer: _Peer) -> None:
        await peer.start((Setting.INITIAL_WINDOW_SIZE, 50_000), (Setting.MAX_FRAME_SIZE, 20_000))
        _, stream, _ = await peer.read(FrameType.HEADERS)
        allowed, flags = 50_000, 0
        while not flags & Flag.END_STREAM:
            flags, _, payload = await peer.read(FrameType.DATA)
            received.extend(payload)
            assert len(received) <= allowed
            assert len(payload) <= 20_000
            if len(received) == allowed:
                allowed += 30_000
                peer.send(FrameType.WINDOW_UPDATE, 0, stream, struct.pack(">I", 30_000))
                peer.send(FrameType.WINDOW_UPDATE, 0, 0, struct.pack(">I", 30_000))
        peer.message(stream, b"got it")
        peer.headers(stream, _OK, Flag.END_STREAM)

    assert _calls(serve, request) == [[b"got it"]]
    assert bytes(received[5:]) == request


def test_calls_wait_their_turn_where_the_server_limits_streams() -> None:
    most = 0

    async def serve(peer: _Peer) -> None:
        nonlocal most
        await peer.start((Setting.MAX_CONCURRENT_STREAMS, 2))
        await peer.read(FrameType.SETTINGS)
        open_streams: list[int] = []
        for _ in range(3):
            open_streams = [await peer.read_request(), await peer.read_request()]
            most = max(most, len(open_streams))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(peer.reader.readexactly(1), 0.05)
            for stream in open_streams:
                peer.message(stream, b"done")
                peer.headers(stream, _OK, Flag.END_STREAM)

    assert _calls(serve, *[b"request"] * 6) == [[b"done"]] * 6
    assert most == 2


def test_waiting_for_a_turn_counts_against_the_time_allowed() -> None:
    streams: list[int] = []

    async def serve(peer: _Peer) -> None:
        await peer.start((Setting.MAX_CONCURRENT_STREAMS, 1))
        await peer.read(FrameType.SETTINGS)
        while True:
            streams.append(await peer.read_request())

    failures = _calls(serve, *[b"request"] * 4, timeout_s=0.3)
    assert [failure.code for failure in failures if isinstance(failure, CallFailedError)] == [
        grpc.StatusCode.DEADLINE_EXCEEDED
    ] * 4
    assert len(streams) == 1  # what has no time left is not sent


def test_going_away_fails_what_will_not_be_answered_and_keeps_the_rest() -> None:
    async def serve(peer: _Peer) -> None:
        await peer.start()
        first, _ = await peer.read_request(), await peer.read_request()
        peer.send(FrameType.GOAWAY, 0, 0, struct.pack(">II", first, ErrorCode.NO_ERROR) + b"restarting")
        peer.message(first, b"still here")
        peer.headers(first, _OK, Flag.END_STREAM)

    answered, failed = _calls(serve, b"one", b"two")
    assert answered == [b"still here"]
    assert isinstance(failed, CallFailedError)
    assert (failed.code, failed.connected) == (grpc.StatusCode.UNAVAILABLE, True)
    assert "restarting" in failed.details


def test_pings_are_answered() -> None:
    async def serve(peer: _Peer) -> None:
        await peer.start()
        stream = await peer.read_request()
        peer.send(FrameType.PING, 0, 0, b"12345678")
        flags, _, payload = await peer.read(FrameType.PING)
        peer.message(stream, payload if flags & Flag.ACK else b"")
        peer.headers(stream, _OK, Flag.END_STREAM)

    assert _calls(serve, b"request") == [[b"12345678"]]


def test_first_frame_may_come_in_pieces() -> None:
    async def serve(peer: _Peer) -> None:
        await peer.reader.readexactly(24)
        settings = frame(FrameType.SETTINGS, 0, 0, struct.pack(">HI", Setting.MAX_FRAME_SIZE, 16_384))
        for start, end in ((0, 4), (4, 9), (9, 12), (12, len(settings))):
            peer.writer.write(settings[start:end])
            await asyncio.sleep(0.02)
        stream = await peer.read_request()
        peer.message(stream, b"done")
        peer.headers(stream, _OK, Flag.END_STREAM)

    assert _calls(serve, b"request") == [[b"done"]]


@pytest.mark.parametrize("words", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"])
def test_peer_that_speaks_something_else_cannot_be_connected_to(words: bytes) -> None:
    async def serve(peer: _Peer) -> None:
        peer.writer.write(words)

    (failure,) = _calls(serve, b"request", timeout_s=1.0)
    assert isinstance(failure, CallFailedError)
    assert not failure.connected
