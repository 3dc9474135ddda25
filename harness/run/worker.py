"""A worker process: prepares its part of the schedule, sends it on absolute time, and writes the journal.

The hot loop is in ``load_loops.py`` (when) and ``exchanges.py`` (what).
"""

from __future__ import annotations

import asyncio
import gc
import math
import multiprocessing
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import uvloop
from msgspec.structs import replace

from harness.clients.protocol import Client, Connection, ExchangeFailedError, MalformedResponseError, usage_of_all
from harness.clients.secret_values import Spellings, hide_in_bodies, hide_in_text
from harness.host.clock import PreciseSleeper, now_ns
from harness.host.cpu_priority import request_short_slices
from harness.journal.worker_journal import Began, Ended, Exchange, JournalWriter
from harness.observation.event_loop_sampler import LoopSampler
from harness.run.cancellations import planned_cancellations
from harness.run.exchanges import ExchangeLimits, Exchanges
from harness.run.load_loops import send
from harness.run.routing import Payload, Router, encoder
from harness.run.shared_state import Command, Control, WorkerControl
from harness.run.token_limits import NO_LIMITS_OF_TOKENS, TokenLimits, TokenWatch
from harness.run.turn_payloads import turn_payloads
from workloads.elements.request import Balance, Request
from workloads.schedule.schedule import AnyPart, ClosedPart, OpenPart, SessionPart

CONNECT_TIMEOUT_S = 20.0
NO_CONNECTION = "cannot reach the server"  # the beginning of a worker's problem
_COMMAND_PERIOD_S = 0.05
_ORPHANED = "the parent process ended before the end of the run"


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """All that one worker needs. ``requests`` match the indices of its ``part``; ``core`` is a core for it alone.

    ``client`` is that of the first target, and decodes the answers of all. ``further`` are the clients of other targets, and
    ``assigned`` is the target of each request, in the order of ``requests``; empty where there is one target.
    """

    worker: int
    client: Client
    part: AnyPart
    requests: Sequence[Request]
    warm_up: Sequence[Request]
    timeout_s: float
    journal: Path
    samples: Path
    schedule_digest: str
    run_id: str
    core: int | None = None
    further: tuple[Client, ...] = ()
    balance: Balance = Balance.ROUND_ROBIN
    assigned: tuple[int, ...] = ()
    token_limits: TokenLimits = NO_LIMITS_OF_TOKENS

    @property
    def clients(self) -> tuple[Client, ...]:
        """The clients of all targets."""
        return (self.client, *self.further)

    def target_of(self, place: int) -> int:
        """The assigned target of the request at a place of the part."""
        return self.assigned[place] if self.assigned else 0


@dataclass(frozen=True, slots=True)
class JournalFailed:
    """Message to the parent: the journal cannot be written. All workers should stop; ``ended`` is the last entry."""

    problem: str
    ended: Ended | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """Message to the parent: the requests are encoded, the connection is open and warm; or ``problem`` prevented that."""

    warm_up_failures: tuple[str, ...] = ()
    problem: str | None = None


def run_worker(number: int, pipe: Pipe, control: Control) -> None:
    """Process entry point: read the plan on ``pipe``, send Ready, wait for the start time (ns of ``now_ns``), run, end.

    SIGINT and SIGTERM are blocked by the parent, which handles them and sets the command accordingly.
    """
    try:
        plan: WorkerPlan = pipe.recv()
    except (EOFError, OSError):  # the parent gave up, or ended in the middle of the plan
        return
    if plan.core is not None:
        os.sched_setaffinity(0, {plan.core})
    request_short_slices()
    uvloop.run(_Worker(plan, pipe, control.of_worker(number)).work())


class _Worker:
    def __init__(self, plan: WorkerPlan, pipe: Pipe, control: WorkerControl) -> None:
        self._plan = plan
        clients = [client.for_run(plan.run_id) for client in plan.clients]  # the warm-up is no part of the run
        self._encode = encoder(clients, plan.balance)
        self._pipe = pipe
        self._control = control

    async def work(self) -> None:
        orphan_watch = asyncio.create_task(_exit_when_orphaned())
        plan = self._plan
        try:
            payloads = [self._payload(place, request) for place, request in enumerate(plan.requests)]
        except (ValueError, TypeError, OverflowError) as error:
            self._report_unready(f"cannot encode a request: {error}")
            return
        try:
            connections = await _connect(plan)
            ready = Ready(await _warm_up(plan, connections))
            at_each = math.ceil(_in_flight(plan.part) / len(connections))
            for connection in connections:
                await connection.prepare(at_each, CONNECT_TIMEOUT_S)
        except ExchangeFailedError as error:
            self._report_unready(f"{NO_CONNECTION}: {error}")
            return
        try:
            self._pipe.send(ready)
            start_ns = await asyncio.to_thread(self._pipe.recv)
        except (EOFError, OSError):  # the parent gave up, or ended, perhaps before it read what was sent
            await _close(connections)
            return
        orphan_watch.cancel()  # from the start on, _watch_command detects that the parent is gone
        for connection in connections:
            connection.reset_usage()
        gc.collect()
        gc.freeze()  # what was made before the run is never scanned during it
        began = Began(
            plan.run_id, plan.schedule_digest, plan.worker, time.time_ns() - (now_ns() - start_ns), ready.warm_up_failures
        )
        await self._run(began, payloads, connections, start_ns)
        self._control.set_usage(usage_of_all([connection.usage(start_ns) for connection in connections]))
        await _close(connections)

    def _payload(self, place: int, request: Request) -> Payload:
        """The bytes of the request at a place of the part."""
        return self._encode(self._plan.part.indices[place], request, self._plan.target_of(place))

    def _report_unready(self, problem: str) -> None:
        with suppress(OSError):  # the parent may be gone
            self._pipe.send(Ready(problem=hide_in_text(problem, self._plan.client.hidden)))

    async def _run(self, began: Began, payloads: Sequence[Payload], connections: Sequence[Connection], start_ns: int) -> None:
        """Send everything and write the journal; where that cannot be written, report it to the parent."""
        plan = self._plan
        ended = Ended(0, "its worker's journal could not be written")
        try:
            with JournalWriter(plan.journal) as journal:
                journal.append(began)
                hiding = HidingJournal(journal, plan.client.hidden)
                cancellations = planned_cancellations(plan.part.indices, plan.requests, plan.client)
                watch = TokenWatch(plan.token_limits, plan.client) if plan.token_limits.are_set else None
                limits = ExchangeLimits(plan.timeout_s, cancellations, watch)
                by_load = plan.balance is Balance.LEAST_IN_FLIGHT and len(connections) > 1
                router = Router(connections, self._control.in_flight if by_load else None)
                exchanges = Exchanges(router, hiding, self._control, start_ns, limits, self._report_unwritten)
                async with LoopSampler(plan.samples, plan.worker, start_ns):
                    ended = await self._send_all(payloads, exchanges)
                journal.append(ended)
        except OSError as error:
            self._report_unwritten(error, ended)

    async def _send_all(self, payloads: Sequence[Payload], exchanges: Exchanges) -> Ended:
        sleeper, plan = PreciseSleeper(), self._plan
        turns = turn_payloads(plan.part, plan.requests, payloads, self._payload, plan.clients)
        sending = asyncio.create_task(send(plan.part, payloads, exchanges, sleeper, turns))
        watch = asyncio.create_task(self._watch_command(sending, exchanges, sleeper))
        with suppress(asyncio.CancelledError):  # the run was stopped
            await sending
        ended = await exchanges.finish()
        watch.cancel()
        sleeper.close()
        return ended

    async def _watch_command(self, sending: asyncio.Task[None], exchanges: Exchanges, sleeper: PreciseSleeper) -> None:
        """Stop sending on command, or when a rule has ended the run; cancel what is in flight on command, or when the parent,
        which reads it, is gone.
        """
        while self._control.command is not Command.ABORT and _has_parent():
            if exchanges.stopped:
                sending.cancel()
            elif exchanges.is_over(now_ns() - exchanges.start_ns):
                sleeper.wake()  # it sleeps for a request that is not due any more
            await asyncio.sleep(_COMMAND_PERIOD_S)
        sending.cancel()
        exchanges.abandon(None if self._control.command is Command.ABORT else _ORPHANED)

    def _report_unwritten(self, error: OSError, ended: Ended | None = None) -> None:
        with suppress(OSError):  # the parent may be gone
            self._pipe.send(JournalFailed(str(error), ended))


def _in_flight(part: AnyPart) -> int:
    """The requests in flight at once, as far as they are known before the run."""
    match part:
        case ClosedPart():
            return len(part.user_starts_ns)
        case OpenPart():
            return part.max_concurrency or 0
        case SessionPart():
            return 0


async def _exit_when_orphaned() -> None:
    """End this process when its parent is gone before the start: no request that counts has been sent."""
    while _has_parent():
        await asyncio.sleep(_COMMAND_PERIOD_S)
    os._exit(1)


def _has_parent() -> bool:
    parent = multiprocessing.parent_process()
    return parent is None or os.getppid() == parent.pid


async def _connect(plan: WorkerPlan) -> list[Connection]:
    """An open connection to each target. Raises ExchangeFailedError."""
    connections: list[Connection] = []
    for client in plan.clients:
        try:
            connections.append(await client.connect(CONNECT_TIMEOUT_S))
        except ExchangeFailedError as error:
            await _close(connections)
            if not plan.further:
                raise
            which = f"that of --url number {len(connections) + 1}"
            raise ExchangeFailedError(error.outcome, f"{which}: {error}") from error
    return connections


async def _close(connections: Sequence[Connection]) -> None:
    for connection in connections:
        await connection.close()


async def _warm_up(plan: WorkerPlan, connections: Sequence[Connection]) -> tuple[str, ...]:
    """Send the warm-up requests at once, to the targets in turn; returns the errors of those that failed."""

    async def one(number: int, request: Request) -> str | None:
        answers: list[bytes] = []
        target = (plan.worker + number) % len(connections)
        payload = plan.clients[target].encode(number, request)
        try:
            await connections[target].exchange(payload, lambda _, bodies: answers.extend(bodies), plan.timeout_s)
        except ExchangeFailedError as broken:
            return f"{broken.outcome}: {broken}"
        try:
            return next((error for body in answers if (error := plan.client.decode(body).error) is not None), None)
        except MalformedResponseError as malformed:
            return str(malformed)

    results = await asyncio.gather(*(one(number, request) for number, request in enumerate(plan.warm_up)))
    return tuple(hide_in_text(result, plan.client.hidden) for result in results if result is not None)


class HidingJournal:
    """Writes exchanges to ``journal`` without the secrets in ``hidden``: neither in an answer nor in the text of a failure."""

    def __init__(self, journal: JournalWriter, hidden: Spellings) -> None:
        self._journal = journal
        self._hidden = hidden

    def append(self, exchange: Exchange) -> None:
        """Raises OSError where it cannot be written."""
        hidden = self._hidden
        if hidden:
            error = None if exchange.error is None else hide_in_text(exchange.error, hidden)
            exchange = replace(exchange, bodies=hide_in_bodies(exchange.bodies, hidden), error=error)
        self._journal.append(exchange)
