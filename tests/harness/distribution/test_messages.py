from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.openai_completions import OpenAICompletionsClient
from harness.clients.openai_responses import OpenAIResponsesClient
from harness.clients.protocol import ConnectionUsage
from harness.clients.transport.url import Origin
from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.http_infer import TritonHttpInferClient
from harness.clients.triton.model import TritonModel
from harness.clients.vllm_tokens import VllmTokensClient
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
    check_run,
    decode_from_worker,
    decode_plan,
    decode_to_worker,
    encode,
    encode_plan,
    pack,
    unpack,
)
from harness.journal.worker_journal import Ended
from harness.protocols.known_client import KnownClient
from harness.run.worker import WorkerPlan
from workloads.elements.request import CancelPoint, HistorySource, Message, Request, Variant
from workloads.elements.token_ids import token_ids
from workloads.schedule.schedule import AnyPart, ClosedPart, OpenPart, SessionPart

_RUN_ID = "0123456789abcdef" * 2
_MODEL = TritonModel("m", True, frozenset({"input_ids"}), frozenset(), ())
_CLIENTS: tuple[KnownClient, ...] = (
    TritonGrpcClient("h:1", _MODEL, True),
    OpenAIChatClient(Origin("http", "h", 80), "m", path="/v1", headers={"Authorization": "Bearer x"}, extra={"top_k": 1}),
    OpenAICompletionsClient(Origin("http", "h", 80), "m", token_ids=True),
    OpenAIResponsesClient(Origin("http", "h", 80), "m"),
    VllmTokensClient(Origin("http", "h", 80), "m"),
    TritonHttpInferClient(Origin("http", "h", 80), _MODEL, False),
)
_PARTS: tuple[AnyPart, ...] = (
    OpenPart((1, 3, 4), (5, 6, 7), 7),
    ClosedPart((1, 3, 4), (0, 4), 99),
    SessionPart((1, 3, 4), (5, None, 6), (None, 0, None), (0, 3, 0), HistorySource.SERVER),
    SessionPart((1, 3, 4), (5, None, None), (None, 0, 0), (0, 3, 0), joins=((), (), (1,))),
)


@pytest.mark.parametrize("part", _PARTS, ids=lambda part: type(part).__name__)
@pytest.mark.parametrize("client", _CLIENTS, ids=lambda client: type(client).__name__)
def test_a_plan_arrives_as_it_was_but_for_the_places_of_its_files(client: KnownClient, part: AnyPart) -> None:
    requests = [
        Request(3, "hé", ignore_eos=True, session="s", history=(Message("user", "x"), Message("assistant", "y"))),
        Request(4, input_ids=token_ids([1, 2, 2**31 - 1, 2**40]), input_tokens=4),
        Request(5, "p", traffic_class="chat", variant=Variant("llama", 7), cancel=CancelPoint(after_tokens=3)),
    ]
    plan = WorkerPlan(
        5, client, part, requests, [Request(1, input_ids=(4, 5))], 5.0, Path("/a"), Path("/b"), "digest", _RUN_ID, core=3
    )
    arrived = decode_plan(encode_plan(plan), Path("/there"))
    own = Path(f"/there/{_RUN_ID}-5")  # of this run and worker alone
    assert (arrived.journal, arrived.samples, arrived.core) == (own / "journal-5.bin", own / "samples-5.bin", None)
    assert arrived.run_id == _RUN_ID
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
    run_id, data = unpack(pack(_RUN_ID, message))
    assert (run_id, decode_from_worker(data)) == (_RUN_ID, message)


@pytest.mark.parametrize(
    "message", [StartAt(-5), SetCommand(2), Dismissed(), Dismissed("late"), Piece("plan", 0, b"", 1, True)]
)
def test_messages_to_a_worker_arrive_as_they_were(message: ToWorker) -> None:
    run_id, data = unpack(pack(_RUN_ID, message))
    assert (run_id, decode_to_worker(data)) == (_RUN_ID, message)


@pytest.mark.parametrize("run_id", ["", "../" * 11, "0" * 31, "0" * 33, "A" * 32, "0" * 32 + "\n", 7])
def test_what_is_no_identity_of_a_run_is_refused(run_id: object) -> None:
    """It becomes a part of the name of a folder."""
    with pytest.raises(msgspec.ValidationError):
        unpack(encode((run_id, Progress(1))))


def test_a_message_of_another_run_is_refused_by_its_name() -> None:
    check_run(_RUN_ID, _RUN_ID, Progress(1))
    check_run(None, None, Progress(1))
    with pytest.raises(BadMessageError, match=rf"Progress: of another run \({_RUN_ID}\)"):
        check_run(_RUN_ID, "f" * 32, Progress(1))
    with pytest.raises(BadMessageError, match="Progress: of no run"):
        check_run(None, _RUN_ID, Progress(1))
