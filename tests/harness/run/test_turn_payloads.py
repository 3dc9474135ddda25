"""Which answers later turns may wait for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench_records.record import Outcome
from harness.clients.openai_chat import OpenAIChatClient
from harness.clients.openai_responses import OpenAIResponsesClient
from harness.clients.transport.url import Origin
from harness.journal.worker_journal import Exchange
from harness.run.routing import Payload
from harness.run.turn_payloads import AnsweredTurns, RecordedTurns
from tests.harness.chat_server import chunk
from workloads.elements.request import Message, Request

_DELTA = {"type": "response.output_text.delta", "delta": "All of it"}
_COMPLETED = {"type": "response.completed", "response": {"object": "response", "status": "completed"}}
_FAILED = {"type": "response.failed", "response": {"status": "failed", "error": {"message": "it broke"}}}
_ITEM_DONE = {"type": "response.output_item.done"}


@pytest.mark.parametrize("after", [[], [b"[DONE]"], [json.dumps(_ITEM_DONE).encode(), b"[DONE]"]])
@pytest.mark.parametrize(("last", "answered"), [(_COMPLETED, True), (_FAILED, False)])
def test_a_failed_turn_is_no_answer_where_a_gateway_adds_an_end_marker(
    last: dict[str, Any], answered: bool, after: list[bytes]
) -> None:
    bodies = [json.dumps(event).encode() for event in (_DELTA, last)] + after
    exchange = Exchange(0, 0, 0, 10, 9_000, list(range(len(bodies))), bodies, None, None)
    client = OpenAIResponsesClient(Origin("http", "127.0.0.1", 8000), "llama")
    first, second = (Payload(0, (name,)) for name in (b"first", b"second"))
    turns = RecordedTurns([first, second], [client])
    assert turns.answered(exchange) is answered
    assert turns.behind(exchange, 0, 1) == (second if answered else None)


_NO_MARKER = "the stream ended without [DONE]"
_TEXT, _END = chunk(content="All of it"), chunk(reason="stop")
_CHAT = OpenAIChatClient(Origin("http", "127.0.0.1", 8000), "m")
_EXPECTING = OpenAIChatClient(Origin("http", "127.0.0.1", 8001), "m", sends_finish_reason=True)


@pytest.mark.parametrize(
    ("events", "missing", "target", "answered"),
    [
        ([_TEXT, _END], None, 0, True),
        ([_TEXT], None, 0, True),  # nothing shows that this target sends a finish_reason
        ([_TEXT], None, 1, False),
        ([_TEXT, _END], None, 1, True),
        ([_TEXT], _NO_MARKER, 0, False),
        ([_TEXT, _END], _NO_MARKER, 0, True),
        ([_TEXT, _END, '{"choices": [], "usa'], _NO_MARKER, 0, True),
        ([_TEXT, '{"choices": [{"fini'], _NO_MARKER, 0, False),
    ],
)
def test_an_answer_that_the_server_cut_is_none(
    events: list[dict[str, Any] | str], missing: str | None, target: int, answered: bool
) -> None:
    bodies = [(event if isinstance(event, str) else json.dumps(event)).encode() for event in events]
    exchange = Exchange(0, 0, 0, 10, 9_000, list(range(len(bodies))), bodies, None, missing, target=target)
    first, second = (Payload(0, (name,)) for name in (b"first", b"second"))
    turns = Request(9, prompt="a"), Request(9, prompt="b")
    for payloads in (
        RecordedTurns([first, second], [_CHAT, _EXPECTING]),
        AnsweredTurns(turns, lambda _place, _turn: second, [_CHAT, _EXPECTING]),
    ):
        assert payloads.answered(exchange) is answered
        assert payloads.behind(exchange, 0, 1) == (second if answered else None)


def _exchange(*events: dict[str, Any], failure: Outcome | None = None) -> Exchange:
    bodies = [json.dumps(event).encode() for event in events]
    return Exchange(0, 0, 0, 10, 9_000, list(range(len(bodies))), bodies, failure, None)


def test_a_turn_has_the_answers_of_the_server_before_it_and_nothing_of_another_conversation() -> None:
    sent: list[Request] = []

    def encode(place: int, request: Request) -> Payload:
        sent.append(request)
        return Payload(0, (str(place).encode(),))

    system, said, between = Message("system", "Be brief."), Message("assistant", "A tool."), Message("user", "Its result.")
    requests = [
        Request(9, prompt="one", session="a", history=(system,)),
        Request(9, prompt="two", session="a", history=(said, between)),
        Request(9, prompt="three", session="a"),
        Request(9, prompt="four", session="b"),
    ]
    turns = AnsweredTurns(requests, encode, [_CHAT])
    for place, text in enumerate(("First", "Second", "Third")):
        answer = _exchange(chunk(reasoning="Hm"), chunk(content=text), chunk(content="."), _END)
        assert turns.behind(answer, place, place + 1) == Payload(0, (str(place + 1).encode(),))
    first = (system, Message("user", "one"), Message("assistant", "First."))
    second = (*first, said, between, Message("user", "two"), Message("assistant", "Second."))
    assert [(request.prompt, request.history) for request in sent] == [
        ("two", (*first, said, between)),
        ("three", second),
        ("four", ()),
    ]


@pytest.mark.parametrize(
    ("exchange", "answered"),
    [
        (_exchange(_TEXT, _END), True),
        (_exchange(), False),
        (_exchange(_TEXT, failure=Outcome.TIMEOUT), False),
        (_exchange(_TEXT, failure=Outcome.WITHDRAWN), True),
        (_exchange(failure=Outcome.WITHDRAWN), True),  # cancelled before its first response
        (_exchange(_TEXT, {"error": {"message": "it broke"}}), False),
        (_exchange(_TEXT, {"choices": 5}), False),
    ],
)
def test_a_failure_is_no_answer_and_a_planned_cancellation_is_one(exchange: Exchange, answered: bool) -> None:
    second = Payload(0, (b"second",))
    turns = [Request(9, prompt="a"), Request(9, prompt="b")]
    assert AnsweredTurns(turns, lambda _place, _turn: second, [_CHAT]).answered(exchange) is answered
    assert RecordedTurns([second, second], [_CHAT]).answered(exchange) is answered
