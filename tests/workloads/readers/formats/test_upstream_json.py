"""Upstream's dataset shape: input, instruction, output."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from workloads.elements.errors import DatasetError

_ROW = {"input": "Some text.", "instruction": "Sum it up.", "output": "A sum."}
_FIELDS = tuple(_ROW)
Rows = Callable[..., list[dict[str, Any]]]


def test_the_prompt_is_input_space_instruction_and_the_answer_is_output(rows: Rows) -> None:
    assert rows(_ROW) == [{"prompt": "Some text. Sum it up.", "answer": "A sum."}]


def test_rows_keep_their_order(rows: Rows) -> None:
    documents = [{"input": str(k), "instruction": "i", "output": "o"} for k in range(3)]
    assert [row["prompt"] for row in rows(*documents)] == ["0 i", "1 i", "2 i"]


def test_white_space_inside_a_prompt_and_in_the_answer_is_kept(rows: Rows) -> None:
    row = {"input": "a\n\n  b", "instruction": "c\td", "output": " two  words \n"}
    assert rows(row) == [{"prompt": "a\n\n  b c\td", "answer": " two  words \n"}]


@pytest.mark.parametrize(
    ("text", "instruction", "prompt"),
    [("", "Say hi", " Say hi"), ("Text", "", "Text "), ("\n    indented code", "Explain.\n", "\n    indented code Explain.\n")],
)
def test_the_ends_of_a_prompt_are_kept_as_upstream_keeps_them(rows: Rows, text: str, instruction: str, prompt: str) -> None:
    assert rows({"input": text, "instruction": instruction, "output": "o"})[0]["prompt"] == prompt


def test_extra_fields_are_ignored(rows: Rows) -> None:
    assert rows({**_ROW, "id": 7, "category": None}) == rows(_ROW)


def test_lines_are_read_as_an_array_is(rows: Rows) -> None:
    assert rows(_ROW, _ROW, lines=True) == rows(_ROW, _ROW)


@pytest.mark.parametrize("field", _FIELDS)
def test_a_missing_field_is_named_with_its_row(rows: Rows, field: str) -> None:
    row = {name: text for name, text in _ROW.items() if name != field}
    with pytest.raises(DatasetError, match=f'data.json, row 3: the field "{field}" is missing$'):
        rows(_ROW, _ROW, row)


@pytest.mark.parametrize("field", _FIELDS)
@pytest.mark.parametrize(
    ("value", "found"), [(None, "NoneType"), (3, "int"), (1.5, "float"), (True, "bool"), ([], "list"), ({}, "dict")]
)
def test_a_field_of_the_wrong_type_is_named_with_its_row_and_what_was_found(
    rows: Rows, field: str, value: Any, found: str
) -> None:
    with pytest.raises(DatasetError, match=f'data.json, row 2: "{field}" must be a string, found {found}$'):
        rows(_ROW, {**_ROW, field: value})


@pytest.mark.parametrize(("row", "found"), [([], "list"), ("text", "str"), (None, "NoneType"), (4, "int")])
def test_a_row_that_is_no_object_is_named(rows: Rows, row: Any, found: str) -> None:
    with pytest.raises(DatasetError, match=f"data.json, row 2: expected an object, found {found}"):
        rows(_ROW, row)


def test_an_empty_prompt_is_named_with_its_row(rows: Rows) -> None:
    with pytest.raises(DatasetError, match="row 2: the prompt is empty"):
        rows(_ROW, {"input": "", "instruction": "\n", "output": "x"})


@pytest.mark.parametrize("field", _FIELDS)
def test_one_field_is_enough_to_recognise_the_shape(rows: Rows, field: str) -> None:
    # a row with a misspelt field gets an error with the name of the missing one
    with pytest.raises(DatasetError, match="is missing"):
        rows({field: "x"})


def test_half_a_surrogate_pair_is_named_with_its_row(rows: Rows) -> None:
    with pytest.raises(DatasetError, match='row 2: character 1 of "input" is half a surrogate pair'):
        rows(_ROW, {**_ROW, "input": "x\ud83e"})


def test_a_repeated_key_is_named_with_its_row(read: Callable[..., Any]) -> None:
    text = json.dumps([_ROW, _ROW]).replace('"output"', '"input"', 1)
    reading = read(text.encode())
    assert [str(reject) for reject in reading.rejects.first] == [
        "Reject(where='row 1', reason=\"the key 'input' occurs twice in an object\")"
    ]
    assert len(reading.workload) == 1
