"""gRPC's messages that are read outside the interpreter: the same as if it had been done inside, and never late."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import socket
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from termios import FIONREAD, TIOCOUTQ

import grpc
import pytest
import uvloop
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS, AnswerLimits, AnswerTooLongError
from harness.clients.transport import event_streams, followed_http2, http2_pool
from harness.clients.transport.event_streams import EventStreams, FollowedMessages, Owner
from harness.clients.transport.grpc import CallFailedError, GrpcCaller
from harness.clients.transport.http2 import Http2Protocol
from harness.clients.transport.http2_frames import FRAME_HEADER, FRAME_HEADER_BYTES, Flag, FrameType, frame
from harness.host.clock import now_ns
from tests.harness.clients.transport.http2_frames_sent import STREAMS, any_frame, cut, rule_abiding
from tests.harness.clients.transport.http2_peer import OK, ONE_CONNECTION, Peer, Script, peer_at, prefixed

pytestmark = pytest.mark.skipif(not event_streams.is_compiled, reason="event_reader.pyx is not compiled here")

_NEAR_NS = 50_000_000  # room for a machine that is busy with other things
_TRIES = 20


@dataclass
class _Answer:
    """What a call handed on, and how it ended: None for OK."""

    times_ns: list[int] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    failure: tuple[str, str] | None = None

    def keep(self, times_ns: Sequence[int], bodies: Sequence[bytes]) -> None:
        assert len(times_ns) == len(bodies)
        self.times_ns += times_ns
        self.bodies += bodies


async def _ended(answer: _Answer, call: Awaitable[None]) -> None:
    try:
        await call
    except (CallFailedError, AnswerTooLongError) as error:
        answer.failure = type(error).__name__, str(error)


_Scene = Callable[[GrpcCaller, _Answer], Awaitable[None]]


def _played(script: Script, scene: _Scene | None = None, limits: AnswerLimits = DEFAULT_ANSWER_LIMITS) -> _Answer:
    """The answer to one call, made by ``scene`` where given, over one connection to a server that follows ``script``."""
    answer = _Answer()

    async def play() -> None:
        async with peer_at(script) as address:
            caller = GrpcCaller(address, "/service/Method", ONE_CONNECTION, limits)
            await caller.connect(5.0)
            try:
                await (_ended(answer, caller.call(b"ask", answer.keep, 20.0)) if scene is None else scene(caller, answer))
            finally:
                await caller.close()

    uvloop.run(play())
    return answer


@contextmanager
def _read_inside() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(http2_pool, "is_compiled", False)
        yield


async def _begin(peer: Peer) -> int:
    """Read a request and send a first message, so that what comes next is read outside."""
    await peer.start()
    stream = await peer.read_request()
    peer.headers(stream, [(":status", "200")])
    await asyncio.sleep(0.01)
    peer.message(stream, b"first")
    await asyncio.sleep(0.02)
    return stream


# ---- the reader of frames, against its specification


_Part = tuple[dict[int, list[bytes]], bytes]
"""Messages by stream, and the headers after them."""


def _specified(data: bytes, next_id: int) -> tuple[list[_Part], int]:
    """The parts of ``data``, and the bytes that they are in: as far as there are DATA frames without flags that contain whole
    messages, and whole headers.
    """
    parts: list[_Part] = []
    messages: dict[int, list[bytes]] = {}
    position = 0
    while len(data) - position >= FRAME_HEADER_BYTES:
        high, low, kind, flags, stream = FRAME_HEADER.unpack_from(data, position)
        at, stop = position + FRAME_HEADER_BYTES, position + FRAME_HEADER_BYTES + (high << 8 | low)
        if stop > len(data) or high << 8 | low > 16_384:
            break
        if kind == FrameType.HEADERS and flags & Flag.END_HEADERS:
            parts.append((messages, data[position:stop]))
            messages, position = {}, stop
            continue
        found: list[bytes] = []
        while stop - at >= 5 and data[at] == 0 and at + 5 + int.from_bytes(data[at + 1 : at + 5]) <= stop:
            size = int.from_bytes(data[at + 1 : at + 5])
            found.append(data[at + 5 : at + 5 + size])
            at += 5 + size
        if kind or flags or not stream % 2 or stream >= next_id or at < stop or not found:
            break
        messages.setdefault(stream, []).extend(found)
        position = stop
    return ([*parts, (messages, b"")] if messages else parts), position


def _understood(read: FollowedMessages) -> tuple[list[_Part], bytes]:
    """The parts as far as they were understood, and the other bytes."""
    parts: list[_Part] = []
    for number, (of_streams, _, other) in enumerate(read.parts):
        messages = {stream: list(messages) for stream, (_, messages) in of_streams.items()}
        if not other or _specified(other, 0) == ([({}, other)], len(other)):
            parts.append((messages, other))
            continue
        if messages:
            parts.append((messages, b""))
        return parts, b"".join(rest for *_, rest in read.parts[number:])
    return parts, b""


class _Nobody:
    def on_given_back(self) -> None: ...


async def _read_whole(peer: socket.socket, ours: socket.socket) -> None:
    """Wait until what the peer has sent was read."""
    while any(fcntl.ioctl(end, kind, bytes(4)) != bytes(4) for end, kind in ((peer, TIOCOUTQ), (ours, FIONREAD))):
        await asyncio.sleep(0.001)


def _read_by_the_thread(pieces: Sequence[bytes], next_id: int) -> FollowedMessages:
    async def play() -> FollowedMessages:
        streams = EventStreams()
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
            peer, _ = server.accept()
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                streams.follow_messages(ours.fileno(), 0, next_id, _Nobody())
                for piece in pieces:
                    peer.sendall(piece)
                    await asyncio.sleep(0.0002)  # most are read by themselves
                await _read_whole(peer, ours)
            read = streams.release_messages(ours.fileno())
        streams.close()
        return read

    return asyncio.run(play())


_MESSAGES = st.lists(st.binary(max_size=300), min_size=1, max_size=4).map(lambda all_: b"".join(map(prefixed, all_)))
_FRAMES = st.builds(lambda s, body: frame(FrameType.DATA, 0, s, body), st.integers(0, 9), _MESSAGES)


@given(st.lists(st.one_of(_FRAMES, any_frame, rule_abiding), max_size=12), st.lists(st.integers(0, 5000), max_size=6))
@example([frame(FrameType.DATA, 0, 1, prefixed(b"x"))] * 200 + [b"\0\0\6\0\0\0\0\0\1\0\xff\xff\xff\xff" + b"x"], [])
@example([frame(FrameType.DATA, 0, 1, b"\0\0\0\0")], [])
@example([frame(FrameType.DATA, 0, 1, b"\0\0\0\0\0")] * 3, [7, 20])
@example([struct.pack(">HBBBI", 0x40, 1, 0, 0, 1) + prefixed(bytes(16_380))], [])
@example([frame(FrameType.DATA, 0, 1, prefixed(bytes(16_379)))], [])
@settings(max_examples=2 * settings().max_examples, suppress_health_check=[HealthCheck.too_slow])
def test_the_thread_reads_what_is_specified_and_leaves_the_rest(frames: list[bytes], places: list[int]) -> None:
    data = b"".join(frames)
    read = _read_by_the_thread(cut(data, places), next_id=7)
    parts, rest = _understood(read)
    assert data.endswith(rest)
    whole = data[: len(data) - len(rest)]
    assert (parts, len(whole)) == _specified(whole, 7)
    assert all(len(times) == len(messages) for of_streams, *_ in read.parts for times, messages in of_streams.values())
    if not places:
        assert len(whole) == _specified(data, 7)[1]


@given(st.binary(max_size=400), st.lists(st.integers(0, 5000), max_size=6))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_bytes_are_left_to_the_loop(data: bytes, places: list[int]) -> None:
    read = _read_by_the_thread(cut(b"\xff" + data, places), next_id=7)  # a frame longer than allowed
    assert not any(messages for messages, *_ in read.parts)
    assert b"".join(other for *_, other in read.parts) == b"\xff" + data


def test_a_flood_of_empty_messages_is_left_in_the_socket() -> None:
    flood = frame(FrameType.DATA, 0, 1, prefixed(b"") * 3_276)

    async def play() -> tuple[int, int]:
        streams, sent, unsent = EventStreams(), 0, b""
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
            peer, _ = server.accept()
            with peer:
                peer.setblocking(False)
                streams.follow_messages(ours.fileno(), 0, 7, _Nobody())
                for _ in range(400):
                    unsent = unsent or flood
                    try:
                        count = peer.send(unsent)
                        sent, unsent = sent + count, unsent[count:]
                    except BlockingIOError:
                        await asyncio.sleep(0.002)
            read = streams.release_messages(ours.fileno())
        streams.close()
        return sent // 5, sum(len(messages) for of_streams, *_ in read.parts for _, messages in of_streams.values())

    sent, kept = asyncio.run(play())
    assert kept < 70_000 < sent


def test_the_end_of_an_answer_is_reported_and_what_comes_before_and_behind_it_is_read_further() -> None:
    class Counting:
        reports = 0

        def on_given_back(self) -> None:
            self.reports += 1

    async def play() -> tuple[int, int, FollowedMessages]:
        streams, owner = EventStreams(), Counting()
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
            peer, _ = server.accept()
            with peer:
                streams.follow_messages(ours.fileno(), 0, 3, owner)
                streams.open_streams(ours.fileno(), 5)
                peer.sendall(_HEAD_FRAME + frame(FrameType.DATA, 0, 3, prefixed(b"token")))
                await _read_whole(peer, ours)
                await asyncio.sleep(0.1)  # in which a report would come
                of_head = owner.reports
                peer.sendall(_END_FRAME)
                async with asyncio.timeout(60):
                    while not owner.reports:
                        await asyncio.sleep(0.001)
                peer.sendall(frame(FrameType.DATA, 0, 1, prefixed(b"of another")))
                await _read_whole(peer, ours)
                await asyncio.sleep(0.1)
            read = streams.release_messages(ours.fileno())
        streams.close()
        return of_head, owner.reports, read

    of_head, of_all, read = asyncio.run(play())
    assert (of_head, of_all) == (0, 1)
    assert _understood(read) == ([({}, _HEAD_FRAME), ({3: [b"token"]}, _END_FRAME), ({1: [b"of another"]}, b"")], b"")
    assert read.parts[0][1] <= read.parts[1][1]


_HEAD_FRAME = frame(FrameType.HEADERS, Flag.END_HEADERS, 3, b"head")
_END_FRAME = frame(FrameType.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, 3, b"end")


def test_a_socket_that_was_never_followed_has_nothing() -> None:
    async def play() -> None:
        streams = EventStreams()
        for release in (streams._reader.release, streams._reader.release_messages):
            for descriptor in (-1, 2**31 - 1):
                with pytest.raises(ValueError, match="never followed"):
                    release(descriptor)
                with pytest.raises(ValueError, match="never followed"):
                    streams.open_streams(descriptor, 3)
        streams.close()

    asyncio.run(play())


def test_events_are_no_messages() -> None:
    async def play() -> None:
        streams = EventStreams()
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
            peer, _ = server.accept()
            with peer:
                streams.follow(ours.fileno(), 0, _Nobody())
                peer.sendall(b"d\r\ndata: token\n\n\r\n")
                await asyncio.sleep(0.05)
            with pytest.raises(ValueError, match="followed for events"):
                streams.release_messages(ours.fileno())
        streams.close()

    asyncio.run(play())


# ---- whole calls


def _endings(pieces: Sequence[bytes]) -> list[_Answer]:
    """What three calls come to when the server sends a message on the first, then ``pieces``, and then ends."""

    async def script(peer: Peer) -> None:
        await peer.start()
        for _ in STREAMS:
            await peer.read_request()
        peer.message(1, b"first")
        with suppress(RuntimeError, OSError):  # the client has closed the connection, as it may after a violation or a GOAWAY
            for piece in pieces:
                await asyncio.sleep(0.0005)  # most are read by themselves
                peer.writer.write(piece)
            peer.writer.write_eof()

    async def play() -> list[_Answer]:
        async with peer_at(script) as address:
            caller = GrpcCaller(address, "/service/Method", ONE_CONNECTION)
            await caller.connect(5.0)
            answers = [_Answer() for _ in STREAMS]
            await asyncio.gather(*(_ended(answer, caller.call(b"ask", answer.keep, 20.0)) for answer in answers))
            await caller.close()
            return answers

    return uvloop.run(play())


@given(st.lists(st.one_of(rule_abiding, _FRAMES, any_frame), max_size=15), st.lists(st.integers(0, 5000), max_size=8))
@example([frame(FrameType.DATA, 0, 1, prefixed(b"token"))] * 600, [])
@example([frame(FrameType.DATA, 0, 7, prefixed(b"never opened"))], [])
@example([frame(FrameType.DATA, 0, 1, b"\1\0\0\0\1x" + prefixed(b"behind a compressed one"))], [])
@example(
    [frame(FrameType.RST_STREAM, 0, 3, bytes(4)), *[frame(FrameType.DATA, 0, 3, prefixed(b"behind its end"))] * 3], [13, 40]
)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_what_is_read_outside_is_what_would_be_read_inside(frames: list[bytes], places: list[int]) -> None:
    pieces = cut(b"".join(frames), places) if places else frames
    outside = _endings(pieces)
    with _read_inside():
        inside = _endings(pieces)
    assert [(answer.bodies, answer.failure) for answer in outside] == [(answer.bodies, answer.failure) for answer in inside]
    assert all(answer.times_ns == sorted(answer.times_ns) for answer in outside)


@pytest.mark.parametrize("size", [0, 1, 150, 4_087])
def test_messages_that_come_by_themselves_are_read_outside(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[bytes] = []
    read = Http2Protocol.data_received

    def noting(self: Http2Protocol, data: bytes) -> None:
        reads.extend([data] if data else [])
        read(self, data)

    monkeypatch.setattr(Http2Protocol, "data_received", noting)

    async def script(peer: Peer) -> None:
        stream = await _begin(peer)
        for _ in range(40):
            peer.message(stream, b"x" * size)
            await asyncio.sleep(0.0005)
        peer.headers(stream, OK, Flag.END_STREAM)

    answer = _played(script)
    assert (answer.bodies, answer.failure) == ([b"first", *[b"x" * size] * 40], None)
    assert len(reads) < 14  # settings, headers, the first message, the end, and perhaps some that came in two parts


def test_a_message_is_passed_on_before_many_have_come() -> None:
    arrived = asyncio.Event()

    async def script(peer: Peer) -> None:
        stream = await _begin(peer)
        for _ in range(5):
            peer.message(stream, b"token")
            await asyncio.sleep(0.002)
        async with asyncio.timeout(60.0):
            await arrived.wait()
        peer.headers(stream, OK, Flag.END_STREAM)

    async def scene(caller: GrpcCaller, answer: _Answer) -> None:
        def keep(times_ns: Sequence[int], bodies: Sequence[bytes]) -> None:
            answer.keep(times_ns, bodies)
            if len(answer.bodies) == 6:
                arrived.set()

        await _ended(answer, caller.call(b"ask", keep, 20.0))

    answer = _played(script, scene)
    assert (answer.bodies, answer.failure) == ([b"first", *[b"token"] * 5], None)


def test_a_message_of_many_frames_is_whole() -> None:
    long = bytes(range(256)) * 300

    async def script(peer: Peer) -> None:
        stream = await _begin(peer)
        for _ in range(3):
            peer.message(stream, b"short")
            for start in range(0, len(prefixed(long)), 10_000):
                peer.send(FrameType.DATA, 0, stream, prefixed(long)[start : start + 10_000])
                await asyncio.sleep(0.002)
        peer.headers(stream, OK, Flag.END_STREAM)

    answer = _played(script)
    assert (answer.bodies, answer.failure) == ([b"first", *[b"short", long] * 3], None)


def test_a_ping_is_answered_between_messages() -> None:
    async def script(peer: Peer) -> None:
        stream = await _begin(peer)
        for number in range(5):
            peer.message(stream, b"token")
            peer.send(FrameType.PING, 0, 0, struct.pack(">Q", number))
            flags, _, payload = await peer.read(FrameType.PING)
            assert (flags, payload) == (Flag.ACK, struct.pack(">Q", number))
        peer.headers(stream, OK, Flag.END_STREAM)

    answer = _played(script)
    assert (answer.bodies, answer.failure) == ([b"first", *[b"token"] * 5], None)


async def _five_and_no_end(peer: Peer) -> None:
    stream = await _begin(peer)
    for number in range(5):
        peer.message(stream, b"%d" % number)


_FIVE = [b"first", b"0", b"1", b"2", b"3", b"4"]


def test_messages_before_a_deadline_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_http2, "_LATEST_S", 60.0)  # so that the end alone passes them on

    async def scene(caller: GrpcCaller, answer: _Answer) -> None:
        await _ended(answer, caller.call(b"ask", answer.keep, 0.5))

    answer = _played(_five_and_no_end, scene)
    assert (answer.bodies, answer.failure) == (_FIVE, ("CallFailedError", "no end within 0.5 s"))


def test_messages_before_a_cancellation_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_http2, "_LATEST_S", 60.0)  # so that the end alone passes them on

    async def scene(caller: GrpcCaller, answer: _Answer) -> None:
        call = asyncio.create_task(caller.call(b"ask", answer.keep, 20.0))
        await asyncio.sleep(0.5)
        assert answer.bodies == [b"first"]
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    assert _played(_five_and_no_end, scene).bodies == _FIVE


def test_who_asks_for_messages_at_once_gets_them_so_beside_others() -> None:
    async def script(peer: Peer) -> None:
        patient = await _begin(peer)
        peer.message(patient, b"token")
        hasty = await peer.read_request()
        for _ in range(5):
            peer.message(hasty, b"now")
            peer.message(patient, b"token")
            await asyncio.sleep(0.01)
        peer.answer(hasty, b"end")
        peer.answer(patient, b"end")

    async def scene(caller: GrpcCaller, answer: _Answer) -> None:
        beside = _Answer()
        call = asyncio.create_task(caller.call(b"ask", beside.keep, 20.0))
        await asyncio.sleep(0.1)
        await caller.call_at_once(b"ask", lambda _, bodies: answer.keep([now_ns()] * len(bodies), bodies), 20.0)
        await call
        assert beside.bodies == [b"first", *[b"token"] * 6, b"end"]

    answer = _played(script, scene)
    assert answer.bodies == [*[b"now"] * 5, b"end"]
    assert len(set(answer.times_ns)) > 2


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (AnswerLimits(max_answer_bytes=200), "200"),
        (AnswerLimits(max_responses=20), "20"),
    ],
)
def test_limits_of_an_answer_are_kept(limits: AnswerLimits, words: str) -> None:
    async def script(peer: Peer) -> None:
        stream = await _begin(peer)
        for _ in range(400):
            peer.message(stream, b"token")
            await asyncio.sleep(0)

    answer = _played(script, limits=limits)
    assert answer.failure is not None
    assert answer.failure[0] == "AnswerTooLongError"
    assert words in answer.failure[1]
    assert len(answer.bodies) <= 20


def test_a_reset_is_heard_behind_what_came_before() -> None:
    async def script(peer: Peer) -> None:
        stream = await _begin(peer)
        peer.message(stream, b"token")
        await asyncio.sleep(0.05)
        peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.writer.transport.abort()

    answer = _played(script)
    assert answer.bodies == [b"first", b"token"]
    assert answer.failure is not None
    assert "Connection reset by peer" in answer.failure[1]


def test_the_servers_end_is_heard_behind_what_came_before() -> None:
    async def script(peer: Peer) -> None:
        stream = await _begin(peer)
        peer.message(stream, b"token")
        peer.writer.close()

    answer = _played(script)
    assert (answer.bodies, answer.failure) == ([b"first", b"token"], ("CallFailedError", "the server closed the connection"))


async def _three_and_an_end(peer: Peer) -> None:
    stream = await _begin(peer)
    for _ in range(3):
        peer.message(stream, b"token")
        await asyncio.sleep(0.002)
    peer.headers(stream, OK, Flag.END_STREAM)


def test_where_the_thread_cannot_read_the_loop_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: EventStreams, descriptor: int, emptied_ns: int, next_id: int, owner: Owner) -> None:
        raise OSError(28, "No space left on device")  # the error of epoll_ctl(2) for too many watches

    monkeypatch.setattr(EventStreams, "follow_messages", fail)
    answer = _played(_three_and_an_end)
    assert (answer.bodies, answer.failure) == ([b"first", *[b"token"] * 3], None)


def test_a_thread_that_has_no_memory_left_is_no_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    release = EventStreams.release_messages
    monkeypatch.setattr(
        EventStreams,
        "release_messages",
        lambda self, descriptor: release(self, descriptor)._replace(errno=errno.ENOMEM, is_over=True),
    )

    async def script(peer: Peer) -> None:
        stream = await _begin(peer)
        peer.message(stream, b"token")
        peer.send(FrameType.PING, 0, 0, bytes(8))

    answer = _played(script)
    assert answer.bodies == [b"first", b"token"]
    assert answer.failure == ("CallFailedError", "the connection was lost: [Errno 12] Cannot allocate memory")


def test_no_thread_is_a_failure_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: EventStreams) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(EventStreams, "__init__", fail)
    with pytest.raises(CallFailedError, match=r"cannot start the reader thread: .*Too many open files") as caught:
        _played(_three_and_an_end)
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE


# ---- when it came


def test_a_loop_that_stands_still_delays_and_joins_nothing() -> None:
    def late_ns() -> list[int]:
        sent_ns: list[int] = []
        with socket.create_server(("127.0.0.1", 0)) as server:

            def serve() -> None:
                peer, _ = server.accept()
                with peer:
                    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    peer.sendall(frame(FrameType.SETTINGS, 0, 0, b""))
                    time.sleep(0.2)
                    peer.sendall(frame(FrameType.DATA, 0, 1, prefixed(b"first")))
                    time.sleep(0.1)
                    for number in range(10):
                        if number == 3:  # what the thread does not read itself must not delay what follows
                            peer.sendall(frame(FrameType.PING, 0, 0, bytes(8)))
                        sent_ns.append(now_ns())
                        peer.sendall(frame(FrameType.DATA, 0, 1, prefixed(b"token")))
                        time.sleep(0.02)
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(1000):
                        pass

            serving = threading.Thread(target=serve)
            serving.start()
            answer = _Answer()

            async def play() -> None:
                caller = GrpcCaller(f"127.0.0.1:{server.getsockname()[1]}", "/service/Method", ONE_CONNECTION)
                await caller.connect(5.0)
                call = asyncio.create_task(_ended(answer, caller.call(b"ask", answer.keep, 20.0)))
                while not answer.bodies:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.02)
                time.sleep(0.35)  # the loop is blocked
                await call
                await caller.close()

            uvloop.run(play())
            serving.join()
        assert answer.bodies == [b"first", *[b"token"] * 10]
        return [arrived_ns - ns for arrived_ns, ns in zip(answer.times_ns[1:], sent_ns, strict=True)]

    for _ in range(_TRIES):  # where the machine had no core for the reader, it may be as late as the loop
        late = late_ns()
        assert min(late) >= 0
        if max(late) < _NEAR_NS and sorted(late)[5] < 2_000_000:
            return  # read together, all but the last would be later by multiples of 20 ms
    raise AssertionError(f"late by {late} ns")
