"""What the hot loop does with many exchanges that end together."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from harness.clients.protocol import OnResponses
from harness.clients.transport.tcp import Arrival
from harness.journal.worker_journal import JournalReader, JournalWriter
from harness.run.exchanges import Exchanges, Turns
from harness.run.shared_state import Control


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_each_turn_of_the_loop_is_given_once_in_the_order_of_the_wish(run: Callable[[Any], None]) -> None:
    async def scene() -> None:
        turns, given, passed = Turns(), [], 0

        async def wish(number: int) -> None:
            await turns.take()
            given.append((number, passed))

        tasks = [asyncio.create_task(wish(number)) for number in range(5)]
        tasks[2].cancel()
        await asyncio.sleep(0)
        tasks[3].cancel()
        while len(given) < 3:
            passed += 1
            assert passed < 100
            await asyncio.sleep(0)
        assert [number for number, _ in given] == [0, 1, 4]
        assert len({when for _, when in given}) == 3
        await asyncio.sleep(0.01)
        await asyncio.wait_for(turns.take(), 1)  # nobody waits: at once

    run(scene())


class _EndingTogether:
    """A connection whose exchanges all end when ``end`` is set."""

    def __init__(self) -> None:
        self.arrival = Arrival()
        self.end = asyncio.Event()

    async def exchange(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> None:
        await self.end.wait()
        on_responses((self.arrival.ns,), (payload,))


def test_exchanges_that_ended_are_written_as_they_ended_though_they_are_broken_off_before_their_turn(tmp_path: Path) -> None:
    path = tmp_path / "journal"

    async def scene() -> None:
        connection = _EndingTogether()
        control = Control(multiprocessing.get_context("spawn"), 1)
        with JournalWriter(path) as journal:
            exchanges = Exchanges(0, connection, journal, control, 0, 10.0, lambda problem: None)  # type: ignore[arg-type]

            async def one(index: int) -> None:
                await exchanges.carry_out(index, 0, 0, b"%d" % index)

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
