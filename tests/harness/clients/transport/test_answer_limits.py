"""Answers beyond a limit end as malformed, and the connection's other exchanges go on."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from contextlib import suppress

import pytest
import uvloop

from bench_records.record import Outcome
from harness.clients.answer_limits import AnswerLimits, AnswerTooLongError
from harness.clients.transport import event_streams, http1_pool
from harness.clients.transport.grpc import BadAnswerError, GrpcCaller
from harness.clients.transport.http1_pool import HttpCaller, post_request
from harness.clients.transport.http2_frames import Flag, FrameType, literal_headers
from tests.harness.clients.scripted_http import EVENTS_HEAD, Answered, Peer, Script, chunked, exchange, plain, serving
from tests.harness.clients.transport import http2_peer

_LIMITS = AnswerLimits(max_header_bytes=70_000, max_answer_bytes=1_000_000, max_responses=1_000, max_message_bytes=100_000)
_EVENT = b"data: 1\n\n"
_HEADERS, _ANSWER = "headers are longer than 70,000 bytes", "the answer is longer than 1,000,000 bytes"
_MESSAGE, _RESPONSES = "a response is longer than 100,000 bytes", "the answer is longer than 1,000 responses"
_PLAIN_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunk(body: bytes) -> bytes:
    return chunked(body).removesuffix(b"0\r\n\r\n")


async def _two_answers(script: Script) -> list[Answered]:
    """What a caller gets for two requests, one after the other."""
    async with serving(script) as origin:
        caller = HttpCaller(origin, b"[DONE]", _LIMITS)
        await caller.connect(5.0)
        request = post_request(origin, "/", b"{}", "text/event-stream", {})
        answers = [await exchange(caller, request, 30.0) for _ in range(2)]
        await caller.close()
        return answers


@pytest.fixture(params=[True, False], ids=["compiled", "interpreted"])
def _reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1_pool, "is_compiled", request.param and event_streams.is_compiled)


@pytest.mark.usefixtures("_reader")
@pytest.mark.parametrize(
    ("opening", "part", "problem"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n" * 100, _HEADERS, id="headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 1000, _HEADERS, id="one header"),
        pytest.param(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, _HEADERS, id="status 100"),
        pytest.param(_PLAIN_HEAD + b"0\r\n", b"X-More: 1\r\n" * 100, _HEADERS, id="trailers"),
        pytest.param(_PLAIN_HEAD, _chunk(b"x" * 1000), _MESSAGE, id="body"),
        pytest.param(EVENTS_HEAD, _chunk(_EVENT), _RESPONSES, id="events"),
        pytest.param(EVENTS_HEAD, _chunk(b"data: " + b"x" * 4000 + b"\n\n"), _ANSWER, id="long events"),
        pytest.param(EVENTS_HEAD, _chunk(b": " + b"x" * 4000 + b"\n\n"), _ANSWER, id="comments"),
        pytest.param(EVENTS_HEAD + _chunk(b"data: "), _chunk(b"x" * 1000), _MESSAGE, id="line"),
    ],
)
def test_an_answer_over_http_is_given_up_and_the_next_request_is_answered(opening: bytes, part: bytes, problem: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        if peer.number == 0:
            await peer.send(opening)
            while True:
                await peer.send(part)
        await peer.send(plain(b"well"))

    (_, outcome, message), second = uvloop.run(_two_answers(script))
    assert outcome is Outcome.MALFORMED
    assert problem in message
    assert second == ([b"well"], None, "")


@pytest.mark.usefixtures("_reader")
def test_a_flood_after_the_end_marker_is_given_up_and_the_next_request_is_answered() -> None:
    """The answer is complete, unless the flood exceeds its limits before the time for the end of the message is over."""

    async def script(peer: Peer) -> None:
        await peer.read_request()
        if peer.number == 0:
            await peer.send(EVENTS_HEAD + _chunk(_EVENT) + _chunk(b"data: [DONE]\n\n"))
            while True:
                await peer.send(_chunk(_EVENT) * 10)
        await peer.send(plain(b"well"))

    (bodies, outcome, _), second = uvloop.run(_two_answers(script))
    assert (len(bodies), outcome in (None, Outcome.MALFORMED)) == (1, True)
    assert second == ([b"well"], None, "")


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        pytest.param(http2_peer.prefixed(b"x" * 10), _RESPONSES, id="messages"),
        pytest.param(http2_peer.prefixed(b""), _RESPONSES, id="empty messages"),
        pytest.param(http2_peer.prefixed(b"x" * 10_000), _ANSWER, id="long messages"),
        pytest.param(struct.pack(">BI", 0, 2**32 - 1) + bytes(1000), _MESSAGE, id="a length of 4 GiB"),
        pytest.param(struct.pack(">BI", 0, 2**32 - 1)[:3], _MESSAGE, id="a length of 4 GiB in two parts"),
    ],
)
def test_a_grpc_answer_is_given_up_and_others_on_the_connection_go_on(part: bytes, problem: str) -> None:
    async def script(peer: http2_peer.Peer) -> None:
        await peer.start()
        first = await peer.read_request()
        second = await peer.read_request()
        peer.message(second, b"well")
        with suppress(TimeoutError):
            async with asyncio.timeout(20):
                reset = asyncio.create_task(peer.read(FrameType.RST_STREAM))
                while not reset.done():
                    peer.send(FrameType.DATA, 0, first, part)
                    await peer.writer.drain()
                    await asyncio.sleep(0)
        peer.headers(second, http2_peer.OK, Flag.END_STREAM)

    async def run() -> tuple[object, object]:
        async with http2_peer.peer_at(script) as address:
            caller = GrpcCaller(address, "/service/Method", http2_peer.ONE_CONNECTION, _LIMITS)
            bodies: list[bytes] = []
            flooded = asyncio.create_task(caller.call(b"a", lambda _, arrived: None, 30.0))
            await asyncio.sleep(0)
            other = asyncio.create_task(caller.call(b"b", lambda _, arrived: bodies.extend(arrived), 30.0))
            (failure,) = await asyncio.gather(flooded, return_exceptions=True)
            await other
            await caller.close()
            return failure, bodies

    failure, bodies = asyncio.run(run())
    assert isinstance(failure, AnswerTooLongError)
    assert problem in str(failure)
    assert bodies == [b"well"]


@pytest.mark.parametrize("name_bytes", [1_000, 80_000])
def test_a_header_block_over_grpc_is_given_up(name_bytes: int) -> None:
    async def script(peer: http2_peer.Peer) -> None:
        await peer.start()
        stream = await peer.read_request()
        block = literal_headers([("x-more", "x" * name_bytes)] * (80_000 // name_bytes))
        parts = [block[start : start + 16_000] for start in range(0, len(block), 16_000)]
        for number, part in enumerate(parts):
            last = Flag.END_HEADERS if number == len(parts) - 1 else 0
            peer.send(FrameType.CONTINUATION if number else FrameType.HEADERS, last, stream, part)

    async def run() -> http2_peer.Answer:
        async with http2_peer.peer_at(script) as address:
            caller = GrpcCaller(address, "/service/Method", http2_peer.ONE_CONNECTION, _LIMITS)
            answer = await http2_peer.answer_of(caller, b"a")
            await caller.close()
            return answer

    answer = asyncio.run(run())
    assert isinstance(answer, BadAnswerError)
    assert _HEADERS in str(answer)


def test_pings_whose_answers_are_not_read_end_the_connection() -> None:
    async def script(peer: http2_peer.Peer) -> None:
        await peer.start()
        await peer.read_request()
        while True:
            peer.writer.write((struct.pack(">HBBBI", 0, 8, 6, 0, 0) + bytes(8)) * 1000)

            await peer.writer.drain()

    answers = http2_peer.calls(script, [b"a"], timeout_s=30.0)
    assert "pings" in str(answers[0])


@pytest.mark.skipif(not event_streams.is_compiled, reason="needs the compiled reader")
def test_a_flood_is_not_read_faster_than_the_loop_takes_it() -> None:
    """The thread stops at 1 MiB while Python's loop is busy, and goes on when that has taken the events."""
    event, count = _chunk(b"data: " + b"x" * 2033 + b"\n\n"), 10_000
    assert 65_536 % len(event) == 0  # else a full read ends within an event, and gives the stream back

    class _Owner:
        def on_given_back(self) -> None:
            pass

    async def run() -> int:
        streams = event_streams.EventStreams()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        sent_bytes = 0

        def flood() -> None:
            nonlocal sent_bytes
            with suppress(OSError):
                for _ in range(count):
                    theirs.sendall(event)
                    sent_bytes += len(event)

        thread = threading.Thread(target=flood)
        streams.follow(ours.fileno(), 0, _Owner())
        thread.start()
        deadline_s = time.monotonic() + 120
        seen_bytes = -1
        # The loop does nothing until the peer, which has sent more than the limit, can send no more.
        while seen_bytes < max(2**20, sent_bytes) and time.monotonic() < deadline_s:
            seen_bytes = sent_bytes
            time.sleep(0.5)
        followed = streams.release(ours.fileno())
        ours.close()
        thread.join()
        theirs.close()
        streams.close()
        # The reader counts its own 20 bytes of each event too, and this is at least as much as it counted.
        return sum(len(event) + 20 for event in followed.events) + len(followed.rest)

    assert 2**20 <= asyncio.run(run()) < 2**20 + 2**18
