"""Request bodies of OpenAI's chat API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from workloads.elements.errors import DatasetError

Rows = Callable[..., list[dict[str, Any]]]


def _messages(*pairs: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in pairs], **more}


def test_the_last_message_of_the_user_is_the_prompt_and_those_before_it_its_history(rows: Rows) -> None:
    body = _messages(("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "c"))
    history = [{"role": r, "content": c} for r, c in (("system", "s"), ("user", "a"), ("assistant", "b"))]
    assert rows(body, lines=True) == [{"prompt": "c", "history": history}]


def test_the_message_behind_the_prompt_is_its_answer(rows: Rows) -> None:
    assert rows(_messages(("user", "a"), ("assistant", "b"))) == [{"prompt": "a", "answer": "b"}]


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens", "output_length"])
def test_the_requested_length_is_the_output_length(rows: Rows, field: str) -> None:
    assert rows(_messages(("user", "a"), **{field: 7, "temperature": 0.5})) == [{"prompt": "a", "output_tokens": 7}]


def test_parts_of_text_are_joined_and_null_is_empty(rows: Rows) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    row = rows(_messages(("assistant", None), ("user", parts)))[0]
    assert (row["prompt"], row["history"]) == ("ab", [{"role": "assistant", "content": ""}])


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"messages": "a"}, '"messages" must be a list'),
        ({"messages": []}, "none of the user"),
        (_messages(("user", "a"), message_mode="delta"), "messages that follow answers of a session are not read"),
        (_messages(("system", "a")), "none of the user"),
        (_messages(("user", "")), "the prompt is empty"),
        (_messages(("user", 4)), '"content" must be a string, found int'),
        ({"messages": ["a"]}, "expected an object, found str"),
        ({"messages": [{"content": "a"}]}, 'message 1 must have the string "role"'),
        (_messages(("user", [{"type": "image_url", "image_url": "x"}])), "message 1 has a part that is not text"),
        (_messages(("user", "a"), max_tokens=-1), '"max_tokens" must be a whole number'),
        (_messages(("user", "a"), max_tokens=1e300), '"max_tokens" must be a whole number'),
        (_messages(("user", "a"), max_tokens=True), '"max_tokens" must be a whole number'),
    ],
)
def test_what_is_no_request_is_named_with_its_line(rows: Rows, body: Any, problem: str) -> None:
    with pytest.raises(DatasetError, match=f"line 2: .*{problem}"):
        rows(_messages(("user", "a")), body, lines=True)
