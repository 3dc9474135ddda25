"""The exchanges of a worker: sends a request, collects the responses, writes the journal. The load loops decide when.

Here a request is its index, its times and its bytes; a response is a time stamp and its bytes. Nothing is parsed, except the
answers that are to be cancelled with a certain token (``cancellations.py``).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from bench_records.record import Outcome
from harness.clients.answer_limits import AnswerTooLongError
from harness.clients.protocol import AnswerEnd, ExchangeFailedError, Exchanging, OnResponses
from harness.host.clock import now_ns
from harness.journal.worker_journal import Ended, Exchange
from harness.run.cancellations import PlannedCancellation
from harness.run.routing import Payload, Router
from harness.run.shared_state import NEVER_NS, Command, WorkerControl
from harness.run.token_limits import AtOnce, TokenWatch


class LoopSlots:
    """One slot in each iteration of the event loop, granted first come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False  # the slot of this iteration

    async def acquire(self) -> None:
        """Wait for a free slot; return at once where that of this iteration is free."""
        loop = asyncio.get_running_loop()
        if self._is_taken:
            granted = loop.create_future()
            self._waiting.append(granted)
            await granted
        else:
            self._is_taken = True
            loop.call_soon(self._grant_next)

    def _grant_next(self) -> None:
        while self._waiting:
            granted = self._waiting.popleft()
            if not granted.done():  # a waiting task that was cancelled needs no slot
                granted.set_result(None)
                asyncio.get_running_loop().call_soon(self._grant_next)
                return
        self._is_taken = False


class ExchangeWriter(Protocol):
    """Where ended exchanges go."""

    def append(self, exchange: Exchange, /) -> None:
        """Raises OSError where it cannot be written."""
        ...


@dataclass(frozen=True, slots=True)
class ExchangeLimits:
    """When exchanges end at the latest: each after ``timeout_s``, some by a planned cancellation, by index of the request, and
    with a ``watch`` those whose tokens come too late.
    """

    timeout_s: float
    cancellations: Mapping[int, PlannedCancellation] = field(default_factory=dict)
    watch: TokenWatch | None = None


class Exchanges:
    """Carries out a worker's exchanges and writes them to the journal. ``start_ns`` is the run's start on ``now_ns``.

    ``on_unwritten`` is called once, with the error of the first exchange that could not be written.
    """

    def __init__(
        self,
        router: Router,
        journal: ExchangeWriter,
        control: WorkerControl,
        start_ns: int,
        limits: ExchangeLimits,
        on_unwritten: Callable[[OSError], None],
    ) -> None:
        self.start_ns = start_ns
        self._router = router
        self._journal = journal
        self._control = control
        self._limits = limits
        self._tasks: set[asyncio.Task[None]] = set()
        self._write_slots = LoopSlots()
        self._on_unwritten = on_unwritten
        self._unwritten: list[int] = []
        self._reason: str | None = None  # for sending nothing more, where it is not the command

    @property
    def stopped(self) -> bool:
        """Whether nothing more is to be sent."""
        return self._control.command is not Command.RUN or self._reason is not None

    def is_over(self, due_ns: int) -> bool:
        """Whether a rule has ended the run before ``due_ns``."""
        return due_ns >= self._control.end_ns

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run ``work``, which carries out exchanges, as a task that ``finish`` awaits."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def carry_out(self, index: int, due_ns: int, released_ns: int, payload: Payload) -> Exchange:
        """Send one request now, wait for its end, write the exchange to the journal; returns it."""
        response_ns: list[int] = []
        bodies: list[bytes] = []
        start_ns = self.start_ns

        def on_responses(times_ns: Sequence[int], arrived: Sequence[bytes]) -> None:
            if not bodies:
                self._control.count_answered()
            if len(times_ns) == 1:  # as it usually is where they are read by the loop
                response_ns.append(times_ns[0] - start_ns)
                bodies.append(arrived[0])
            else:
                response_ns.extend([time_ns - start_ns for time_ns in times_ns])
                bodies.extend(arrived)

        failure: Outcome | None = None
        problem: str | None = None
        end: AnswerEnd | None = None
        self._control.count_sent()
        target = self._router.choose(payload)
        sent_ns = now_ns() - self.start_ns
        try:
            end = await self._exchange(index, target, payload.for_target(target), on_responses)
            problem = None if end is None else end.missing
        except ExchangeFailedError as broken:
            failure, problem, end = broken.outcome, str(broken), broken.end
            if isinstance(broken, AnswerTooLongError):  # its bytes must fill neither the disk nor the recorder's memory
                response_ns.clear()
                bodies.clear()
        except asyncio.CancelledError:
            failure, problem = Outcome.CANCELLED, "the run was stopped"
        except Exception as error:  # a fault of the client's own: recorded as such, and never silent
            failure, problem = Outcome.LOST, f"the client failed: {error!r}"
        done_ns = now_ns() - self.start_ns
        self._router.has_ended(target)
        _, connect_ns, router_ns, written_ns, head_ns = end or AnswerEnd()
        exchange = Exchange(
            index, due_ns, released_ns, sent_ns, done_ns, response_ns, bodies, failure, problem, connect_ns, router_ns, target,
            None if written_ns is None else written_ns - start_ns, None if head_ns is None else head_ns - start_ns,
        )  # fmt: skip
        # Writing an exchange takes 0.1 ms, and a user's next request as long. Where many end together, one is written in each
        # iteration of the loop, so that other work does not wait for all of them. An exchange that is cancelled here is
        # written at once: it has ended, and since ``stopped`` is true by then, no further one is sent.
        with suppress(asyncio.CancelledError):
            await self._write_slots.acquire()
        self._write(exchange)
        if failure is not None:
            await asyncio.sleep(0)  # it may have failed without a wait, and a user's retries must not block the loop
        return exchange

    async def _exchange(self, index: int, target: int, payload: bytes, on_responses: OnResponses) -> AnswerEnd | None:
        """As ``Exchanging.exchange``; the ExchangeFailedError of a request that was cancelled as planned is WITHDRAWN."""
        connection, watch = self._router.connection(target), self._limits.watch
        if watch is None:
            return await self._unwatched(connection, index, payload, on_responses)
        at_once = AtOnce(connection)
        return await watch.carry_out(lambda watched: self._unwatched(at_once, index, payload, watched), on_responses)

    async def _unwatched(
        self, connection: Exchanging, index: int, payload: bytes, on_responses: OnResponses
    ) -> AnswerEnd | None:
        """The same without the limits of tokens."""
        planned, timeout_s = self._limits.cancellations.get(index), self._limits.timeout_s
        if planned is None:
            return await connection.exchange(payload, on_responses, timeout_s)
        return await planned.carry_out(connection, payload, on_responses, timeout_s)

    async def finish(self) -> Ended:
        """Wait until every spawned exchange has ended; returns the journal's last entry."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        reason = "the run was stopped before its time" if self._control.command is not Command.RUN else None
        end_ns = self._control.end_ns
        return Ended(self._control.sent, self._reason or reason, tuple(self._unwritten), None if end_ns == NEVER_NS else end_ns)

    def abandon(self, reason: str | None) -> None:
        """Cancel what is in flight and send nothing more; ``reason`` is None where the command is the reason."""
        self._reason = self._reason or reason
        for task in self._tasks:
            task.cancel()

    def _write(self, exchange: Exchange) -> None:
        """Append to the journal. After an error nothing more is sent, since it could not be recorded; ended exchanges are still
        appended, for a smaller one may find room on a full disk."""
        try:
            self._journal.append(exchange)
        except OSError as error:
            if not self._unwritten:
                self._reason = f"its worker's journal could not be written: {error}"
                self._on_unwritten(error)
            self._unwritten.append(exchange.index)
