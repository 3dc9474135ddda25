"""Many exchanges that end together."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bench_records.record import Outcome
from harness.clients.answer_limits import DEFAULT_ANSWER_LIMITS, too_many_responses
from harness.clients.protocol import AnswerEnd, OnResponses
from harness.clients.transport.tcp import Arrival
from harness.journal.worker_journal import JournalReader, JournalWriter
from harness.run.exchanges import ExchangeLimits, Exchanges, LoopSlots
from harness.run.routing import Payload, Router
from harness.run.shared_state import Control


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_each_iteration_of_the_loop_grants_one_slot_in_order_of_request(run: Callable[[Any], None]) -> None:
    async def scene() -> None:
        slots, granted, iterations = LoopSlots(), [], 0

        async def acquire(number: int) -> None:
            await slots.acquire()
            granted.append((number, iterations))

        tasks = [asyncio.create_task(acquire(number)) for number in range(5)]
        tasks[2].cancel()
        await asyncio.sleep(0)
        tasks[3].cancel()
        while len(granted) < 3:
            iterations += 1
            assert iterations < 100
            await asyncio.sleep(0)
        assert [number for number, _ in granted] == [0, 1, 4]
        assert len({iteration for _, iteration in granted}) == 3
        await asyncio.sleep(0.01)
        await asyncio.wait_for(slots.acquire(), 1)  # none waits: at once

    run(scene())


class _EndingTogether:
    """A connection whose exchanges all end when ``end`` is set."""

    def __init__(self) -> None:
        self.arrival = Arrival()
        self.end = asyncio.Event()

    async def exchange(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> None:
        await self.end.wait()
        on_responses((self.arrival.ns,), (payload,))


def test_exchanges_that_ended_are_written_as_they_ended_though_they_are_cancelled_before_their_slot(tmp_path: Path) -> None:
    path = tmp_path / "journal"

    async def scene() -> None:
        connection = _EndingTogether()
        control = Control(multiprocessing.get_context("spawn"), 1).of_worker(0)
        with JournalWriter(path) as journal:
            exchanges = Exchanges(Router([connection]), journal, control, 0, ExchangeLimits(10.0), lambda problem: None)  # type: ignore[arg-type]

            async def one(index: int) -> None:
                await exchanges.carry_out(index, 0, 0, Payload(0, (b"%d" % index,)))

            for index in range(20):
                exchanges.spawn(one(index))
            await asyncio.sleep(0)
            connection.end.set()
            for _ in range(4):
                await asyncio.sleep(0)
            written_before = len(list(JournalReader(path).read_new()))
            assert 0 < written_before < 20
            exchanges.abandon("the test is over")
            assert (await exchanges.finish()).sent == 20

    asyncio.run(scene())
    written = list(JournalReader(path).read_new())
    assert sorted(exchange.index for exchange in written) == list(range(20))
    assert all(exchange.failure is None and exchange.bodies == [b"%d" % exchange.index] for exchange in written)


class _AnsweringWith:
    """A connection whose exchanges end so."""

    def __init__(self, end: AnswerEnd | None) -> None:
        self.end = end

    async def exchange(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> AnswerEnd | None:
        return self.end


@pytest.mark.parametrize(
    ("end", "written_ns", "head_ns"),
    [(AnswerEnd(written_ns=1_300, head_ns=1_700), 300, 700), (AnswerEnd(head_ns=1_700), None, 700), (None, None, None)],
)
def test_times_of_an_exchange_count_from_the_start_of_the_run(
    tmp_path: Path, end: AnswerEnd | None, written_ns: int | None, head_ns: int | None
) -> None:
    path = tmp_path / "journal"

    async def scene() -> None:
        control = Control(multiprocessing.get_context("spawn"), 1).of_worker(0)
        with JournalWriter(path) as journal:
            router = Router([_AnsweringWith(end)])  # type: ignore[list-item]
            exchanges = Exchanges(router, journal, control, 1_000, ExchangeLimits(10.0), lambda problem: None)
            await exchanges.carry_out(3, 0, 0, Payload(0, (b"asked",)))

    uvloop.run(scene())
    (exchange,) = JournalReader(path).read_new()
    assert (exchange.failure, exchange.written_ns, exchange.head_ns) == (None, written_ns, head_ns)


class _AnsweringWithoutEnd:
    """A connection whose exchanges get a response and then end, because the answer exceeds a limit."""

    async def exchange(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> None:
        on_responses((0,), (payload,))
        raise too_many_responses(DEFAULT_ANSWER_LIMITS)


def test_responses_of_an_answer_beyond_a_limit_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "journal"

    async def scene() -> None:
        control = Control(multiprocessing.get_context("spawn"), 1).of_worker(0)
        with JournalWriter(path) as journal:
            limits = ExchangeLimits(10.0)
            exchanges = Exchanges(Router([_AnsweringWithoutEnd()]), journal, control, 0, limits, lambda problem: None)  # type: ignore[arg-type]
            await exchanges.carry_out(3, 0, 0, Payload(0, (b"long",)))

    uvloop.run(scene())
    (exchange,) = JournalReader(path).read_new()
    assert (exchange.index, exchange.failure, exchange.bodies, exchange.response_ns) == (3, Outcome.MALFORMED, [], [])
    assert exchange.error == "the answer is longer than 262,144 responses (--max_responses)"
