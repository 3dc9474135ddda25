"""One exchange after the other into the journal: what the hot loop does with a request, whoever decides when.

Here a request is its index, its times and its bytes; a response is a time stamp and its bytes. Nothing is parsed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress

from harness.clients.protocol import Connection, ExchangeFailedError
from harness.host.clock import now_ns
from harness.journal.worker_journal import Ended, Exchange, JournalWriter
from harness.records.record import Outcome
from harness.run.shared_state import Control, Phase


class Turns:
    """Lets one go on in each turn of the event loop, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False  # in this turn of the loop

    async def take(self) -> None:
        """Wait for a turn that nobody else has; at once where this one is free."""
        loop = asyncio.get_running_loop()
        if self._is_taken:
            turn = loop.create_future()
            self._waiting.append(turn)
            await turn
        else:
            self._is_taken = True
            loop.call_soon(self._pass_on)

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # else whoever waited was cancelled
                turn.set_result(None)
                asyncio.get_running_loop().call_soon(self._pass_on)
                return
        self._is_taken = False


class Exchanges:
    """Carries out a worker's exchanges and writes them down. ``start_ns`` is the run's start on ``now_ns``.

    ``on_unwritten`` is called once, with what the disk said when it did not take an exchange.
    """

    def __init__(
        self,
        worker: int,
        connection: Connection,
        journal: JournalWriter,
        control: Control,
        start_ns: int,
        timeout_s: float,
        on_unwritten: Callable[[OSError], None],
    ) -> None:
        self.start_ns = start_ns
        self._worker = worker
        self._connection = connection
        self._journal = journal
        self._control = control
        self._timeout_s = timeout_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = Turns()
        self._on_unwritten = on_unwritten
        self._unwritten: list[int] = []
        self._reason: str | None = None  # why nothing more is sent, where the run's phase does not say it

    @property
    def stopped(self) -> bool:
        """Whether nothing more is to be sent."""
        return self._control.phase is not Phase.RUN or self._reason is not None

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Run ``work``, which carries out exchanges, beside everything else."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def carry_out(self, index: int, due_ns: int, released_ns: int, payload: bytes) -> Exchange:
        """Send one request now, wait for its end, write it down; returns what was written."""
        response_ns: list[int] = []
        bodies: list[bytes] = []
        start_ns = self.start_ns

        def on_responses(times_ns: Sequence[int], arrived: Sequence[bytes]) -> None:
            if len(times_ns) == 1:  # over gRPC they come one by one
                response_ns.append(times_ns[0] - start_ns)
                bodies.append(arrived[0])
            else:
                response_ns.extend([time_ns - start_ns for time_ns in times_ns])
                bodies.extend(arrived)

        failure: Outcome | None = None
        problem: str | None = None
        self._control.count_sent(self._worker)
        sent_ns = now_ns() - self.start_ns
        try:
            await self._connection.exchange(payload, on_responses, self._timeout_s)
        except ExchangeFailedError as broken:
            failure, problem = broken.outcome, str(broken)
        except asyncio.CancelledError:
            failure, problem = Outcome.CANCELLED, "the run was stopped"
        except Exception as error:  # a fault of the client's own: recorded as such, and never silent
            failure, problem = Outcome.LOST, f"the client failed: {error!r}"
        done_ns = now_ns() - self.start_ns
        exchange = Exchange(index, due_ns, released_ns, sent_ns, done_ns, response_ns, bodies, failure, problem)
        # Writing one takes 0.1 ms, and a user's next request as long. Where many end together, others must not wait for all.
        # Who is cancelled here writes at once: this exchange has ended, and ``stopped`` says that there is none to come.
        with suppress(asyncio.CancelledError):
            await self._turns.take()
        self._write(exchange)
        if failure is not None:
            await asyncio.sleep(0)  # it may have failed without a wait: a user who tries again must not hold the loop
        return exchange

    async def finish(self) -> Ended:
        """Wait until all that was begun has ended; returns what there is to say at the end."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        reason = "the run was stopped before its time" if self._control.phase is not Phase.RUN else None
        return Ended(self._control.sent_by(self._worker), self._reason or reason, tuple(self._unwritten))

    def abandon(self, reason: str | None) -> None:
        """Break off what is in flight, and let nothing begin; ``reason`` says why, None that the run's phase does."""
        self._reason = self._reason or reason
        for task in self._tasks:
            task.cancel()

    def _write(self, exchange: Exchange) -> None:
        """What cannot be recorded must not be sent: on a full disk, no more is. A smaller exchange may still find room."""
        try:
            self._journal.append(exchange)
        except OSError as error:
            if not self._unwritten:
                self._reason = f"its worker's journal could not be written: {error}"
                self._on_unwritten(error)
            self._unwritten.append(exchange.index)
