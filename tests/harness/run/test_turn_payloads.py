"""Which answers later turns may wait for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.clients.openai_responses import OpenAIResponsesClient
from harness.clients.transport.url import Origin
from harness.journal.worker_journal import Exchange
from harness.run.turn_payloads import RecordedTurns

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
    turns = RecordedTurns([b"first", b"second"], client)
    assert turns.answered(exchange) is answered
    assert turns.behind(exchange, 0, 1) == (b"second" if answered else None)
