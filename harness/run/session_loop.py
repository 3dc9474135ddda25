"""The send loop of sessions: first turns at their times, each later turn at its due time after the answer that it waits for."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Sequence

from harness.host.clock import PreciseSleeper, now_ns
from harness.run.exchanges import Exchanges
from harness.run.routing import Payload
from harness.run.turn_payloads import TurnPayloads
from workloads.schedule.schedule import SessionPart, turn_due_ns


async def send_sessions(
    part: SessionPart, payloads: Sequence[Payload], exchanges: Exchanges, sleeper: PreciseSleeper, turns: TurnPayloads
) -> None:
    """Send the requests of whole sessions. A turn after a failed one is not sent: there is no answer for it to follow.

    A turn that joins others waits for the answers of all, and is due after the last of them.
    """

    def is_over(due_ns: int, place: int) -> bool:
        return part.parents[place] is None and exchanges.is_over(due_ns)  # sessions that have begun come to their end

    agenda = Agenda(sleeper, exchanges.start_ns, is_over)
    waits = _Waits(part)
    for place, (parent, offset_ns) in enumerate(zip(part.parents, part.offsets_ns, strict=True)):
        if parent is None:
            agenda.add(offset_ns or 0, place)

    ready = {place: payloads[place] for place, parent in enumerate(part.parents) if parent is None}

    async def one(place: int, due_ns: int) -> None:
        exchange = await exchanges.carry_out(part.indices[place], due_ns, due_ns, ready.pop(place))
        for later in waits.following[place]:
            payload = turns.behind(exchange, place, later)
            if payload is not None:
                ready[later] = payload
                answered(later, exchange.done_ns)
        if waits.joining[place] and turns.answered(exchange):
            for later in waits.joining[place]:
                answered(later, exchange.done_ns)
        agenda.has_ended()

    def answered(later: int, done_ns: int) -> None:
        last_ns = waits.last_ns(later, done_ns)
        if last_ns is not None:
            agenda.add(turn_due_ns(part.offsets_ns[later], part.think_times_ns[later], last_ns), later)

    while (entry := await agenda.next()) is not None and not exchanges.stopped:
        due_ns, place = entry
        exchanges.spawn(one(place, due_ns))


class _Waits:
    """Which turns wait for each one: ``following`` have it as their parent, ``joining`` wait for it, too. Shape [requests]."""

    def __init__(self, part: SessionPart) -> None:
        self.following: list[list[int]] = [[] for _ in part.indices]
        self.joining: list[list[int]] = [[] for _ in part.indices]
        for place, parent in enumerate(part.parents):
            if parent is not None:
                self.following[parent].append(place)
        for place, joined in enumerate(part.joins):
            for other in joined:
                self.joining[other].append(place)
        self._missing = {place: 1 + len(joined) for place, joined in enumerate(part.joins) if joined}
        self._last_ns = dict.fromkeys(self._missing, 0)

    def last_ns(self, later: int, done_ns: int) -> int | None:
        """One of the answers that the turn ``later`` waits for ended at ``done_ns``: when the last did, None before."""
        if later not in self._missing:
            return done_ns
        self._missing[later] -= 1
        self._last_ns[later] = max(self._last_ns[later], done_ns)
        return None if self._missing[later] else self._last_ns[later]


class Agenda:
    """Turns by their due times, to which those that run add others. Times are in ns since the run's start, ``start_ns``.

    A turn at a place of which ``is_over`` is true at its due time is left out.
    """

    def __init__(self, sleeper: PreciseSleeper, start_ns: int, is_over: Callable[[int, int], bool]) -> None:
        self._sleeper = sleeper
        self._start_ns = start_ns
        self._is_over = is_over
        self._entries: list[tuple[int, int]] = []
        self._running = 0
        self._changed: asyncio.Future[None] | None = None

    def add(self, due_ns: int, place: int) -> None:
        """Enter the turn at ``place``; one that is due before all others ends the sleep for them."""
        heapq.heappush(self._entries, (due_ns, place))
        if self._entries[0] == (due_ns, place):
            self._sleeper.wake()
        self._notify()

    def has_ended(self) -> None:
        """One turn that ``next`` returned has ended, and has added what follows it."""
        self._running -= 1
        self._notify()

    async def next(self) -> tuple[int, int] | None:
        """Wait for the due time of the next turn; returns it with its place. None: no turn is left, and none runs."""
        while self._entries or self._running:
            if not self._entries:
                self._changed = asyncio.get_running_loop().create_future()
                await self._changed
                continue
            if self._is_over(*self._entries[0]):
                heapq.heappop(self._entries)
                continue
            due_ns = self._entries[0][0]
            await self._sleeper.until(self._start_ns + due_ns)
            is_due = now_ns() >= self._start_ns + self._entries[0][0]  # else an earlier one was added meanwhile
            if is_due and not self._is_over(*self._entries[0]):
                self._running += 1
                return heapq.heappop(self._entries)
        return None

    def _notify(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
