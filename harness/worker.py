"""The hot loop: a process that sends its shard of the schedule on absolute time and writes down what comes back.

Here a request is its index, its time and its bytes; a response is a time stamp and its bytes. Nothing is parsed.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import uvloop

from harness.clients.protocol import Client, Connection, ExchangeFailedError, MalformedResponseError
from harness.clock import PreciseSleeper, now_ns
from harness.control import Control, Phase
from harness.journal import Exchange, JournalWriter
from harness.probes.loop import LoopProbe
from harness.records.record import Outcome
from workloads.request import Request

CONNECT_TIMEOUT_S = 20.0
_PHASE_CHECK_S = 0.05


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """All that one worker needs. ``shard`` holds (index, offset in ns, request), sorted by offset."""

    worker: int
    client: Client
    shard: Sequence[tuple[int, int, Request]]
    warm_up: Sequence[Request]
    timeout_s: float
    journal: Path
    probe: Path


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has encoded its requests, connected and warmed up; or could not, and says why."""

    warm_up_failures: tuple[str, ...] = ()
    problem: str | None = None


def run_worker(plan: WorkerPlan, pipe: Pipe, control: Control) -> None:
    """Process entry point: report Ready, wait for the start time (ns of ``now_ns``) on ``pipe``, run, end.

    The parent has blocked SIGINT and SIGTERM for it: what they mean, the parent decides.
    """
    uvloop.run(_work(plan, pipe, control))


async def _work(plan: WorkerPlan, pipe: Pipe, control: Control) -> None:
    encoded = [(index, offset_ns, plan.client.encode(index, request)) for index, offset_ns, request in plan.shard]
    try:
        connection = await plan.client.connect(CONNECT_TIMEOUT_S)
    except ExchangeFailedError as error:
        pipe.send(Ready(problem=str(error)))
        return
    pipe.send(Ready(await _warm_up(plan, connection)))
    try:
        start_ns = await asyncio.to_thread(pipe.recv)
    except EOFError:  # the parent gave up
        await connection.close()
        return
    gc.collect()
    gc.freeze()  # what was made before the run is never scanned during it
    with JournalWriter(plan.journal) as journal:
        async with LoopProbe(plan.probe, plan.worker, start_ns):
            await _Shard(plan, connection, journal, control, start_ns).run(encoded)
    await connection.close()


async def _warm_up(plan: WorkerPlan, connection: Connection) -> tuple[str, ...]:
    async def one(number: int, request: Request) -> str | None:
        answers: list[bytes] = []
        try:
            await connection.exchange(plan.client.encode(number, request), answers.append, plan.timeout_s)
        except ExchangeFailedError as broken:
            return f"{broken.outcome}: {broken}"
        try:
            return next((error for body in answers if (error := plan.client.decode(body).error) is not None), None)
        except MalformedResponseError as malformed:
            return str(malformed)

    results = await asyncio.gather(*(one(number, request) for number, request in enumerate(plan.warm_up)))
    return tuple(result for result in results if result is not None)


class _Shard:
    def __init__(
        self, plan: WorkerPlan, connection: Connection, journal: JournalWriter, control: Control, start_ns: int
    ) -> None:
        self._plan = plan
        self._connection = connection
        self._journal = journal
        self._control = control
        self._start_ns = start_ns
        self._sleeper = PreciseSleeper()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._broken: OSError | None = None
        self._parent = os.getppid()
        self._abandoned = False

    async def run(self, encoded: Sequence[tuple[int, int, bytes]]) -> None:
        watcher = asyncio.create_task(self._watch_phase())
        for index, offset_ns, payload in encoded:
            await self._sleeper.until(self._start_ns + offset_ns)
            if self._control.phase is not Phase.RUN or self._abandoned or self._broken is not None:
                break
            task = asyncio.create_task(self._exchange(index, offset_ns, payload))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)
        while self._in_flight:
            await asyncio.wait(set(self._in_flight))
        watcher.cancel()
        self._sleeper.close()
        if self._broken is not None:
            raise self._broken

    async def _exchange(self, index: int, due_ns: int, payload: bytes) -> None:
        response_ns: list[int] = []
        bodies: list[bytes] = []

        def on_response(body: bytes) -> None:
            response_ns.append(now_ns() - self._start_ns)
            bodies.append(body)

        failure: Outcome | None = None
        problem: str | None = None
        self._control.count_sent(self._plan.worker)
        sent_ns = now_ns() - self._start_ns
        try:
            await self._connection.exchange(payload, on_response, self._plan.timeout_s)
        except ExchangeFailedError as broken:
            failure, problem = broken.outcome, str(broken)
        except asyncio.CancelledError:
            failure, problem = Outcome.CANCELLED, "the run was stopped"
        except Exception as error:  # a fault of the client's own: recorded as such, and never silent
            failure, problem = Outcome.LOST, f"the client failed: {error!r}"
        done_ns = now_ns() - self._start_ns
        if self._broken is not None:  # behind a torn frame nothing can be read
            return
        try:
            self._journal.append(Exchange(index, due_ns, sent_ns, done_ns, response_ns, bodies, failure, problem))
        except OSError as error:  # the disk is full: what cannot be recorded must not be sent
            self._broken = error

    async def _watch_phase(self) -> None:
        """Break off when told to, or when the parent is gone: nobody would read what comes."""
        while self._control.phase is not Phase.ABORT and os.getppid() == self._parent:
            if self._control.phase is Phase.DRAIN:
                self._sleeper.wake()
            await asyncio.sleep(_PHASE_CHECK_S)
        self._abandoned = True
        self._sleeper.wake()
        for task in self._in_flight:
            task.cancel()
