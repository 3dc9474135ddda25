"""The send loops, one for each load mode: each sends requests at absolute times, and ends when no more are to be sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence

from harness.host.clock import PreciseSleeper, now_ns
from harness.recording.schedule_summary import user_free_ns
from harness.run.exchanges import Exchanges
from harness.run.routing import Payload
from harness.run.session_loop import send_sessions
from harness.run.turn_payloads import TurnPayloads
from workloads.schedule.schedule import AnyPart, ClosedPart, OpenPart, SessionPart


async def send(
    part: AnyPart, payloads: Sequence[Payload], exchanges: Exchanges, sleeper: PreciseSleeper, turns: TurnPayloads
) -> None:
    """Send a worker's part by its load mode; ``payloads`` match its indices. Cancel it to stop sending.

    ``turns`` has the payloads of sessions' later turns, for which it decodes answers; no other mode decodes any.
    """
    match part:
        case OpenPart(max_concurrency=None):
            await _send_on_schedule(part, payloads, exchanges, sleeper)
        case OpenPart(max_concurrency=int(ceiling)):
            await _send_below_ceiling(part, ceiling, payloads, exchanges, sleeper)
        case ClosedPart():
            await _send_as_users(part, payloads, exchanges, sleeper)
        case SessionPart():
            await send_sessions(part, payloads, exchanges, sleeper, turns)


async def _send_on_schedule(part: OpenPart, payloads: Sequence[Payload], exchanges: Exchanges, sleeper: PreciseSleeper) -> None:
    """Send each request at its time, however many are in flight; a late one at once."""

    async def one(index: int, due_ns: int, payload: Payload) -> None:
        await exchanges.carry_out(index, due_ns, due_ns, payload)

    for index, due_ns, payload in zip(part.indices, part.offsets_ns, payloads, strict=True):
        await sleeper.until(exchanges.start_ns + due_ns)
        if exchanges.stopped or exchanges.is_over(due_ns):
            return
        exchanges.spawn(one(index, due_ns, payload))


async def _send_below_ceiling(
    part: OpenPart, ceiling: int, payloads: Sequence[Payload], exchanges: Exchanges, sleeper: PreciseSleeper
) -> None:
    """Send each request at its time or, where ``ceiling`` are in flight, when one of them has ended; first in, first out."""
    room = Room(ceiling)

    async def one(index: int, due_ns: int, released_ns: int, payload: Payload) -> None:
        room.give_back((await exchanges.carry_out(index, due_ns, released_ns, payload)).done_ns)

    for index, due_ns, payload in zip(part.indices, part.offsets_ns, payloads, strict=True):
        await sleeper.until(exchanges.start_ns + due_ns)
        if exchanges.is_over(due_ns):
            return
        free_since_ns = await room.take()
        if exchanges.stopped:
            return
        exchanges.spawn(one(index, due_ns, max(due_ns, free_since_ns), payload))


async def _send_as_users(part: ClosedPart, payloads: Sequence[Payload], exchanges: Exchanges, sleeper: PreciseSleeper) -> None:
    """Start each user at its time; a user takes a request, waits for its end, and takes the next one that is left."""
    requests = zip(part.indices, payloads, strict=True)
    for start_ns in part.user_starts_ns:
        await sleeper.until(exchanges.start_ns + start_ns)
        if exchanges.stopped or exchanges.is_over(start_ns):
            return
        exchanges.spawn(_user(start_ns, part.end_ns, requests, exchanges))


async def _user(start_ns: int, end_ns: int | None, requests: Iterator[tuple[int, Payload]], exchanges: Exchanges) -> None:
    due_ns = start_ns
    while (
        not exchanges.stopped
        and not exchanges.is_over(due_ns)
        and (end_ns is None or due_ns < end_ns)
        and (taken := next(requests, None)) is not None
    ):
        index, payload = taken
        exchange = await exchanges.carry_out(index, due_ns, due_ns, payload)
        due_ns = user_free_ns(exchange.done_ns, exchange.failure)
        while due_ns > exchange.done_ns and (left_ns := exchanges.start_ns + due_ns - now_ns()) > 0:
            await asyncio.sleep(left_ns / 1e9)  # a loop rounds to milliseconds, and may end it before the time


class Room:
    """Room for ``size`` requests in flight. A single loop takes it, so that requests keep their order."""

    def __init__(self, size: int) -> None:
        self._free_since_ns = deque([0] * size)
        self._waiting: asyncio.Future[None] | None = None

    async def take(self) -> int:
        """Wait until there is room; returns since when there has been, in ns since the run's start."""
        if not self._free_since_ns:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._free_since_ns.popleft()

    def give_back(self, done_ns: int) -> None:
        self._free_since_ns.append(done_ns)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
