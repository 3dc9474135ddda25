"""Several connections to one server: distribution of requests, waits, reconnection, and counts."""

from __future__ import annotations

import asyncio
import random
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc
import pytest

from harness.clients.protocol import ConnectionUsage
from harness.clients.transport.grpc import CallFailedError, GrpcCaller, NoConnectionMadeError
from harness.clients.transport.http2_frames import ErrorCode, Flag, FrameType, Setting
from harness.clients.transport.http2_pool import ConnectionLimits
from harness.host.clock import now_ns
from tests.harness.clients.transport.http2_peer import Peer, Script, answer_of, peer_at


class _Server:
    """A server that answers nothing until it is released; ``held`` are its requests, in their order."""

    def __init__(self, *settings: tuple[int, int]) -> None:
        self.peers: list[Peer] = []
        self.held: list[tuple[Peer, int, bytes]] = []
        self.most: Counter[Peer] = Counter()  # at once, by connection
        self.left: set[Peer] = set()  # connections that the client has closed
        self.acknowledged = 0  # settings
        self._settings = settings
        self._changed = asyncio.Condition()

    async def serve(self, peer: Peer) -> None:
        await peer.start(*self._settings)
        self.peers.append(peer)
        await self._notify()
        try:
            await self._hold(peer)
        finally:
            self.left.add(peer)

    async def _hold(self, peer: Peer) -> None:
        body: dict[int, bytes] = {}
        while True:
            flags, stream, payload = await peer.read(FrameType.DATA, FrameType.SETTINGS)
            if stream == 0:
                self.acknowledged += flags == Flag.ACK
                continue
            body[stream] = body.get(stream, b"") + payload
            if flags & Flag.END_STREAM:
                self.held.append((peer, stream, body.pop(stream)[5:]))
                self.most[peer] = max(self.most[peer], sum(holder is peer for holder, _, _ in self.held))
                await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def holds(self, count: int) -> None:
        """Wait until ``count`` requests are held."""
        async with asyncio.timeout(60.0), self._changed:
            await self._changed.wait_for(lambda: len(self.held) >= count)

    async def has_connections(self, count: int) -> None:
        async with asyncio.timeout(60.0), self._changed:
            await self._changed.wait_for(lambda: len(self.peers) >= count)

    def answer(self, number: int = 0) -> None:
        """Answer a held request with its own body."""
        peer, stream, body = self.held.pop(number)
        peer.answer(stream, body)

    def answer_all(self) -> None:
        while self.held:
            self.answer()


@asynccontextmanager
async def _calling(script: Script, limits: ConnectionLimits) -> AsyncIterator[GrpcCaller]:
    async with peer_at(script) as address:
        caller = GrpcCaller(address, "/service/Method", limits)
        try:
            yield caller
        finally:
            await caller.close()


def _ask(caller: GrpcCaller, *bodies: bytes, timeout_s: float = 20.0) -> list[asyncio.Task[list[bytes] | CallFailedError]]:
    return [asyncio.create_task(answer_of(caller, body, timeout_s)) for body in bodies]


def _numbered(count: int) -> list[bytes]:
    return [str(number).encode() for number in range(count)]


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60.0):
        while not holds():
            await asyncio.sleep(0.005)


def _run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 240.0))  # type: ignore[arg-type]


# ---- dealing


def _usage(caller: GrpcCaller, since_ns: int) -> ConnectionUsage:
    """Without what depends on the host: the first time stamps that its kernel is requested to make come a little later."""
    return replace(caller.usage(since_ns), unstamped_reads=0)


def test_requests_go_to_the_connection_with_the_fewest_open_streams() -> None:
    async def test() -> None:
        server = _Server()
        async with _calling(server.serve, ConnectionLimits(4, 4)) as caller:
            await caller.connect(5.0)
            first = _ask(caller, *_numbered(8))
            await server.holds(8)
            assert sorted(server.most.values()) == [2, 2, 2, 2]
            emptied = server.held[0][0]
            for number in reversed(range(8)):
                if server.held[number][0] is emptied:
                    server.answer(number)
            await _until(lambda: sum(call.done() for call in first) == 2)
            second = _ask(caller, b"a", b"b")
            await server.holds(8)
            assert [holder is emptied for holder, _, _ in server.held[-2:]] == [True, True]
            server.answer_all()
            assert await asyncio.gather(*first, *second) == [[body] for body in (*_numbered(8), b"a", b"b")]
            assert _usage(caller, 0) == ConnectionUsage(per_worker=4, opened=4)

    _run(test)


def test_two_thousand_requests_in_flight_on_one_connection_do_not_mix() -> None:
    async def test() -> None:
        server = _Server()
        async with _calling(server.serve, ConnectionLimits(1, 1)) as caller:
            bodies = _numbered(2_000)
            calls = _ask(caller, *bodies, timeout_s=200.0)
            await server.holds(2_000)
            random.Random(0).shuffle(server.held)
            server.answer_all()
            assert await asyncio.gather(*calls) == [[body] for body in bodies]
            assert caller.usage(0).opened == 1

    _run(test)


# ---- the server's limit of streams


def test_server_limit_is_kept_and_every_wait_is_counted() -> None:
    async def test() -> None:
        server = _Server((Setting.MAX_CONCURRENT_STREAMS, 3))
        async with _calling(server.serve, ConnectionLimits(2, 2)) as caller:
            await caller.connect(5.0)
            begun_ns = now_ns()
            calls = _ask(caller, *_numbered(10))
            await server.holds(6)
            await asyncio.sleep(0.05)
            assert len(server.held) == 6
            for answered in range(1, 11):
                server.answer()
                await _until(lambda answered=answered: sum(call.done() for call in calls) == answered)  # type: ignore[misc]
            assert await asyncio.gather(*calls) == [[body] for body in _numbered(10)]
            assert max(server.most.values()) == 3
            usage = caller.usage(0)
            assert (usage.per_worker, usage.opened, usage.limit_reached) == (2, 2, 4)
            assert usage.longest_wait_ns is not None
            assert 50_000_000 <= usage.longest_wait_ns <= now_ns() - begun_ns
            assert usage.longest_wait_ns * 4 >= usage.total_wait_ns >= 4 * 50_000_000

    _run(test)


def test_a_request_says_how_long_it_waited_for_room() -> None:
    """The wait is the client's own: it must not look as if the server had taken it."""

    async def test() -> None:
        server = _Server((Setting.MAX_CONCURRENT_STREAMS, 1))
        async with _calling(server.serve, ConnectionLimits(1, 1)) as caller:
            await caller.connect(5.0)
            at_once, later = (
                asyncio.create_task(caller.call(body, lambda _, arrived: None, 20.0)) for body in (b"one", b"two")
            )
            begun_ns = now_ns()
            await server.holds(1)
            await asyncio.sleep(0.05)
            server.answer()
            await server.holds(1)
            server.answer()
            assert (await at_once).connect_ns is None
            waited_ns = (await later).connect_ns
            assert waited_ns is not None
            assert 50_000_000 <= waited_ns <= now_ns() - begun_ns

    _run(test)


def test_a_request_says_how_long_it_waited_for_a_connection() -> None:
    async def test() -> None:
        server = _Server()
        async with _calling(server.serve, ConnectionLimits(1, 1)) as caller:
            call = asyncio.create_task(caller.call(b"one", lambda _, arrived: None, 20.0))
            await server.holds(1)
            server.answer()
            assert ((await call).connect_ns or 0) > 0
            assert caller.usage(0).limit_reached == 0

    _run(test)


def test_waiting_requests_are_sent_first_come_first_served() -> None:
    async def test() -> None:
        server = _Server((Setting.MAX_CONCURRENT_STREAMS, 1))
        async with _calling(server.serve, ConnectionLimits(1, 1)) as caller:
            calls = _ask(caller, *_numbered(20))
            order = []
            for _ in calls:
                await server.holds(1)
                order.append(server.held[0][2])
                server.answer()
            assert order == _numbered(20)
            await asyncio.gather(*calls)

    _run(test)


def test_further_connections_are_opened_for_what_would_wait() -> None:
    async def test() -> None:
        server = _Server((Setting.MAX_CONCURRENT_STREAMS, 2))
        async with _calling(server.serve, ConnectionLimits(1, 3)) as caller:
            await caller.connect(5.0)
            calls = _ask(caller, *_numbered(8))
            await server.holds(6)
            assert sorted(server.most.values()) == [2, 2, 2]
            await asyncio.sleep(0.05)
            assert (len(server.peers), len(server.held)) == (3, 6)  # no more than three may be opened
            for answered in range(1, 9):
                server.answer()
                await _until(lambda answered=answered: sum(call.done() for call in calls) == answered)  # type: ignore[misc]
            assert await asyncio.gather(*calls) == [[body] for body in _numbered(8)]
            usage = caller.usage(0)
            assert (usage.opened, usage.limit_reached) == (3, 6)

    _run(test)


def test_many_requests_in_flight_have_connections_of_their_own_from_the_start() -> None:
    async def test() -> None:
        server = _Server()
        async with _calling(server.serve, ConnectionLimits(2, 5, streams_each=3)) as caller:
            await caller.connect(5.0)
            await caller.prepare(12)
            await server.has_connections(4)
            calls = _ask(caller, *_numbered(12))
            await server.holds(12)
            assert sorted(server.most.values()) == [3, 3, 3, 3]
            await caller.prepare(1000)  # no more than five may be opened
            assert _usage(caller, 0) == ConnectionUsage(per_worker=5, opened=5)
            server.answer_all()
            await asyncio.gather(*calls)

    _run(test)


def test_connections_are_added_while_each_has_many_streams() -> None:
    async def test() -> None:
        server = _Server()
        async with _calling(server.serve, ConnectionLimits(1, 3, streams_each=2)) as caller:
            await caller.connect(5.0)
            calls = _ask(caller, *_numbered(2))
            await server.holds(2)
            for number, opened in ((3, 2), (6, 3), (12, 3)):
                calls += _ask(caller, *_numbered(number - len(calls)))
                await server.holds(number)
                await _until(lambda opened=opened: caller.usage(0).opened == opened)  # type: ignore[misc]
            assert _usage(caller, 0) == ConnectionUsage(per_worker=1, opened=3)
            server.answer_all()
            await asyncio.gather(*calls)

    _run(test)


def test_connections_that_the_server_refuses_do_not_prevent_a_run() -> None:
    async def test() -> None:
        server = _Server()
        accepted = 0

        async def serve(peer: Peer) -> None:
            nonlocal accepted
            accepted += 1
            if accepted > 2:
                peer.writer.close()
                return
            await server.serve(peer)

        async with _calling(serve, ConnectionLimits(1, 8, streams_each=1)) as caller:
            await caller.connect(5.0)
            await caller.prepare(4)
            calls = _ask(caller, *_numbered(4))
            await server.holds(4)
            assert _usage(caller, 0) == ConnectionUsage(per_worker=2, opened=2)
            server.answer_all()
            await asyncio.gather(*calls)

    _run(test)


def test_connection_that_cannot_be_added_leaves_requests_waiting_for_their_turn() -> None:
    async def test() -> None:
        server = _Server((Setting.MAX_CONCURRENT_STREAMS, 1))
        accepted = 0

        async def serve(peer: Peer) -> None:
            nonlocal accepted
            accepted += 1
            if accepted > 1:
                peer.writer.close()
                return
            await server.serve(peer)

        async with _calling(serve, ConnectionLimits(1, 4)) as caller:
            await caller.connect(5.0)
            calls = _ask(caller, *_numbered(3))
            while accepted == 1:  # the second connection, which the server closes
                await asyncio.sleep(0.01)
            for _ in calls:
                await server.holds(1)
                server.answer()
            assert await asyncio.gather(*calls) == [[body] for body in _numbered(3)]
            assert caller.usage(0).opened == 1

    _run(test)


def test_waits_before_the_run_do_not_count() -> None:
    async def test() -> None:
        server = _Server((Setting.MAX_CONCURRENT_STREAMS, 1))
        async with _calling(server.serve, ConnectionLimits(1, 1)) as caller:
            for expected in (1, 2):
                calls = _ask(caller, *_numbered(2))
                for _ in calls:
                    await server.holds(1)
                    server.answer()
                await asyncio.gather(*calls)
                assert caller.usage(0).limit_reached == expected
                assert _usage(caller, now_ns()) == ConnectionUsage(per_worker=1, opened=1)

    _run(test)


def test_waiting_counts_against_the_time_allowed_and_what_has_none_left_is_not_sent() -> None:
    async def test() -> None:
        server = _Server((Setting.MAX_CONCURRENT_STREAMS, 1))
        async with _calling(server.serve, ConnectionLimits(1, 1)) as caller:
            (first,) = _ask(caller, b"first")
            await server.holds(1)
            for failure in await asyncio.gather(*_ask(caller, *_numbered(3), timeout_s=0.2)):
                assert isinstance(failure, CallFailedError)
                assert failure.code is grpc.StatusCode.DEADLINE_EXCEEDED
            (last,) = _ask(caller, b"last")
            server.answer()
            await server.holds(1)
            assert server.held[0][2] == b"last"
            server.answer()
            assert await asyncio.gather(first, last) == [[b"first"], [b"last"]]
            usage = caller.usage(0)
            assert usage.limit_reached == 4
            assert usage.longest_wait_ns is not None
            assert usage.longest_wait_ns >= 190_000_000

    _run(test)


def test_limit_that_changes_during_the_run_is_kept() -> None:
    async def test() -> None:
        server = _Server()
        async with _calling(server.serve, ConnectionLimits(1, 1)) as caller:
            calls = _ask(caller, *_numbered(3))
            await server.holds(3)
            (peer,) = server.peers
            peer.settings((Setting.MAX_CONCURRENT_STREAMS, 1))
            await _until(lambda: server.acknowledged == 2)
            calls += _ask(caller, b"waits")
            server.answer()
            server.answer()
            await _until(lambda: sum(call.done() for call in calls) == 2)
            await asyncio.sleep(0.05)
            assert [body for _, _, body in server.held] == [b"2"]  # one is open, and one is allowed
            peer.settings((Setting.MAX_CONCURRENT_STREAMS, 2))
            await server.holds(2)
            server.answer_all()
            assert await asyncio.gather(*calls) == [[body] for body in (*_numbered(3), b"waits")]

    _run(test)


# ---- losing and making connections


def test_lost_connection_fails_its_own_requests_alone_and_is_made_again() -> None:
    async def test() -> None:
        server = _Server()
        async with _calling(server.serve, ConnectionLimits(2, 2)) as caller:
            await caller.connect(5.0)
            calls = _ask(caller, *_numbered(4))
            await server.holds(4)
            lost = server.peers[0]
            cut = {body for peer, _, body in server.held if peer is lost}
            lost.writer.transport.abort()
            server.held = [held for held in server.held if held[0] is not lost]
            await _until(lambda: sum(call.done() for call in calls) == 2)
            calls += _ask(caller, b"next")
            await server.has_connections(3)
            await server.holds(3)
            server.answer_all()
            for body, answer in zip((*_numbered(4), b"next"), await asyncio.gather(*calls), strict=True):
                if body in cut:
                    assert isinstance(answer, CallFailedError)
                    assert not isinstance(answer, NoConnectionMadeError)
                    assert answer.code is grpc.StatusCode.UNAVAILABLE
                else:
                    assert answer == [body]
            assert len(cut) == 2
            assert caller.usage(0).opened == 3

    _run(test)


def test_requests_that_were_not_sent_when_the_connection_was_lost_go_on_the_next() -> None:
    async def test() -> None:
        server = _Server((Setting.MAX_CONCURRENT_STREAMS, 1))
        async with _calling(server.serve, ConnectionLimits(1, 1)) as caller:
            sent, *waiting = _ask(caller, *_numbered(3))
            await server.holds(1)
            server.peers[0].writer.transport.abort()
            server.held.clear()
            assert isinstance(await sent, CallFailedError)
            for _ in waiting:
                await server.holds(1)
                server.answer()
            assert await asyncio.gather(*waiting) == [[b"1"], [b"2"]]
            assert caller.usage(0).opened == 2

    _run(test)


def test_server_that_goes_away_finishes_what_it_has_while_the_next_request_goes_elsewhere() -> None:
    async def test() -> None:
        server = _Server()
        async with _calling(server.serve, ConnectionLimits(1, 1)) as caller:
            (old,) = _ask(caller, b"old")
            await server.holds(1)
            leaving = server.peers[0]
            leaving.send(FrameType.GOAWAY, 0, 0, struct.pack(">II", 1, ErrorCode.NO_ERROR) + b"restarting")
            leaving.send(FrameType.PING, 0, 0, bytes(8))
            await asyncio.sleep(0.05)
            (new,) = _ask(caller, b"new")
            await server.holds(2)
            assert server.held[1][0] is not leaving
            server.answer_all()
            assert await asyncio.gather(old, new) == [[b"old"], [b"new"]]
            await _until(lambda: server.left == {leaving})  # the client closes what has become of no use
            assert caller.usage(0).opened == 2

    _run(test)


@pytest.mark.parametrize("speaks", ["nothing", "half a frame"])
def test_server_that_never_sends_its_settings_cannot_be_connected_to(speaks: str) -> None:
    async def serve(peer: Peer) -> None:
        if speaks == "half a frame":
            peer.writer.write(bytes(5))

    async def test() -> None:
        async with _calling(serve, ConnectionLimits(2, 2)) as caller:
            with pytest.raises(NoConnectionMadeError, match=r"no connection within 0\.2 s"):
                await caller.connect(0.2)
            failures = await asyncio.gather(*_ask(caller, b"one", b"two", timeout_s=0.3))
            assert all(isinstance(failure, NoConnectionMadeError) for failure in failures)
            assert caller.usage(0).opened == 0

    _run(test)


def test_connecting_fails_where_one_of_several_connections_does() -> None:
    async def test() -> None:
        server = _Server()
        begun = 0

        async def serve(peer: Peer) -> None:
            nonlocal begun
            begun += 1
            if begun == 2:
                peer.writer.close()
                return
            await server.serve(peer)

        async with _calling(serve, ConnectionLimits(3, 3)) as caller:
            with pytest.raises(NoConnectionMadeError, match=r"closed the connection|was lost"):
                await caller.connect(5.0)

    _run(test)
