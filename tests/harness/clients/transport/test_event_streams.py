"""Streams of events that are read outside the interpreter: the same as if it had been done inside, and never late."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise

import pytest
import uvloop
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from harness.clients.transport import event_streams, tcp
from harness.clients.transport.event_streams import EventStreams, Owner
from harness.clients.transport.http1 import Body, HttpConnection, OnEvents
from harness.clients.transport.sse import EventStream
from harness.clients.transport.tcp import Arrival
from harness.host.clock import now_ns

needs_it_compiled = pytest.mark.skipif(not event_streams.is_compiled, reason="event_reader.pyx is not compiled here")

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_END = b"0\r\n\r\n"
_NEAR_NS = 50_000_000  # room for a machine that is busy with other things
_TRIES = 20


def _chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


class _Answer:
    """Keeps each event with when it arrived."""

    def __init__(self, arrival: Arrival) -> None:
        self.arrival = arrival
        self.events: list[bytes] = []
        self.times_ns: list[int] = []
        self.errors: list[bytes] = []
        self.ended: asyncio.Future[tuple[object, ...]] = asyncio.get_running_loop().create_future()
        self.fault: Exception | None = None
        self._stream = EventStream(lambda data: self._keep((arrival.ns,), (data,)), self.errors.append)
        self.feed = self._stream.feed
        self.end = self._stream.end

    def event_sink(self) -> OnEvents | None:
        return self._take if self._stream.is_between_events else None

    def _take(self, times_ns: Sequence[int], events: Sequence[bytes]) -> None:
        self._stream.skip_events()
        self._keep(times_ns, events)

    def _keep(self, times_ns: Sequence[int], events: Sequence[bytes]) -> None:
        if self.fault is not None:
            raise self.fault
        self.times_ns += times_ns
        self.events += events

    def on_written(self, given_ns: int) -> None: ...

    def on_head(self, status: int, headers: dict[bytes, bytes]) -> Body:
        return self

    def on_end(self) -> None:
        self._over("whole")

    def on_lost(self, problem: str, unprocessed: bool) -> None:
        self._over("lost", problem, unprocessed)

    def on_garbage(self, problem: str) -> None:
        self._over("garbage", problem)

    def on_fault(self, error: BaseException) -> None:
        self._over("fault", error)

    def _over(self, *how: object) -> None:
        assert not self.ended.done()
        self.ended.set_result(how)


class _Pool:
    def on_open(self, connection: HttpConnection) -> None: ...

    def on_idle(self, connection: HttpConnection) -> None: ...

    def on_closed(self, connection: HttpConnection) -> None: ...


_Scene = Callable[[HttpConnection, _Answer, socket.socket], Awaitable[None]]


async def _asking(streams: EventStreams | None, scene: _Scene) -> _Answer:
    """Play ``scene`` with a connection on which an answer is awaited, and the server's socket, which blocks."""
    arrival = Arrival()
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = await tcp.connect(lambda: HttpConnection(_Pool(), arrival, streams), *server.getsockname(), arrival)
        peer, _ = server.accept()
    with peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer = _Answer(arrival)
        connection.send(b"ask", answer)
        assert peer.recv(100) == b"ask"
        await scene(connection, answer, peer)
    connection.close()
    await asyncio.sleep(0)
    return answer


def _played(scene: _Scene) -> _Answer:
    """The answer, when ``scene`` has been played with streams that are read outside."""

    async def play() -> _Answer:
        streams = EventStreams()
        try:
            return await _asking(streams, scene)
        finally:
            streams.close()

    return uvloop.run(play())


async def _start(answer: _Answer, peer: socket.socket) -> None:
    """Send the head and a first event in such pieces that both are read inside, and wait until what comes next is not."""
    peer.sendall(_HEAD + b"d\r\ndata: first\n\n")
    async with asyncio.timeout(60):
        while not answer.events:
            await asyncio.sleep(0.001)
    peer.sendall(b"\r\n")
    await asyncio.sleep(0.02)


async def _ended(answer: _Answer) -> tuple[object, ...]:
    return await asyncio.wait_for(asyncio.shield(answer.ended), 60)


def test_it_is_compiled_wherever_there_is_a_compiler() -> None:
    assert event_streams.is_compiled or shutil.which("cc") is None


# ---- what is read

_TOKEN = st.binary(min_size=1, max_size=12) | st.sampled_from([b"a", b'{"text": "b"}', b"d\r\ndata: x\n\n\r\n", b"x" * 5000])
_EVENT_BODY = st.builds(lambda data: b"data: %b\n\n" % data, _TOKEN) | st.sampled_from(
    [
        b"data: a\n\ndata: b\n\n",
        b"data:c\n\n",
        b": comment\n\n",
        b"event: error\ndata: e\n\n",
        b"data: d",
        b"\n\n",
        b"data: \n\n",
        b"\xef\xbb\xbfdata: behind a byte order mark\n\n",
    ]
)
_PIECE = st.one_of(
    _EVENT_BODY.map(_chunk),
    _EVENT_BODY.map(lambda body: _chunk(body).upper()),
    st.tuples(_EVENT_BODY, _EVENT_BODY).map(lambda two: _chunk(two[0]) + _chunk(two[1])),
    _EVENT_BODY.map(lambda body: b"%x;extension\r\n%b\r\n" % (len(body), body)),
    st.sampled_from([b"9\r\ndata: a\n\n\r\n", b"0x9\r\ndata: a\n\n\r\n", b"7\r\ndata: a\n\n\r\n", b"nonsense"]),
)


@needs_it_compiled
@given(st.lists(_PIECE, max_size=12), st.lists(st.integers(0, 10_000), max_size=4), st.booleans())
@example([_chunk(b"data: token\n\n")] * 600, [], False)
@example([_chunk(b"data: a\n\n"), b"9\r\ndata: a\n\n\r\n", _chunk(b"data: b\n\n")], [], True)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_what_is_read_outside_is_what_would_be_read_inside(pieces: list[bytes], cuts: list[int], together: bool) -> None:
    pieces = [*pieces, _END]
    for cut in cuts:
        number = cut % len(pieces)
        piece = pieces[number]
        if len(piece) > 1:
            pieces[number : number + 1] = [piece[: cut % (len(piece) - 1) + 1], piece[cut % (len(piece) - 1) + 1 :]]

    async def scene(connection: HttpConnection, answer: _Answer, peer: socket.socket) -> None:
        peer.sendall(_HEAD)
        with suppress(OSError):  # after invalid bytes the client closes
            for piece in [b"".join(pieces)] if together else pieces:
                peer.sendall(piece)
                if len(pieces) < 30:
                    await asyncio.sleep(0.0002)  # most are read by themselves
            peer.shutdown(socket.SHUT_WR)
        await _ended(answer)

    async def play() -> list[_Answer]:
        streams = EventStreams()
        answers = [await _asking(each, scene) for each in (streams, None)]
        streams.close()
        return answers

    outside, inside = uvloop.run(play())
    assert outside.events == inside.events
    assert (outside.errors, outside.ended.result()) == (inside.errors, inside.ended.result())
    assert len(outside.times_ns) == len(outside.events)
    assert outside.times_ns == sorted(outside.times_ns)


@needs_it_compiled
@pytest.mark.parametrize("size", [1, 100, 247, 248, 1000, 4087])
def test_events_of_any_usual_size_are_read_outside(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    parse = HttpConnection._parse

    def noting(self: HttpConnection, data: bytes) -> None:
        parsed.append(data)
        parse(self, data)

    monkeypatch.setattr(HttpConnection, "_parse", noting)

    async def scene(connection: HttpConnection, answer: _Answer, peer: socket.socket) -> None:
        await _start(answer, peer)
        for _ in range(40):
            peer.sendall(_chunk(b"data: %b\n\n" % (b"x" * size)))
            await asyncio.sleep(0.0005)
        peer.sendall(_END)
        assert await _ended(answer) == ("whole",)

    answer = _played(scene)
    assert answer.events == [b"first", *[b"x" * size] * 40]
    assert len(parsed) < 12  # the head, the first event, the end, and perhaps some that came in two parts


@needs_it_compiled
def test_an_event_unlike_the_others_is_heard_at_once() -> None:
    async def scene(connection: HttpConnection, answer: _Answer, peer: socket.socket) -> None:
        await _start(answer, peer)
        peer.sendall(_chunk(b"data: token\n\n") * 3 + _chunk(b"event: error\ndata: full\n\n"))
        async with asyncio.timeout(60):
            while not answer.errors:
                await asyncio.sleep(0.001)
        assert answer.events == [b"first", *[b"token"] * 3]

    assert _played(scene).errors == [b"full"]


@needs_it_compiled
def test_events_that_were_read_are_passed_on_when_the_exchange_is_cancelled() -> None:
    async def scene(connection: HttpConnection, answer: _Answer, peer: socket.socket) -> None:
        await _start(answer, peer)
        for number in range(5):
            peer.sendall(_chunk(b"data: %d\n\n" % number))
        await asyncio.sleep(0.1)
        assert answer.events == [b"first"]
        connection.abandon(answer)

    assert _played(scene).events == [b"first", b"0", b"1", b"2", b"3", b"4"]


@needs_it_compiled
def test_an_error_of_the_receiver_of_events_is_reported() -> None:
    fault = ValueError("ours")

    async def scene(connection: HttpConnection, answer: _Answer, peer: socket.socket) -> None:
        await _start(answer, peer)
        answer.fault = fault
        peer.sendall(_chunk(b"data: token\n\n") * 3 + _END)
        assert await _ended(answer) == ("fault", fault)

    _played(scene)


@needs_it_compiled
@pytest.mark.parametrize("pause_s", [0.0, 0.05])
def test_a_reset_is_heard_behind_what_came_before(pause_s: float) -> None:
    async def scene(connection: HttpConnection, answer: _Answer, peer: socket.socket) -> None:
        await _start(answer, peer)
        peer.sendall(_chunk(b"data: token\n\n"))
        await asyncio.sleep(0.05)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        time.sleep(pause_s)
        how, problem, unprocessed = await _ended(answer)
        assert (how, unprocessed) == ("lost", False)
        assert "Connection reset by peer" in str(problem)

    assert _played(scene).events == [b"first", b"token"]


@needs_it_compiled
def test_the_servers_end_is_heard_behind_what_came_before() -> None:
    async def scene(connection: HttpConnection, answer: _Answer, peer: socket.socket) -> None:
        await _start(answer, peer)
        peer.sendall(_chunk(b"data: token\n\n"))
        peer.close()
        assert await _ended(answer) == ("lost", "the server closed the connection", False)

    assert _played(scene).events == [b"first", b"token"]


@needs_it_compiled
def test_where_the_thread_cannot_read_the_loop_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: EventStreams, descriptor: int, emptied_ns: int, owner: object) -> None:
        raise OSError(28, "No space left on device")  # the error of epoll_ctl(2) for too many watches

    monkeypatch.setattr(EventStreams, "follow", fail)

    async def scene(connection: HttpConnection, answer: _Answer, peer: socket.socket) -> None:
        await _start(answer, peer)
        for _ in range(3):
            peer.sendall(_chunk(b"data: token\n\n"))
            await asyncio.sleep(0.001)
        peer.sendall(_END)
        assert await _ended(answer) == ("whole",)

    assert _played(scene).events == [b"first", *[b"token"] * 3]


@needs_it_compiled
def test_a_server_whose_events_look_otherwise_is_soon_read_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    followed: list[int] = []
    follow = EventStreams.follow

    def noting(self: EventStreams, descriptor: int, emptied_ns: int, owner: Owner) -> None:
        followed.append(descriptor)
        follow(self, descriptor, emptied_ns, owner)

    monkeypatch.setattr(EventStreams, "follow", noting)

    async def scene(connection: HttpConnection, answer: _Answer, peer: socket.socket) -> None:
        peer.sendall(_HEAD)
        for _ in range(20):
            await asyncio.sleep(0.002)
            peer.sendall(_chunk(b"data: token\r\n\r\n"))
        peer.sendall(_END)
        assert await _ended(answer) == ("whole",)

    assert _played(scene).events == [b"token"] * 20
    assert 1 <= len(followed) <= 3


@needs_it_compiled
def test_a_thread_that_has_no_memory_left_is_no_whole_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    release = EventStreams.release
    monkeypatch.setattr(
        EventStreams, "release", lambda self, descriptor: release(self, descriptor)._replace(errno=errno.ENOMEM, is_over=True)
    )

    async def scene(connection: HttpConnection, answer: _Answer, peer: socket.socket) -> None:
        await _start(answer, peer)
        with suppress(ConnectionError):  # the thread may have given the connection back, and it is closed
            peer.sendall(_chunk(b"data: token\n\n") + _chunk(b": comment\n\n"))
            await asyncio.sleep(0.02)
            peer.sendall(_END)
        assert await _ended(answer) == ("lost", "the connection was lost: [Errno 12] Cannot allocate memory", False)

    assert _played(scene).events in ([b"first"], [b"first", b"token"])


# ---- when it came


def _sends(peer: socket.socket, count: int, gap_s: float, sent_ns: list[int]) -> threading.Thread:
    """Send events from a thread, as evenly as can be had."""

    def send() -> None:
        for number in range(count):
            time.sleep(gap_s)
            sent_ns.append(now_ns())
            peer.sendall(_chunk(b"data: %d\n\n" % number))

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@needs_it_compiled
@pytest.mark.parametrize("before", [0, 250])  # with the ten that follow, more than are handed on at once
def test_a_loop_that_stands_still_delays_and_joins_nothing(before: int) -> None:
    sent_ns: list[int] = []

    async def scene(connection: HttpConnection, answer: _Answer, peer: socket.socket) -> None:
        await _start(answer, peer)
        peer.sendall(_chunk(b"data: before\n\n") * before)
        await asyncio.sleep(0.05)
        sent_ns.clear()
        sending = _sends(peer, 10, 0.02, sent_ns)
        time.sleep(0.3)  # the loop stands still
        sending.join()
        peer.sendall(_END)
        await _ended(answer)

    for _ in range(_TRIES):  # where the machine had no core for the reader, it may be as late as the loop
        answer = _played(scene)
        late_ns = [arrived_ns - ns for arrived_ns, ns in zip(answer.times_ns[1 + before :], sent_ns, strict=True)]
        assert min(late_ns) >= 0
        if max(late_ns) < _NEAR_NS and sorted(late_ns)[5] < 2_000_000:
            return  # read together, all but the last would be later by multiples of 20 ms
    raise AssertionError(f"late by {late_ns} ns")


_CLIENT = """
import asyncio, sys
import uvloop
from harness.clients.transport import tcp
from harness.clients.transport.event_streams import EventStreams
from harness.clients.transport.http1 import HttpConnection
from harness.clients.transport.tcp import Arrival
from tests.harness.clients.transport.test_event_streams import _Answer, _Pool, _ended

async def main():
    streams, arrival = EventStreams(), Arrival()
    connection = await tcp.connect(lambda: HttpConnection(_Pool(), arrival, streams), "127.0.0.1", int(sys.argv[1]), arrival)
    answer = _Answer(arrival)
    connection.send(b"ask", answer)
    await _ended(answer)
    print(*(event.decode() for event in answer.events), *answer.times_ns)
    streams.close()

uvloop.run(main())
"""


@needs_it_compiled
def test_what_came_while_the_process_stood_still_has_the_kernels_times() -> None:
    sent_ns: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        child = subprocess.Popen(
            [sys.executable, "-c", _CLIENT, str(server.getsockname()[1])], stdout=subprocess.PIPE, text=True
        )
        try:
            peer, _ = server.accept()
            with peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peer.recv(100)
                peer.sendall(_HEAD + _chunk(b"data: first\n\n"))
                time.sleep(0.2)
                peer.sendall(_chunk(b"data: second\n\n"))
                time.sleep(0.1)
                os.kill(child.pid, signal.SIGSTOP)
                for number in range(3):
                    peer.sendall(_chunk(b"data: %d\n\n" % number))
                    sent_ns.append(now_ns())
                    time.sleep(0.1)
                os.kill(child.pid, signal.SIGCONT)
                time.sleep(0.1)
                peer.sendall(_END)
                output = child.communicate(timeout=120)[0].split()
        finally:
            child.kill()
            child.wait()
    events, times_ns = output[: len(output) // 2], [int(word) for word in output[len(output) // 2 :]]
    assert events == ["first", "second", "0", "1", "2"]
    assert all(ns < sent_ns[-1] + _NEAR_NS for ns in times_ns)  # what the kernel joined has the last one's time


# ---- what it needs


def _descriptors_and_threads() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


@pytest.fixture
def nothing_left() -> Iterator[None]:
    descriptors, threads = _descriptors_and_threads()
    yield
    gc.collect()
    deadline_s = time.monotonic() + 30
    after = _descriptors_and_threads()
    while after[1] > threads and time.monotonic() < deadline_s:  # the kernel lists a thread that was joined a little longer
        time.sleep(0.01)
        after = _descriptors_and_threads()
    assert (after[0] <= descriptors, after[1] <= threads) == (True, True)  # what other tests had left may be gone


@needs_it_compiled
def test_nothing_is_left_when_it_is_closed_or_forgotten(nothing_left: None) -> None:
    async def scene(connection: HttpConnection, answer: _Answer, peer: socket.socket) -> None:
        await _start(answer, peer)
        peer.sendall(_chunk(b"data: token\n\n"))
        await asyncio.sleep(0.01)

    async def play() -> None:
        for number in range(20):
            streams = EventStreams()
            await _asking(streams, scene)
            streams.close()
            if number % 2:
                streams.close()  # twice is once

    asyncio.run(play())


@needs_it_compiled
def test_two_hundred_streams_at_once_keep_apart() -> None:
    counts = [50 + number % 7 for number in range(200)]

    async def one(streams: EventStreams, number: int) -> None:
        async def scene(connection: HttpConnection, answer: _Answer, peer: socket.socket) -> None:
            peer.sendall(_HEAD)
            for event in range(counts[number]):
                peer.sendall(_chunk(b"data: %d/%d\n\n" % (number, event)))
                await asyncio.sleep(0.001)
            peer.sendall(_END)
            assert await _ended(answer) == ("whole",)

        answer = await _asking(streams, scene)
        assert answer.events == [b"%d/%d" % (number, event) for event in range(counts[number])]
        assert all(earlier <= later for earlier, later in pairwise(answer.times_ns))

    async def play() -> None:
        streams = EventStreams()
        await asyncio.gather(*(one(streams, number) for number in range(200)))
        streams.close()

    uvloop.run(play())
