"""The ShareGPT shape: conversations, of which every human turn is a row."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.elements.errors import DatasetError
from workloads.readers.formats.sharegpt import session_turns
from workloads.readers.text_rows import Message

Rows = Callable[..., list[dict[str, Any]]]


def _turns(*pairs: tuple[str, str], name: str = "x") -> dict[str, Any]:
    return {"id": name, "conversations": [{"from": speaker, "value": text} for speaker, text in pairs]}


_GOOD = _turns(("human", "Hi"), ("gpt", "Hello"))
_GOOD_ROW = {"session": "x", "prompt": "Hi", "answer": "Hello"}


def test_every_human_turn_is_a_row_that_waits_for_the_one_before(rows: Rows) -> None:
    conversation = _turns(("human", "Hi"), ("gpt", "Hello"), ("human", "More"), ("gpt", "No"), name="y")
    assert rows(_GOOD, conversation) == [
        _GOOD_ROW,
        {"session": "y", "prompt": "Hi", "answer": "Hello"},
        {"session": "y", "parent": 1, "prompt": "More", "answer": "No"},
    ]


@pytest.mark.parametrize("opening", ["gpt", "assistant", "tool"])
def test_turns_before_the_first_human_turn_are_left_out(rows: Rows, opening: str) -> None:
    assert rows(_turns((opening, "preface"), ("human", "Hi"), ("gpt", "Hello"))) == [_GOOD_ROW]


def test_a_leading_system_prompt_is_history(rows: Rows) -> None:
    conversation = _turns(("system", "Be kind."), ("gpt", "preface"), ("human", "Hi"), ("gpt", "Hello"))
    assert rows(conversation) == [_GOOD_ROW | {"history": [{"role": "system", "content": "Be kind."}]}]


@pytest.mark.parametrize("human", ["human", "user", "Human", "USER"])
@pytest.mark.parametrize("assistant", ["gpt", "assistant", "chatgpt", "bard", "bing", "GPT"])
def test_speakers_go_by_several_names(rows: Rows, human: str, assistant: str) -> None:
    assert rows(_turns((human, "Hi"), (assistant, "Hello"))) == [_GOOD_ROW]


def test_a_human_turn_without_an_answer_is_history_of_the_next(rows: Rows) -> None:
    row = {"session": "x", "prompt": "Anyone?", "answer": "Hello", "history": [{"role": "user", "content": "Hi"}]}
    assert rows(_turns(("human", "Hi"), ("human", "Anyone?"), ("gpt", "Hello"))) == [row]


def test_a_second_answer_is_history_of_the_next_turn(rows: Rows) -> None:
    conversation = _turns(("human", "a"), ("gpt", "b"), ("gpt", "c"), ("human", "d"), ("gpt", "e"))
    assert [(row["prompt"], row["answer"], row.get("history")) for row in rows(conversation)] == [
        ("a", "b", None),
        ("d", "e", [{"role": "assistant", "content": "c"}]),
    ]


def test_the_last_human_turn_may_have_no_answer(rows: Rows) -> None:
    assert rows(_turns(("human", "Hi"))) == [{"session": "x", "prompt": "Hi"}]


def test_empty_messages_are_left_out(rows: Rows) -> None:
    conversation = _turns(("human", ""), ("gpt", "x"), ("human", "Hi"), ("gpt", " "), ("gpt", "Hello"))
    assert rows(conversation) == [_GOOD_ROW]


def test_known_variants_are_read_alike(rows: Rows) -> None:
    roles = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    for variant in ({"conversation": _GOOD["conversations"]}, {"conversations": roles}, {"conversation": roles, "image": "x"}):
        assert rows({"id": "x", **variant}) == [_GOOD_ROW]


def test_conversations_without_a_name_or_with_the_same_one_are_told_apart(rows: Rows) -> None:
    unnamed = {"conversations": _GOOD["conversations"]}
    assert [row["session"] for row in rows(_GOOD, _GOOD, unnamed, {**unnamed, "id": 7})] == ["x", "x (row 2)", "row 3", "row 4"]


@pytest.mark.parametrize(
    "row", [_turns(), _turns(("gpt", "Hello")), _turns(("system", "s"), ("gpt", "Hello")), _turns(("human", ""))]
)
def test_a_conversation_without_a_human_turn_is_left_out_and_counted(read: Callable[..., Any], row: dict[str, Any]) -> None:
    reading = read(json.dumps([row, _GOOD]).encode(), strict=True)
    assert len(reading.workload) == 1
    assert reading.workload.facts.rejected_rows == reading.rejects.count == 1
    assert reading.rejects.first[0].where == "row 1"


@pytest.mark.parametrize("field", ["image", "images", "video"])
def test_a_conversation_with_images_is_read_without_them_and_counted(read: Callable[..., Any], field: str) -> None:
    empty = {**_turns(("gpt", "no turn")), field: "a.jpg"}
    reading = read(json.dumps([_GOOD, {**_GOOD, field: ["a.jpg"]}, {**_GOOD, field: []}, empty]).encode())
    assert len(reading.workload) == 3
    assert list(reading.rejects.sentences())[1:] == [f"{reading.rejects.path}: 1 row has images or videos, which are not sent"]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (7, "row 2: expected an object, found int"),
        ({"id": "x"}, 'row 2: the field "conversations" is missing'),
        ({"conversations": None}, 'row 2: "conversations" must be a list, found NoneType'),
        ({"conversation": "Hi"}, 'row 2: "conversation" must be a list, found str'),
        ({"conversations": [{"from": "human", "value": "Hi"}, 5]}, "row 2: turn 2 must be an object"),
        ({"conversations": [{"from": "human"}]}, "row 2: turn 1 must be an object"),
        ({"conversations": [{"from": "human", "value": None}]}, "row 2: turn 1 must be an object"),
        ({"conversations": [{"from": 1, "value": "Hi"}]}, "row 2: turn 1 must be an object"),
        ({"conversations": [{"from": "human", "content": "Hi"}]}, "row 2: turn 1 must be an object"),
        (_turns(("human", "\ud83e")), "row 2: character 0"),
    ],
)
def test_what_is_no_conversation_is_named_with_row_and_turn(rows: Rows, row: Any, problem: str) -> None:
    with pytest.raises(DatasetError, match=problem):
        rows(_GOOD, row)


@given(st.lists(st.sampled_from(["user", "assistant", "system", "tool"]), max_size=12))
def test_every_turn_waits_for_the_turn_before_it_and_nothing_said_since_is_lost(roles: list[str]) -> None:
    messages = [Message(role, str(number)) for number, role in enumerate(roles)]
    turns = session_turns(messages, "s", 10)
    assert [turn.parent for turn in turns] == [None, *range(10, 9 + len(turns))][: len(turns)]
    said = [int(text) for turn in turns for text in (*(m.content for m in turn.history), turn.prompt, turn.answer) if text]
    assert said == sorted(set(said))
    if said:
        assert set(said) >= set(range(roles.index("user"), said[-1] + 1))
