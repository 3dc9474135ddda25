"""The ShareGPT shape: conversations, of which the first human turn and its answer are used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from workloads.dataset import read_dataset
from workloads.errors import DatasetError
from workloads.request import PromptRow
from workloads.sharegpt import read_rows, recognises

_FILE = Path("chat.json")
_FASTCHAT = Path(__file__).parents[2] / "../shared/data/fastchat_dummy_conversation.json"


def _turns(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"id": "x", "conversations": [{"from": speaker, "value": text} for speaker, text in pairs]}


def _read(*rows: Any) -> list[PromptRow]:
    return list(read_rows(rows, _FILE))


def test_the_first_human_turn_and_its_answer_are_used() -> None:
    row = _turns(("human", "Hi"), ("gpt", "Hello"), ("human", "More"), ("gpt", "No"))
    assert _read(row) == [PromptRow("Hi", "Hello", 1)]


@pytest.mark.parametrize("opening", ["gpt", "system", "assistant", "tool"])
def test_turns_before_the_first_human_turn_are_skipped(opening: str) -> None:
    assert _read(_turns((opening, "preface"), ("human", "Hi"), ("gpt", "Hello"))) == [PromptRow("Hi", "Hello", 1)]


@pytest.mark.parametrize("human", ["human", "user", "Human", "USER"])
@pytest.mark.parametrize("assistant", ["gpt", "assistant", "chatgpt", "bard", "bing", "GPT"])
def test_speakers_go_by_several_names(human: str, assistant: str) -> None:
    assert _read(_turns((human, "Hi"), (assistant, "Hello"))) == [PromptRow("Hi", "Hello", 1)]


def test_the_human_turn_right_before_the_answer_is_taken() -> None:
    assert _read(_turns(("human", "Hi"), ("human", "Anyone?"), ("gpt", "Hello"))) == [PromptRow("Anyone?", "Hello", 1)]


def test_known_variants_are_read_alike() -> None:
    plain = _read(_turns(("human", "Hi"), ("gpt", "Hello")))
    roles = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    assert _read({"conversation": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]}) == plain
    assert _read({"conversations": roles}) == plain
    assert _read({"conversation": roles, "image": "x.png"}) == plain


@pytest.mark.parametrize(
    "row",
    [
        _turns(),
        _turns(("human", "Hi")),
        _turns(("gpt", "Hello"), ("human", "Hi")),
        _turns(("system", "s"), ("gpt", "Hello")),
        _turns(("human", ""), ("gpt", "Hello")),
        _turns(("human", "Hi"), ("gpt", "")),
    ],
)
def test_a_conversation_without_a_usable_pair_is_skipped_and_the_others_keep_their_number(row: dict[str, Any]) -> None:
    good = _turns(("human", "Hi"), ("gpt", "Hello"))
    assert _read(row, good) == [PromptRow("Hi", "Hello", 2)]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (7, "row 2: expected an object, found int"),
        ({"id": "x"}, 'row 2: the field "conversations" is missing'),
        ({"conversations": None}, 'row 2: "conversations" must be a list of turns, found NoneType'),
        ({"conversation": "Hi"}, 'row 2: "conversation" must be a list of turns, found str'),
        ({"conversations": [{"from": "human", "value": "Hi"}, 5]}, "row 2, turn 2: a turn must be an object"),
        ({"conversations": [{"from": "human"}]}, "row 2, turn 1: a turn must be an object"),
        ({"conversations": [{"from": "human", "value": None}]}, "row 2, turn 1: a turn must be an object"),
        ({"conversations": [{"from": 1, "value": "Hi"}]}, "row 2, turn 1: a turn must be an object"),
        ({"conversations": [{"from": "human", "content": "Hi"}]}, "row 2, turn 1: a turn must be an object"),
    ],
)
def test_what_is_no_conversation_is_named_with_row_and_turn(row: Any, problem: str) -> None:
    with pytest.raises(DatasetError) as raised:
        _read(_turns(("human", "Hi"), ("gpt", "Hello")), row)
    assert str(raised.value).startswith(f"chat.json, {problem}")


@pytest.mark.parametrize("key", ["conversations", "conversation"])
def test_the_shape_is_recognised_by_its_key(key: str) -> None:
    assert recognises({key: []})
    assert not recognises({"input": "", "instruction": "", "output": ""})


@pytest.mark.skipif(not _FASTCHAT.is_file(), reason="the shared data is not on this machine")
def test_the_real_fastchat_file_is_read_whole() -> None:
    rows = read_dataset(_FASTCHAT)
    assert len(rows) == 500
    assert [row.row for row in rows] == list(range(1, 501))
    assert rows[0] == PromptRow(
        "Who are you?",
        "I am Vicuna, a language model trained by researchers from Large Model Systems Organization (LMSYS).",
        1,
    )
    assert all(row.prompt and row.answer for row in rows)
