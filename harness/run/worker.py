"""A worker: a process that prepares its part of the schedule, sends it on absolute time, and writes down what comes back.

The hot loop is in ``senders.py`` (when) and ``exchanges.py`` (what).
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import uvloop

from harness.clients.protocol import Client, Connection, ExchangeFailedError, MalformedResponseError
from harness.host.clock import PreciseSleeper, now_ns
from harness.host.cpu_priority import ask_for_short_slices
from harness.journal.worker_journal import Began, Ended, JournalWriter
from harness.observation.event_loop_probe import LoopProbe
from harness.run.exchanges import Exchanges
from harness.run.load_loops import send
from harness.run.shared_state import Control, Phase
from workloads.request import Request
from workloads.schedule import ClosedPart, OpenPart

CONNECT_TIMEOUT_S = 20.0
_PHASE_CHECK_S = 0.05


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """All that one worker needs. ``requests`` go along with the indices of its ``part``; ``core`` is one of its own."""

    worker: int
    client: Client
    part: OpenPart | ClosedPart
    requests: Sequence[Request]
    warm_up: Sequence[Request]
    timeout_s: float
    journal: Path
    probe: Path
    schedule_digest: str
    core: int | None = None


@dataclass(frozen=True, slots=True)
class JournalFailed:
    """A worker's journal cannot be written: it sends no more, and nobody else should. ``ended`` is its last entry."""

    problem: str
    ended: Ended | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker has encoded its requests, connected and warmed up; or could not, and says why."""

    warm_up_failures: tuple[str, ...] = ()
    problem: str | None = None


def run_worker(plan: WorkerPlan, pipe: Pipe, control: Control) -> None:
    """Process entry point: report Ready, wait for the start time (ns of ``now_ns``) on ``pipe``, run, end.

    The parent has blocked SIGINT and SIGTERM for it: what they mean, the parent decides.
    """
    if plan.core is not None:
        os.sched_setaffinity(0, {plan.core})
    ask_for_short_slices()
    uvloop.run(_work(plan, pipe, control))


async def _work(plan: WorkerPlan, pipe: Pipe, control: Control) -> None:
    orphaned = asyncio.create_task(_end_when_orphaned())
    payloads = [plan.client.encode(index, request) for index, request in zip(plan.part.indices, plan.requests, strict=True)]
    try:
        connection = await plan.client.connect(CONNECT_TIMEOUT_S)
        ready = Ready(await _warm_up(plan, connection))
        await connection.prepare(_in_flight(plan.part), CONNECT_TIMEOUT_S)
    except ExchangeFailedError as error:
        pipe.send(Ready(problem=str(error)))
        return
    pipe.send(ready)
    try:
        start_ns = await asyncio.to_thread(pipe.recv)
    except EOFError:  # the parent gave up
        await connection.close()
        return
    orphaned.cancel()  # from now on, the watch of the sending sees to it
    connection.reset_usage()
    gc.collect()
    gc.freeze()  # what was made before the run is never scanned during it
    began = Began(plan.schedule_digest, plan.worker, time.time_ns() - (now_ns() - start_ns), ready.warm_up_failures)

    def on_unwritten(error: OSError, ended: Ended | None = None) -> None:
        with suppress(OSError):  # the parent may be gone
            pipe.send(JournalFailed(str(error), ended))

    ended = Ended(0, "its worker's journal could not be written")
    try:
        with JournalWriter(plan.journal) as journal:
            journal.append(began)
            exchanges = Exchanges(plan.worker, connection, journal, control, start_ns, plan.timeout_s, on_unwritten)
            async with LoopProbe(plan.probe, plan.worker, start_ns):
                ended = await _send_all(plan, payloads, exchanges, control)
            journal.append(ended)
    except OSError as error:
        on_unwritten(error, ended)
    control.tell_usage(plan.worker, connection.usage(start_ns))
    await connection.close()


def _in_flight(part: OpenPart | ClosedPart) -> int:
    """How many requests there will be at once, as far as that is known before."""
    return len(part.user_starts_ns) if isinstance(part, ClosedPart) else part.max_concurrency or 0


async def _end_when_orphaned() -> None:
    """End this process when its parent is gone before the start: nothing has been sent that would count."""
    while _has_parent():
        await asyncio.sleep(_PHASE_CHECK_S)
    os._exit(1)


def _has_parent() -> bool:
    parent = multiprocessing.parent_process()
    return parent is None or os.getppid() == parent.pid


async def _warm_up(plan: WorkerPlan, connection: Connection) -> tuple[str, ...]:
    async def one(number: int, request: Request) -> str | None:
        answers: list[bytes] = []
        payload = plan.client.encode(number, request)
        try:
            await connection.exchange(payload, lambda _, bodies: answers.extend(bodies), plan.timeout_s)
        except ExchangeFailedError as broken:
            return f"{broken.outcome}: {broken}"
        try:
            return next((error for body in answers if (error := plan.client.decode(body).error) is not None), None)
        except MalformedResponseError as malformed:
            return str(malformed)

    results = await asyncio.gather(*(one(number, request) for number, request in enumerate(plan.warm_up)))
    return tuple(result for result in results if result is not None)


async def _send_all(plan: WorkerPlan, payloads: Sequence[bytes], exchanges: Exchanges, control: Control) -> Ended:
    sleeper = PreciseSleeper()
    sending = asyncio.create_task(send(plan.part, payloads, exchanges, sleeper))
    watcher = asyncio.create_task(_watch(control, sending, exchanges))
    with suppress(asyncio.CancelledError):  # the run was stopped
        await sending
    ended = await exchanges.finish()
    watcher.cancel()
    sleeper.close()
    return ended


async def _watch(control: Control, sending: asyncio.Task[None], exchanges: Exchanges) -> None:
    """Send no more when told to; break off when told to, or when the parent is gone: nobody would read what comes."""
    while control.phase is not Phase.ABORT and _has_parent():
        if exchanges.stopped:
            sending.cancel()
        await asyncio.sleep(_PHASE_CHECK_S)
    sending.cancel()
    gone = "the process that carried out the run was gone before its time"
    exchanges.abandon(None if control.phase is Phase.ABORT else gone)
