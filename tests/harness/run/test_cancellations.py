"""Planned cancellations of exchanges, on both event loops."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop

from bench_records.record import Outcome
from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.protocol import ExchangeFailedError, MalformedResponseError, OnResponses, Response
from harness.clients.transport.url import Origin
from harness.journal.worker_journal import Exchange, JournalReader, JournalWriter
from harness.run.cancellations import PlannedCancellation, TokensSoFar, planned_cancellations
from harness.run.exchanges import ExchangeLimits, Exchanges
from harness.run.routing import Payload, Router
from harness.run.shared_state import Control
from workloads.elements.request import CancelPoint, Request

LOOPS = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])


class _Client:
    """Decodes a number of tokens; b"x" is malformed."""

    def decode(self, body: bytes) -> Response:
        if body == b"x":
            raise MalformedResponseError("x")
        return Response(token_ids=tuple(range(int(body))))


class _Answering:
    """A connection whose answer has ``bodies``, one every ``gap_s``, and then ends; notes whether it was cancelled."""

    def __init__(self, bodies: Sequence[bytes], gap_s: float = 0.0, failure: ExchangeFailedError | None = None) -> None:
        self._bodies = bodies
        self._gap_s = gap_s
        self._failure = failure
        self.was_cancelled = False

    async def exchange(self, payload: bytes, on_responses: OnResponses, timeout_s: float) -> None:
        try:
            for number, body in enumerate(self._bodies):
                on_responses((number,), (body,))
                await asyncio.sleep(self._gap_s)
            if self._failure is not None:
                raise self._failure
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise

    exchange_at_once = exchange


def _carry_out(connection: _Answering, point: CancelPoint, path: Path, run: Callable[[Any], Any] = asyncio.run) -> Exchange:
    async def scene() -> None:
        control = Control(multiprocessing.get_context("spawn"), 1).of_worker(0)
        limits = ExchangeLimits(10.0, {5: PlannedCancellation(point, _Client())})  # type: ignore[arg-type]
        with JournalWriter(path) as journal:
            exchanges = Exchanges(Router([connection]), journal, control, 0, limits, lambda problem: None)  # type: ignore[arg-type]
            await exchanges.carry_out(5, 0, 0, Payload(0, (b"payload",)))

    run(scene())
    (exchange,) = JournalReader(path).read_new()
    return exchange


@LOOPS
def test_a_request_is_cancelled_with_its_token_and_keeps_what_came_until_then(
    run: Callable[[Any], Any], tmp_path: Path
) -> None:
    connection = _Answering([b"1", b"x", b"2", b"0", b"1", b"1"], gap_s=0.02)
    exchange = _carry_out(connection, CancelPoint(after_tokens=4), tmp_path / "journal", run)
    assert (exchange.failure, exchange.bodies) == (Outcome.WITHDRAWN, [b"1", b"x", b"2", b"0", b"1"])
    assert connection.was_cancelled


@LOOPS
def test_a_request_is_cancelled_after_its_time_though_nothing_comes(run: Callable[[Any], Any], tmp_path: Path) -> None:
    connection = _Answering([b"1", b"1"], gap_s=30.0)
    exchange = _carry_out(connection, CancelPoint(after_ns=50_000_000), tmp_path / "journal", run)
    assert (exchange.failure, exchange.bodies) == (Outcome.WITHDRAWN, [b"1"])
    assert exchange.done_ns - exchange.sent_ns >= 49_000_000  # uvloop counts whole ms from the beginning of its round
    assert connection.was_cancelled


@pytest.mark.parametrize("point", [CancelPoint(after_tokens=3), CancelPoint(after_ns=10**13)])
def test_an_answer_that_ends_before_its_point_is_a_success(point: CancelPoint, tmp_path: Path) -> None:
    exchange = _carry_out(_Answering([b"1", b"1"]), point, tmp_path / "journal")
    assert (exchange.failure, exchange.error) == (None, None)


@pytest.mark.parametrize("point", [CancelPoint(after_tokens=3), CancelPoint(after_ns=10**13)])
def test_a_failure_before_the_point_stays_a_failure(point: CancelPoint, tmp_path: Path) -> None:
    connection = _Answering([b"1"], failure=ExchangeFailedError(Outcome.STREAM_CUT, "cut"))
    exchange = _carry_out(connection, point, tmp_path / "journal")
    assert (exchange.failure, exchange.error) == (Outcome.STREAM_CUT, "cut")


def test_a_run_that_is_stopped_cancels_what_was_to_be_cancelled_later_as_a_failure(tmp_path: Path) -> None:
    async def scene() -> None:
        control = Control(multiprocessing.get_context("spawn"), 1).of_worker(0)
        planned = PlannedCancellation(CancelPoint(after_ns=10**13), _Client())  # type: ignore[arg-type]
        with JournalWriter(tmp_path / "journal") as journal:
            connection = _Answering([b"1"], gap_s=30.0)
            limits = ExchangeLimits(10.0, {0: planned})
            exchanges = Exchanges(Router([connection]), journal, control, 0, limits, lambda problem: None)  # type: ignore[arg-type]

            async def one() -> None:
                await exchanges.carry_out(0, 0, 0, Payload(0, (b"",)))

            exchanges.spawn(one())
            await asyncio.sleep(0.01)
            exchanges.abandon("the test is over")
            await exchanges.finish()

    asyncio.run(scene())
    (exchange,) = JournalReader(tmp_path / "journal").read_new()
    assert exchange.failure is Outcome.CANCELLED


def test_running_counts_of_a_server_are_not_added_up_and_chunks_with_text_count_as_one() -> None:
    tokens = TokensSoFar(OpenAIChatClient(Origin("http", "127.0.0.1", 1), "m"))
    role = b'{"choices":[{"delta":{"role":"assistant","content":""}}]}'
    text = b'{"choices":[{"delta":{"content":"a b"}}]}'
    assert tokens.add([role]) == 0
    assert tokens.add([text, text]) == 2
    counted = b'{"choices":[{"delta":{"content":"c"}}],"usage":{"completion_tokens":7}}'
    assert tokens.add([counted]) == 7
    assert tokens.add([counted]) == 7


def _counted(text: str, count: int, **delta: str) -> bytes:
    choice = {"delta": {"content": text, **delta}}
    return json.dumps({"choices": [choice], "usage": {"completion_tokens": count}}).encode()


@pytest.mark.parametrize(("counts", "so_far"), [((1, 1, 1, 1), [1, 1, 3, 4]), ((3, 1, 2), [3, 4, 6]), ((1, 3, 4), [1, 3, 4])])
def test_counts_of_each_chunk_alone_are_added_up_and_none_is_a_role_chunks(counts: Sequence[int], so_far: list[int]) -> None:
    tokens = TokensSoFar(OpenAIChatClient(Origin("http", "127.0.0.1", 1), "m"))
    assert tokens.add([_counted("", 1, role="assistant")]) == 0
    assert [tokens.add([_counted("a", count)]) for count in counts] == so_far
    assert tokens.add([b'{"choices":[],"usage":{"completion_tokens":%d}}' % so_far[-1]]) == so_far[-1]


def test_a_count_of_0_beside_text_is_none() -> None:
    tokens = TokensSoFar(OpenAIChatClient(Origin("http", "127.0.0.1", 1), "m"))
    assert tokens.add([b'{"choices":[{"delta":{"content":"c"}}],"usage":{"completion_tokens":0}}'] * 2) == 2
    assert tokens.add([b'{"choices":[],"usage":{"completion_tokens":0}}']) == 2


def test_only_requests_with_a_point_are_watched() -> None:
    requests = [Request(1, prompt="a"), Request(1, prompt="b", cancel=CancelPoint(after_tokens=2))]
    watched = planned_cancellations([4, 9], requests, _Client())  # type: ignore[arg-type]
    assert {index: planned.point for index, planned in watched.items()} == {9: CancelPoint(after_tokens=2)}
