"""What a worker says that cannot be true at that moment: it is dropped by name, and what was known before stays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from harness.clients.protocol import ConnectionUsage
from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.model import TritonModel
from harness.distribution.byte_streams import Piece, Received
from harness.distribution.dropped_messages import BadMessageError
from harness.distribution.messages import (
    Finished,
    FromWorker,
    Hello,
    JournalProblem,
    PlanConfirmed,
    Progress,
    WorkerReady,
    encode_plan,
)
from harness.distribution.remote_worker import Peer, RemoteWorker
from harness.run.worker import WorkerPlan
from workloads.elements.request import Request
from workloads.schedule.schedule import OpenPart

_CLIENT = TritonGrpcClient("h:1", TritonModel("m", True, frozenset({"input_ids"}), frozenset(), ()), True)
_HELLO = Hello(2, "0.1.0", "host", 2.0)
_USAGE = ConnectionUsage(1, 1)


@pytest.fixture
def plan(tmp_path: Path) -> WorkerPlan:
    part, requests = OpenPart((0, 2), (5, 6), None), [Request(1, "a"), Request(1, "b")]
    paths = tmp_path / "journal-0.bin", tmp_path / "samples-0.bin"
    return WorkerPlan(0, _CLIENT, part, requests, requests[:1], 5.0, *paths, "digest", "1" * 32)


@pytest.fixture
def worker(plan: WorkerPlan) -> Iterator[RemoteWorker]:
    made = RemoteWorker(Peer("w", _HELLO), plan)
    yield made
    made.close()


def _piece(data: bytes, offset: int = 0, stream: str = "journal", last: bool = False) -> Piece:
    return Piece(stream, offset, data, xxh3_64_intdigest(data), last)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (_HELLO, "hello: a second one"),
        (Progress(3), "progress: 3 requests sent, of 2"),
        (Finished(3, 0, None), "finished: 3 requests sent, of 2"),
        (Finished(2, 0, replace(_USAGE, opened=-1)), "finished: the use of its connections has impossible numbers"),
        (Finished(2, 0, replace(_USAGE, total_wait_ns=1 << 60)), "finished: the use of its connections has impossible numbers"),
        (_piece(b"x"), "piece: journal before the start"),
        (_piece(b"x", stream="plan"), "piece: of an unknown stream plan"),
        (_piece(b"x", stream="../x"), "piece: of an unknown stream ../x"),
        (Received("plan", 1, False), "received: 1 bytes of plan, of which 0 were sent"),
        (Received("journal", 0, False), "received: of an unknown stream journal"),
        (WorkerReady(), "ready: without its plan"),
        (WorkerReady(("a", "b"), "problem"), "ready: 2 failures of 1 warm-up requests"),
        (PlanConfirmed("another", "digest"), "confirmed: of a plan that is not its own"),
    ],
)
def test_an_impossible_message_has_no_effect(worker: RemoteWorker, message: FromWorker, reason: str) -> None:
    with pytest.raises(BadMessageError) as raised:
        worker.take(message, 0)
    assert str(raised.value) == reason
    assert (worker.sent, worker.ready, worker.finished, worker.has_begun) == (0, None, None, False)


def test_a_whole_plan_of_another_length_is_not_believed(worker: RemoteWorker) -> None:
    (piece,) = worker.due(0)
    with pytest.raises(BadMessageError, match="as all of plan"):
        worker.take(Received("plan", len(piece.data) - 1, True), 0)
    worker.take(Received("plan", len(piece.data), True), 0)
    assert not list(worker.due(10**12))


def test_a_worker_with_another_plan_is_lost_and_has_to_stop(worker: RemoteWorker) -> None:
    with pytest.raises(BadMessageError):
        worker.take(PlanConfirmed("another", "digest"), 0)
    assert worker.is_abandoned
    assert "confirmed a plan that is not its own" in worker.end_reason


def test_what_follows_the_end_changes_nothing(worker: RemoteWorker, plan: WorkerPlan) -> None:
    worker.take(PlanConfirmed(hashlib.sha256(encode_plan(plan)).hexdigest(), "digest"), 0)
    worker.take(WorkerReady(("a",)), 0)
    worker.take(WorkerReady(()), 0)
    assert worker.ready == WorkerReady(("a",))
    worker.expect_start()
    worker.take(_piece(b"abc", last=True), 0)
    with pytest.raises(BadMessageError, match="journal goes on after its last piece"):
        worker.take(_piece(b"def", 3), 0)
    assert worker.take(_piece(b"abc", last=True), 0) == Received("journal", 3, True)  # sent again: acknowledged again
    worker.take(_piece(b"", stream="samples", last=True), 0)
    worker.take(Finished(2, 0, _USAGE), 0)
    worker.take(Finished(1, -9, None), 0)
    assert (worker.sent, worker.usage, worker.is_alive) == (2, _USAGE, False)
    assert plan.journal.read_bytes() == b"abc"


def test_reports_of_a_journal_are_kept_in_bounded_memory(worker: RemoteWorker) -> None:
    for _ in range(1_000):
        worker.take(JournalProblem("disk full"), 0)
    failures = list(worker.journal_failures())
    assert len(failures) == 16
    assert failures[0].problem == f"{worker.name}: disk full"
