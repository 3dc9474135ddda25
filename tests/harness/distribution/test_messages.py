from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.protocol import ConnectionUsage
from harness.clients.registry import KnownClient
from harness.clients.transport.url import Origin
from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.model import TritonModel
from harness.distribution.byte_streams import Piece, Received
from harness.distribution.dropped_messages import BadMessageError
from harness.distribution.messages import (
    Dismissed,
    Finished,
    FromWorker,
    Hello,
    JournalProblem,
    PlanConfirmed,
    Progress,
    SetCommand,
    StartAt,
    ToWorker,
    WorkerReady,
    decode_from_worker,
    decode_plan,
    decode_to_worker,
    encode,
    encode_plan,
)
from harness.journal.worker_journal import Ended
from harness.run.worker import WorkerPlan
from workloads.request import CancelPoint, Message, Request, Variant
from workloads.schedule import AnyPart, ClosedPart, HistorySource, OpenPart, SessionPart
from workloads.token_ids import token_ids

_MODEL = TritonModel("m", True, frozenset({"input_ids"}), frozenset(), ())
_CLIENTS: tuple[KnownClient, ...] = (
    TritonGrpcClient("h:1", _MODEL, True),
    OpenAIChatClient(Origin("http", "h", 80), "m", True, "/v1", {"Authorization": "Bearer x"}, {"top_k": 1}),
)
_PARTS: tuple[AnyPart, ...] = (
    OpenPart((1, 3, 4), (5, 6, 7), 7),
    ClosedPart((1, 3, 4), (0, 4), 99),
    SessionPart((1, 3, 4), (5, None, 6), (None, 0, None), (0, 3, 0), HistorySource.SERVER),
)


@pytest.mark.parametrize("part", _PARTS, ids=lambda part: type(part).__name__)
@pytest.mark.parametrize("client", _CLIENTS, ids=lambda client: type(client).__name__)
def test_a_plan_arrives_as_it_was_but_for_the_places_of_its_files(client: KnownClient, part: AnyPart) -> None:
    requests = [
        Request(3, "hé", ignore_eos=True, session="s", history=(Message("user", "x"), Message("assistant", "y"))),
        Request(4, input_ids=token_ids([1, 2, 2**31 - 1, 2**40]), input_tokens=4),
        Request(5, "p", traffic_class="chat", variant=Variant("llama", 7), cancel=CancelPoint(after_tokens=3)),
    ]
    plan = WorkerPlan(5, client, part, requests, [Request(1, input_ids=(4, 5))], 5.0, Path("/a"), Path("/b"), "digest", core=3)
    arrived = decode_plan(encode_plan(plan), Path("/there"))
    assert (arrived.journal, arrived.probe, arrived.core) == (Path("/there/journal-5.bin"), Path("/there/probe-5.bin"), None)
    assert (arrived.client, arrived.part, arrived.worker, arrived.timeout_s) == (client, part, 5, 5.0)
    assert list(arrived.requests) == requests
    assert list(arrived.warm_up) == list(plan.warm_up)
    assert arrived.schedule_digest == "digest"


@given(st.binary(max_size=60))
def test_bytes_that_are_no_plan_raise_nothing_else(data: bytes) -> None:
    with pytest.raises(BadMessageError):
        decode_plan(data, Path("/x"))


@pytest.mark.parametrize(
    "message",
    [
        Hello(1, "0.1.0", "host", 2.0),
        PlanConfirmed("ab", "cd"),
        WorkerReady(("refused",), None),
        Progress(3),
        JournalProblem("disk full", Ended(3, "why", (1, 2))),
        Finished(3, -9, ConnectionUsage(1, 2, 3, 4, None, 5)),
        Piece("journal", 3, b"\x00\xff", 7, True),
        Received("plan", 9, True),
    ],
)
def test_messages_from_a_worker_arrive_as_they_were(message: FromWorker) -> None:
    assert decode_from_worker(encode(message)) == message


@pytest.mark.parametrize(
    "message", [StartAt(-5), SetCommand(2), Dismissed(), Dismissed("late"), Piece("plan", 0, b"", 1, True)]
)
def test_messages_to_a_worker_arrive_as_they_were(message: ToWorker) -> None:
    assert decode_to_worker(encode(message)) == message
