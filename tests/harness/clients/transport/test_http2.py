"""Frames as a server may send them: whole, torn anywhere, in an odd order.

The peer is scripted, for what a real gRPC server would not do; test_triton_grpc has the real one.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate

import grpc
import pytest
from hpack import Encoder
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.clients.protocol import AnswerEnd
from harness.clients.transport.grpc import CallFailedError, GrpcCaller, NoConnectionMadeError
from harness.clients.transport.http2 import Http2Protocol
from harness.clients.transport.http2_frames import ErrorCode, Flag, FrameType, Setting, frame, literal_headers
from harness.host.clock import now_ns
from tests.harness.clients.cancelled import assert_has_times, end_when_cancelled
from tests.harness.clients.transport.http2_peer import OK, ONE_CONNECTION, Peer, answering, calls, peer_at, prefixed


@settings(max_examples=25)
@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(1, 60), max_size=12))
def test_messages_come_whole_however_frames_and_reads_cut_them(messages: list[bytes], cuts: list[int]) -> None:
    body = b"".join(struct.pack(">BI", 0, len(message)) + message for message in messages)

    async def serve(peer: Peer) -> None:
        await peer.start()
        stream = await peer.read_request()
        peer.headers(stream, [(":status", "200")])
        rest, wire = body, b""
        for cut in [*cuts, len(body)]:
            wire += frame(FrameType.DATA, 0, stream, rest[:cut])
            rest = rest[cut:]
        wire += frame(FrameType.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, stream, literal_headers(OK))
        for start in range(0, len(wire), 37):
            peer.writer.write(wire[start : start + 37])
            await asyncio.sleep(0)

    assert calls(serve, [b"request"]) == [messages]


def test_padding_and_continued_headers_are_read() -> None:
    def answer(peer: Peer, stream: int) -> None:
        block = literal_headers([(":status", "200"), ("grpc-status", "5"), ("grpc-message", "no%20such%20model")])
        peer.send(FrameType.DATA, Flag.PADDED, stream, bytes([3]) + struct.pack(">BI", 0, 2) + b"hi" + b"\0\0\0")
        peer.send(FrameType.HEADERS, Flag.END_STREAM | Flag.PADDED, stream, bytes([2]) + block[:5] + b"\0\0")
        peer.send(FrameType.CONTINUATION, 0, stream, block[5:9])
        peer.send(FrameType.CONTINUATION, Flag.END_HEADERS, stream, block[9:])

    (failure,) = calls(answering(answer), [b"request"])
    assert isinstance(failure, CallFailedError)
    assert (failure.code, failure.details) == (grpc.StatusCode.NOT_FOUND, "no such model")


def test_headers_compressed_with_huffman_and_the_static_table_are_read() -> None:
    encoder = Encoder()
    encoder.header_table_size = 0

    def answer(peer: Peer, stream: int) -> None:
        peer.send(
            FrameType.HEADERS,
            Flag.END_HEADERS,
            stream,
            encoder.encode([(":status", "200"), ("content-type", "application/grpc")]),
        )
        peer.message(stream, b"one")
        peer.send(FrameType.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, stream, encoder.encode(OK))

    assert calls(answering(answer), [b"request"]) == [[b"one"]]


def _page(status: str) -> Callable[[Peer, int], None]:
    """The answer of a proxy that does not know gRPC."""

    def send(peer: Peer, stream: int) -> None:
        peer.headers(stream, [(":status", status), ("content-type", "text/html")])
        peer.send(FrameType.DATA, 0, stream, b"<html>Bad ")
        peer.send(FrameType.DATA, Flag.END_STREAM, stream, b"gateway</html>")

    return send


def _reset(code: int) -> Callable[[Peer, int], None]:
    return lambda peer, stream: peer.send(FrameType.RST_STREAM, 0, stream, struct.pack(">I", code))


def test_interim_headers_are_no_answer() -> None:
    def answer(peer: Peer, stream: int) -> None:
        peer.headers(stream, [(":status", "103")])
        peer.headers(stream, [(":status", "200"), ("content-type", "application/grpc+proto")])
        peer.answer(stream, b"one")

    assert calls(answering(answer), [b"request"]) == [[b"one"]]


@pytest.mark.parametrize(
    ("send", "code", "words"),
    [
        (lambda p, s: p.headers(s, [(":status", "503")], Flag.END_STREAM), grpc.StatusCode.UNKNOWN, "HTTP status 503"),
        (_page("502"), grpc.StatusCode.UNKNOWN, "HTTP status 502"),
        (_page("429"), grpc.StatusCode.RESOURCE_EXHAUSTED, "HTTP status 429"),
        (_page("200"), grpc.StatusCode.INTERNAL, "no gRPC, but text/html"),
        (lambda p, s: p.send(FrameType.DATA, Flag.END_STREAM, s, b""), grpc.StatusCode.INTERNAL, "without a gRPC status"),
        (_reset(7), grpc.StatusCode.RESOURCE_EXHAUSTED, "the server refused the stream (HTTP/2 error 7, REFUSED_STREAM)"),
        (_reset(2), grpc.StatusCode.CANCELLED, "the server reset the stream (HTTP/2 error 2, INTERNAL_ERROR)"),
        (_reset(99), grpc.StatusCode.CANCELLED, "the server reset the stream (HTTP/2 error 99)"),
        (lambda p, s: p.send(FrameType.DATA, 0, s, b"\x01\0\0\0\x01x"), grpc.StatusCode.INTERNAL, "compressed"),
        (lambda p, s: p.writer.close(), grpc.StatusCode.UNAVAILABLE, "closed the connection"),
    ],
)
def test_every_other_ending_is_a_failure(send: Callable[[Peer, int], None], code: grpc.StatusCode, words: str) -> None:
    (failure,) = calls(answering(send), [b"request"])
    assert isinstance(failure, CallFailedError)
    assert failure.code is code
    assert words in failure.details


def test_answer_that_ends_within_a_message_is_a_failure() -> None:
    def answer(peer: Peer, stream: int) -> None:
        peer.send(FrameType.DATA, 0, stream, struct.pack(">BI", 0, 100) + b"part")
        peer.headers(stream, OK, Flag.END_STREAM)

    (failure,) = calls(answering(answer), [b"request"])
    assert isinstance(failure, CallFailedError)
    assert failure.code is grpc.StatusCode.INTERNAL


def test_large_request_keeps_to_the_windows_of_the_server() -> None:
    request = bytes(range(256)) * 1000
    received = bytearray()

    async def serve(peer: Peer) -> None:
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
        peer.headers(stream, OK, Flag.END_STREAM)

    assert calls(serve, [request]) == [[b"got it"]]
    assert bytes(received[5:]) == request


def test_calls_wait_their_turn_where_the_server_limits_streams() -> None:
    most = 0

    async def serve(peer: Peer) -> None:
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
                peer.headers(stream, OK, Flag.END_STREAM)

    assert calls(serve, [b"request"] * 6) == [[b"done"]] * 6
    assert most == 2


def test_going_away_fails_what_will_not_be_answered_and_keeps_the_rest() -> None:
    async def serve(peer: Peer) -> None:
        await peer.start()
        first, _ = await peer.read_request(), await peer.read_request()
        peer.send(FrameType.GOAWAY, 0, 0, struct.pack(">II", first, ErrorCode.NO_ERROR) + b"restarting")
        peer.message(first, b"still here")
        peer.headers(first, OK, Flag.END_STREAM)

    answered, failed = calls(serve, [b"one", b"two"])
    assert answered == [b"still here"]
    assert isinstance(failed, NoConnectionMadeError)  # not repeated by the client: the record must show it
    assert failed.code is grpc.StatusCode.UNAVAILABLE
    assert "restarting" in failed.details


@pytest.mark.parametrize(
    ("code", "words", "reason"),
    [
        (ErrorCode.ENHANCE_YOUR_CALM, b"too_many_pings", "too_many_pings"),
        (ErrorCode.ENHANCE_YOUR_CALM, b"", "HTTP/2 error 11, ENHANCE_YOUR_CALM"),
        (ErrorCode.NO_ERROR, b"", "no reason given"),
    ],
)
def test_a_server_that_closes_the_connection_after_it_went_away_is_quoted(code: int, words: bytes, reason: str) -> None:
    async def serve(peer: Peer) -> None:
        await peer.start()
        stream = await peer.read_request()
        peer.send(FrameType.GOAWAY, 0, 0, struct.pack(">II", stream, code) + words)
        peer.writer.close()

    (failed,) = calls(serve, [b"one"])
    assert isinstance(failed, CallFailedError)
    assert failed.code is grpc.StatusCode.UNAVAILABLE
    assert failed.details == f"the server closed the connection, as it had announced ({reason})"


def test_pings_are_answered() -> None:
    async def serve(peer: Peer) -> None:
        await peer.start()
        stream = await peer.read_request()
        peer.send(FrameType.PING, 0, 0, b"12345678")
        flags, _, payload = await peer.read(FrameType.PING)
        peer.message(stream, payload if flags & Flag.ACK else b"")
        peer.headers(stream, OK, Flag.END_STREAM)

    assert calls(serve, [b"request"]) == [[b"12345678"]]


def test_flood_of_pings_is_answered_and_harms_no_call() -> None:
    async def serve(peer: Peer) -> None:
        await peer.start()
        stream = await peer.read_request()
        for number in range(20_000):
            peer.send(FrameType.PING, 0, 0, struct.pack(">Q", number))
            if number % 200 == 0:
                peer.message(stream, struct.pack(">Q", number))
                await peer.writer.drain()
        for number in range(20_000):
            flags, _, payload = await peer.read(FrameType.PING)
            assert (flags, payload) == (Flag.ACK, struct.pack(">Q", number))
        peer.headers(stream, OK, Flag.END_STREAM)

    assert calls(serve, [b"request"], timeout_s=60.0) == [[struct.pack(">Q", number) for number in range(0, 20_000, 200)]]


def test_messages_of_a_megabyte_come_whole_through_many_frames() -> None:
    bodies = [bytes([number]) * size for number, size in enumerate((1 << 20, 3, 1 << 20, 0, (1 << 20) + 1))]

    async def serve(peer: Peer) -> None:
        await peer.start()
        streams = [await peer.read_request(), await peer.read_request()]
        rest = b"".join(map(prefixed, bodies))
        while rest:
            for stream in streams:
                peer.send(FrameType.DATA, 0, stream, rest[:16_384])
            rest = rest[16_384:]
            await peer.writer.drain()
        for stream in streams:
            peer.headers(stream, OK, Flag.END_STREAM)

    assert calls(serve, [b"one", b"two"], timeout_s=30.0) == [bodies, bodies]


def test_window_that_shrinks_in_mid_request_is_kept_to() -> None:
    request = bytes(range(256)) * 400
    received = bytearray()

    async def serve(peer: Peer) -> None:
        await peer.start((Setting.INITIAL_WINDOW_SIZE, 40_000))
        _, stream, _ = await peer.read(FrameType.HEADERS)
        while len(received) < 40_000:
            received.extend((await peer.read(FrameType.DATA))[2])
        peer.settings((Setting.INITIAL_WINDOW_SIZE, 10_000))  # the window of the stream is now -30,000
        peer.send(FrameType.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 20))
        peer.send(FrameType.WINDOW_UPDATE, 0, stream, struct.pack(">I", 30_000))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(peer.read(FrameType.DATA), 0.1)
        peer.send(FrameType.WINDOW_UPDATE, 0, stream, struct.pack(">I", 1 << 20))
        flags = 0
        while not flags & Flag.END_STREAM:
            flags, _, payload = await peer.read(FrameType.DATA)
            received.extend(payload)
        peer.answer(stream, b"got it")

    assert calls(serve, [request]) == [[b"got it"]]
    assert bytes(received) == prefixed(request)


def _times(script: Callable[[Peer], Awaitable[None]], requests: Sequence[bytes]) -> list[tuple[AnswerEnd, list[int]]]:
    """The end of each answer, and when its messages arrived; the requests are sent one after the other."""

    async def run() -> list[tuple[AnswerEnd, list[int]]]:
        async with peer_at(script) as address:
            caller = GrpcCaller(address, "/service/Method", ONE_CONNECTION)
            await caller.connect(5.0)
            arrived_ns: list[list[int]] = [[] for _ in requests]
            ends = await asyncio.gather(
                *(
                    caller.call(request, lambda times_ns, _, arrived=arrived: arrived.extend(times_ns), 20.0)
                    for request, arrived in zip(requests, arrived_ns, strict=True)
                )
            )
            await caller.close()
        return list(zip(ends, arrived_ns, strict=True))

    return asyncio.run(run())


def test_the_headers_of_an_answer_have_a_time_of_their_own() -> None:
    """The headers of the second come while nothing but messages of the first had come, which are read outside the loop."""
    read_ns: list[int] = []
    answered_ns: list[int] = []

    async def serve(peer: Peer) -> None:
        await peer.start()
        first, second = [await peer.read_request() for _ in range(2)]
        read_ns.append(now_ns())
        peer.headers(first, [(":status", "200")])
        for _ in range(20):
            await asyncio.sleep(0.005)
            peer.message(first, b"one")
        peer.headers(second, [(":status", "200")])
        for _ in range(20):
            await asyncio.sleep(0.005)
            peer.message(first, b"one")
        answered_ns.append(now_ns())
        peer.answer(second, b"two")
        peer.headers(first, OK, Flag.END_STREAM)

    (first, first_ns), (second, [second_ns]) = _times(serve, [b"one", b"two"])
    for end in (first, second):
        assert end.connect_ns is None
        assert end.written_ns is not None
        assert end.head_ns is not None
        assert end.written_ns < end.head_ns
        assert read_ns[0] <= end.head_ns
    assert len(first_ns) == 40
    assert first_ns[19] <= (second.head_ns or 0) <= first_ns[20]
    assert second.head_ns is not None
    assert second.head_ns < answered_ns[0] <= second_ns


def test_a_request_that_is_cancelled_keeps_the_times_that_it_had() -> None:
    ended = asyncio.Event()

    async def serve(peer: Peer) -> None:
        await peer.start()
        stream = await peer.read_request()
        peer.headers(stream, [(":status", "200")])
        peer.message(stream, b"one")
        await ended.wait()

    async def run() -> AnswerEnd | None:
        async with peer_at(serve) as address:
            caller = GrpcCaller(address, "/service/Method", ONE_CONNECTION)
            try:
                return await end_when_cancelled(lambda seen: caller.call_at_once(b"request", seen, 20.0))
            finally:
                ended.set()
                await caller.close()

    assert_has_times(asyncio.run(run()))


def test_a_request_behind_a_closed_window_is_written_when_the_kernel_has_its_last_byte() -> None:
    opened_ns: list[int] = []

    async def serve(peer: Peer) -> None:
        await peer.start()
        _, stream, _ = await peer.read(FrameType.HEADERS)
        await asyncio.sleep(0.05)
        opened_ns.append(now_ns())
        peer.send(FrameType.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 20))
        peer.send(FrameType.WINDOW_UPDATE, 0, stream, struct.pack(">I", 1 << 20))
        while not (await peer.read(FrameType.DATA))[0] & Flag.END_STREAM:
            pass
        peer.headers(stream, [(":status", "200")])
        peer.answer(stream, b"done")

    [(end, _)] = _times(serve, [bytes(100_000)])
    assert end.written_ns is not None
    assert end.head_ns is not None
    assert opened_ns[0] < end.written_ns < end.head_ns


def test_a_request_that_the_kernel_does_not_take_at_once_is_written_when_it_has_the_last_byte() -> None:
    begun_ns: list[int] = []

    async def serve(peer: Peer) -> None:
        await peer.start((Setting.INITIAL_WINDOW_SIZE, 1 << 30))
        peer.send(FrameType.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30))
        await asyncio.sleep(0.05)  # beside 16 MB, which no socket holds
        begun_ns.append(now_ns())
        streams = [await peer.read_request() for _ in range(2)]
        for stream in streams:
            peer.headers(stream, [(":status", "200")])
            peer.answer(stream, b"done")

    for end, _ in _times(serve, [bytes(16_000_000), b"behind it"]):
        assert end.written_ns is not None
        assert end.head_ns is not None
        assert begun_ns[0] < end.written_ns < end.head_ns


def test_requests_behind_a_closed_window_are_sent_in_their_order() -> None:
    order: list[int] = []

    async def serve(peer: Peer) -> None:
        await peer.start()
        opened = [(await peer.read(FrameType.HEADERS))[1] for _ in range(2)]
        peer.send(FrameType.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 20))
        for stream in opened:
            peer.send(FrameType.WINDOW_UPDATE, 0, stream, struct.pack(">I", 1 << 20))
        while len(order) < 2:
            flags, stream, _ = await peer.read(FrameType.DATA)
            if flags & Flag.END_STREAM:
                order.append(stream)
        for stream in opened:
            peer.answer(stream, b"done")

    assert calls(serve, [bytes(100_000), bytes(100_000)]) == [[b"done"], [b"done"]]
    assert order == [1, 3]


def test_request_whose_own_window_is_closed_holds_no_other_up() -> None:
    async def serve(peer: Peer) -> None:
        await peer.start()
        peer.send(FrameType.WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 20))  # of the connection alone
        large, small = 1, 3
        while (found := await peer.read(FrameType.DATA))[:2] != (Flag.END_STREAM, small):
            pass
        peer.answer(small, found[2])
        peer.send(FrameType.WINDOW_UPDATE, 0, large, struct.pack(">I", 1 << 20))
        while (await peer.read(FrameType.DATA))[:2] != (Flag.END_STREAM, large):
            pass
        peer.answer(large, b"late")

    assert calls(serve, [bytes(100_000), b"small"]) == [[b"late"], [prefixed(b"small")]]


def test_thousands_of_requests_behind_a_closed_window_all_arrive() -> None:
    requests = [struct.pack(">I", number) * 250 for number in range(2_000)]

    async def serve(peer: Peer) -> None:
        await peer.start((Setting.MAX_CONCURRENT_STREAMS, 5_000))
        bodies: dict[int, bytes] = {}
        left, allowed = sum(len(prefixed(request)) for request in requests), 65_535
        while left:
            _, stream, payload = await peer.read(FrameType.DATA)
            bodies[stream] = bodies.get(stream, b"") + payload
            left -= len(payload)
            allowed -= len(payload)
            if allowed == 0:
                allowed = 30_000
                peer.send(FrameType.WINDOW_UPDATE, 0, 0, struct.pack(">I", allowed))
        for stream, body in bodies.items():
            peer.answer(stream, body)

    assert calls(serve, requests, timeout_s=60.0) == [[prefixed(request)] for request in requests]


def test_first_frame_may_come_in_pieces() -> None:
    async def serve(peer: Peer) -> None:
        await peer.reader.readexactly(24)
        settings = frame(FrameType.SETTINGS, 0, 0, struct.pack(">HI", Setting.MAX_FRAME_SIZE, 16_384))
        for start, end in ((0, 4), (4, 9), (9, 12), (12, len(settings))):
            peer.writer.write(settings[start:end])
            await asyncio.sleep(0.02)
        stream = await peer.read_request()
        peer.message(stream, b"done")
        peer.headers(stream, OK, Flag.END_STREAM)

    assert calls(serve, [b"request"]) == [[b"done"]]


@pytest.mark.parametrize("words", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"])
def test_peer_that_speaks_something_else_cannot_be_connected_to(words: bytes) -> None:
    async def serve(peer: Peer) -> None:
        peer.writer.write(words)

    (failure,) = calls(serve, [b"request"], timeout_s=1.0)
    assert isinstance(failure, NoConnectionMadeError)


class _Nowhere(asyncio.Transport):
    """Takes what is written."""

    def write(self, data: bytes | bytearray | memoryview) -> None: ...


@given(st.lists(st.sampled_from([0, 8, 200]), max_size=8), st.integers(0, 10_000), st.integers(0, 10_000))
def test_pieces_end_behind_each_frame_wherever_the_last_read_ended(lengths: list[int], read: int, come: int) -> None:
    unknown = 0xFE  # unknown kinds are ignored
    frames = [frame(FrameType.SETTINGS, 0, 0, b"")]
    frames += [struct.pack(">HBBBI", 0, length, unknown, 0, 0) + bytes(length) for length in lengths]
    sent = b"".join(frames)
    start = read % (len(sent) + 1)
    stop = start + come % (len(sent) - start + 1)

    async def ends() -> list[int]:
        protocol = Http2Protocol(lambda _: None)
        protocol.connection_made(_Nowhere())
        protocol.data_received(sent[:start])
        return list(protocol.piece_ends(sent[start:stop]))

    assert asyncio.run(ends()) == [end - start for end in accumulate(map(len, frames)) if start < end <= stop]
