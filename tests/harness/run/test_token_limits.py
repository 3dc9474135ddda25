"""The time limits of an answer's tokens, on both event loops and in a whole run."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bench_records.record import Outcome
from harness.clients.protocol import OnResponses, Response
from harness.journal.worker_journal import Exchange, JournalReader, JournalWriter
from harness.run.cancellations import PlannedCancellation
from harness.run.coordinator import Run
from harness.run.exchanges import ExchangeLimits, Exchanges
from harness.run.routing import Payload, Router
from harness.run.shared_state import Control
from harness.run.token_limits import TokenLimits, TokenWatch
from tests.harness.journal.following import quiet
from tests.harness.run.execute_script import make_plan
from tests.harness.scripted_server import Act, ScriptedServer, scripted
from workloads.elements.request import CancelPoint

LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
_LONG_S = 30.0


class _Client:
    """Decodes a number of tokens."""

    def decode(self, body: bytes) -> Response:
        return Response(token_ids=tuple(range(int(body))))


class _Answering:
    """A connection whose answer has ``bodies``, each after its gap in seconds, and then ends after ``end_s``."""

    def __init__(self, *bodies: tuple[float, bytes], end_s: float = 0.0) -> None:
        self._bodies = bodies
        self._end_s = end_s
        self.was_cancelled = False

    async def exchange(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> None:
        raise AssertionError("it may hand over late")

    async def exchange_at_once(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> None:
        try:
            for number, (gap_s, body) in enumerate(self._bodies):
                await asyncio.sleep(gap_s)
                on_responses((number,), (body,))
            await asyncio.sleep(self._end_s)
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


class _AnsweringTooLate(_Answering):
    """Its first token comes just after the limit, while the loop is busy: the loop hears of both in one turn."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(end_s=_LONG_S)
        self._limit_s = limit_s

    async def exchange_at_once(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> None:
        asyncio.get_running_loop().call_later(self._limit_s + 0.01, on_responses, (1,), (b"1",))
        time.sleep(self._limit_s + 0.05)
        await super().exchange_at_once(payload, on_responses, timeout_s)


def _carry_out(
    connection: _Answering, limits: TokenLimits, path: Path, run: Callable[[Any], Any], point: CancelPoint | None = None
) -> Exchange:
    client: Any = _Client()

    async def scene() -> None:
        control = Control(multiprocessing.get_context("spawn"), 1).of_worker(0)
        planned = {} if point is None else {5: PlannedCancellation(point, client)}
        with JournalWriter(path) as journal:
            own = ExchangeLimits(_LONG_S, planned, TokenWatch(limits, client))
            router = Router([connection])  # type: ignore[list-item]
            exchanges = Exchanges(router, journal, control, 0, own, lambda problem: None)
            await exchanges.carry_out(5, 0, 0, Payload(0, (b"x",)))

    run(scene())
    (exchange,) = JournalReader(path).read_new()
    return exchange


@LOOPS
@pytest.mark.parametrize("before", [(), ((0.0, b"0"),)])
def test_an_answer_without_a_token_in_time_is_cancelled(
    run: Callable[[Any], Any], before: Sequence[tuple[float, bytes]], tmp_path: Path
) -> None:
    """A response without tokens, such as one that names the role, is no token."""
    connection = _Answering(*before, (_LONG_S, b"1"))
    exchange = _carry_out(connection, TokenLimits(first_token_s=0.05), tmp_path / "journal", run)
    assert (exchange.failure, exchange.error) == (Outcome.FIRST_TOKEN_TIMEOUT, "no first token within 0.05 s")
    assert (len(exchange.bodies), connection.was_cancelled) == (len(before), True)


@LOOPS
def test_a_gap_that_is_too_long_cancels_what_came_in_time_until_then(run: Callable[[Any], Any], tmp_path: Path) -> None:
    connection = _Answering((0.4, b"1"), (0.0, b"1"), (0.0, b"2"), (_LONG_S, b"1"))
    exchange = _carry_out(connection, TokenLimits(token_gap_s=0.3), tmp_path / "journal", run)
    assert (exchange.failure, exchange.error) == (Outcome.TOKEN_GAP_TIMEOUT, "no further token within 0.3 s")
    assert (exchange.bodies, connection.was_cancelled) == ([b"1", b"1", b"2"], True)


@LOOPS
@pytest.mark.parametrize("gap_s", [None, 1.0])
def test_a_token_that_comes_with_the_end_of_its_time_is_late(
    run: Callable[[Any], Any], gap_s: float | None, tmp_path: Path
) -> None:
    exchange = _carry_out(_AnsweringTooLate(0.05), TokenLimits(0.05, gap_s), tmp_path / "journal", run)
    assert (exchange.failure, exchange.error) == (Outcome.FIRST_TOKEN_TIMEOUT, "no first token within 0.05 s")
    assert exchange.bodies == []


@LOOPS
def test_an_answer_in_time_is_whole_however_long_it_takes(run: Callable[[Any], Any], tmp_path: Path) -> None:
    connection = _Answering(*((0.1, b"1") for _ in range(12)))
    exchange = _carry_out(connection, TokenLimits(first_token_s=1.1, token_gap_s=1.1), tmp_path / "journal", run)
    assert (exchange.failure, exchange.error, len(exchange.bodies)) == (None, None, 12)
    late = _Answering((0.0, b"1"), (0.1, b"1"))
    again = _carry_out(late, TokenLimits(first_token_s=0.05), tmp_path / "again", run)  # no limit of gaps
    assert (again.failure, len(again.bodies)) == (None, 2)


@pytest.mark.parametrize(
    ("point", "gap_s", "outcome"),
    [
        (CancelPoint(after_tokens=2), 20.0, Outcome.WITHDRAWN),
        (CancelPoint(after_ns=10_000_000), 20.0, Outcome.WITHDRAWN),
        (CancelPoint(after_tokens=9), 0.2, Outcome.TOKEN_GAP_TIMEOUT),
        (CancelPoint(after_ns=10**13), 0.2, Outcome.TOKEN_GAP_TIMEOUT),
    ],
)
def test_the_first_of_a_planned_cancellation_and_a_limit_counts(
    point: CancelPoint, gap_s: float, outcome: Outcome, tmp_path: Path
) -> None:
    connection = _Answering((0.0, b"1"), (0.02, b"1"), (_LONG_S, b"1"))
    exchange = _carry_out(connection, TokenLimits(20.0, gap_s), tmp_path / "journal", asyncio.run, point)
    assert (exchange.failure, connection.was_cancelled) == (outcome, True)


def test_a_run_names_the_limit_that_ended_each_request(server: ScriptedServer, tmp_path: Path) -> None:
    acts = [Act.ANSWER, Act.MUTE, Act.HANG] * 3
    plan = make_plan(server.address, tmp_path, [scripted(act) for act in acts], [k * 10.0 for k in range(9)], 1)
    result = Run(replace(plan, token_limits=TokenLimits(3.0, 3.0))).execute(quiet)
    expected = {Act.ANSWER: Outcome.DONE, Act.MUTE: Outcome.FIRST_TOKEN_TIMEOUT, Act.HANG: Outcome.TOKEN_GAP_TIMEOUT}
    assert [record.outcome for record in result.records] == [expected[act] for act in acts]
    tokens = Counter((record.outcome, record.output_tokens) for record in result.records)
    assert tokens == {(Outcome.DONE, 4): 3, (Outcome.FIRST_TOKEN_TIMEOUT, None): 3, (Outcome.TOKEN_GAP_TIMEOUT, 2): 3}
