"""The order and times of responses, without a socket and, except in the timer's test, without a clock."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress

import pytest

from harness.calibration.null_server.pacing import (
    UNPACED,
    Answer,
    Deliver,
    DueResponses,
    Pace,
    Responses,
    send_joined,
    send_separately,
)
from harness.host.clock import now_ns


class _Wire:
    """A channel that collects the writes; ``room`` is how many more responses it accepts."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.writes: list[bytes] = []
        self.room = room

    def accepts(self, answer: Answer) -> bool:
        if self.room == 0:
            answer.held = True
            return False
        self.room -= 1
        return True

    def write(self, data: bytes | bytearray) -> None:
        self.writes.append(bytes(data))

    def ending(self, answer: Answer) -> bytes:
        return b"END"


def _answer(wire: _Wire, count: int, pace: Pace = UNPACED, received_ns: int = 0) -> Answer:
    responses = Responses(bytearray(8), lambda buffer, ns: struct.pack_into("<q", buffer, 0, ns), b"OPEN", count)
    return Answer(wire, responses, pace, received_ns)


def _stamp(write: bytes) -> int:
    (stamp,) = struct.unpack_from("<q", write.removeprefix(b"OPEN"))
    return int(stamp)


@pytest.mark.parametrize("deliver", [send_separately, send_joined])
def test_nothing_goes_before_it_is_due(deliver: Deliver) -> None:
    wire = _Wire()
    answer = _answer(wire, 3, Pace(100, 10), received_ns=1000)
    sent = []
    for at in (1099, 1100, 1109, 1110, 1119, 1120):
        deliver([answer], at)
        sent.append(len(b"".join(wire.writes)))
    assert sent == [0, 12, 12, 20, 20, 31]
    assert not answer.goes_on


def test_an_answer_opens_once_and_ends_once() -> None:
    wire = _Wire()
    send_separately([_answer(wire, 3)], 0)
    assert [len(write) for write in wire.writes] == [12, 8, 11]
    assert wire.writes[0].startswith(b"OPEN")
    assert wire.writes[2].endswith(b"END")


def test_each_response_alone_is_stamped_by_itself() -> None:
    wire = _Wire()
    before = now_ns()
    send_separately([_answer(wire, 50)], 0)
    stamps = [_stamp(write) for write in wire.writes]
    assert before <= stamps[0]
    assert stamps == sorted(stamps)
    assert stamps[-1] <= now_ns()
    assert len(set(stamps)) > 1


def test_joined_responses_of_one_connection_are_one_write_with_one_stamp() -> None:
    wire, other = _Wire(), _Wire()
    send_joined([_answer(wire, 2), _answer(other, 1), _answer(wire, 1)], 0)
    assert [len(write) for write in (*wire.writes, *other.writes)] == [12 + 11 + 15, 15]
    first, second, third = (wire.writes[0][start : start + 8] for start in (4, 12, 27))
    assert first == second == third


@pytest.mark.parametrize("deliver", [send_separately, send_joined])
def test_what_the_channel_has_no_room_for_waits_for_it(deliver: Deliver) -> None:
    wire = _Wire(room=2)
    answer = _answer(wire, 3)
    deliver([answer], 0)
    assert answer.held
    assert answer.goes_on
    assert len(b"".join(wire.writes)) == len(b"OPEN") + 2 * 8  # two stamps, whose bytes may be any, and no end
    wire.room = 1
    deliver([answer], 0)
    assert b"".join(wire.writes).endswith(b"END")


def test_an_answer_that_comes_whole_comes_when_its_last_token_would_have() -> None:
    assert Pace(100, 10).unstreamed(5) == Pace(140, 0)


def test_a_cancelled_answer_sends_nothing_more() -> None:
    wire = _Wire()
    answer = _answer(wire, 3, Pace(0, 10))
    send_separately([answer], 0)
    answer.cancel()
    send_separately([answer], 100)
    assert len(wire.writes) == 1


def test_many_answers_share_one_timer_and_none_is_early() -> None:
    wires = [_Wire() for _ in range(40)]

    async def serve() -> list[int]:
        due = DueResponses(send_separately)
        running = asyncio.create_task(due.run())
        received = []
        for number, wire in enumerate(wires):
            received.append(now_ns())
            due.add(_answer(wire, 5, Pace((40 - number) * 1_000_000, 2_000_000), received[-1]))  # the later, the earlier due
            await asyncio.sleep(0)
        deadline = now_ns() + 20_000_000_000
        while any(len(wire.writes) < 5 for wire in wires) and now_ns() < deadline:
            await asyncio.sleep(0.005)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return received

    received = asyncio.run(serve())
    for number, (wire, since) in enumerate(zip(wires, received, strict=True)):
        assert len(wire.writes) == 5
        for position, write in enumerate(wire.writes):
            assert _stamp(write) >= since + (40 - number) * 1_000_000 + position * 2_000_000


def test_an_endless_backlog_still_lets_the_loop_read() -> None:
    wire = _Wire()

    async def serve() -> int:
        due = DueResponses(send_separately)
        running = asyncio.create_task(due.run())
        for _ in range(100):
            due.add(_answer(wire, 10_000))
        turns = 0
        while len(wire.writes) < 20_000:
            await asyncio.sleep(0)
            turns += 1
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        return turns

    assert asyncio.run(serve()) >= 4  # of at most 64 answers with 64 responses each
