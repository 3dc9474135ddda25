"""Upstream's dataset shape: input, instruction, output."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from workloads.errors import DatasetError
from workloads.request import PromptRow
from workloads.upstream_json import FIELDS, read_rows, recognises

_FILE = Path("data.json")
_ROW = {"input": "Some text.", "instruction": "Sum it up.", "output": "A sum."}


def _read(*rows: Any) -> list[PromptRow]:
    return list(read_rows(rows, _FILE))


def test_the_prompt_is_input_space_instruction_and_the_answer_is_output() -> None:
    assert _read(_ROW) == [PromptRow("Some text. Sum it up.", "A sum.", 1)]


def test_rows_keep_their_order_and_number() -> None:
    rows = [{"input": str(k), "instruction": "i", "output": "o"} for k in range(3)]
    assert [(row.prompt, row.row) for row in _read(*rows)] == [("0 i", 1), ("1 i", 2), ("2 i", 3)]


def test_white_space_inside_a_prompt_and_in_the_answer_is_kept() -> None:
    row = {"input": "a\n\n  b", "instruction": "c\td", "output": " two  words \n"}
    assert _read(row) == [PromptRow("a\n\n  b c\td", " two  words \n", 1)]


@pytest.mark.parametrize(
    ("text", "instruction", "prompt"),
    [("", "Say hi", " Say hi"), ("Text", "", "Text "), ("\n    indented code", "Explain.\n", "\n    indented code Explain.\n")],
)
def test_the_ends_of_a_prompt_are_kept_as_upstream_keeps_them(text: str, instruction: str, prompt: str) -> None:
    assert _read({"input": text, "instruction": instruction, "output": "o"})[0].prompt == prompt


def test_extra_fields_are_ignored() -> None:
    assert _read({**_ROW, "id": 7, "category": None}) == _read(_ROW)


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_is_named_with_its_row(field: str) -> None:
    row = {name: text for name, text in _ROW.items() if name != field}
    with pytest.raises(DatasetError, match=f'^data.json, row 3: the field "{field}" is missing$'):
        _read(_ROW, _ROW, row)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    ("value", "found"), [(None, "NoneType"), (3, "int"), (1.5, "float"), (True, "bool"), ([], "list"), ({}, "dict")]
)
def test_a_field_of_the_wrong_type_is_named_with_its_row_and_what_was_found(field: str, value: Any, found: str) -> None:
    with pytest.raises(DatasetError, match=f'^data.json, row 2: "{field}" must be a string, found {found}$'):
        _read(_ROW, {**_ROW, field: value})


@pytest.mark.parametrize(("row", "found"), [([], "list"), ("text", "str"), (None, "NoneType"), (4, "int")])
def test_a_row_that_is_no_object_is_named(row: Any, found: str) -> None:
    with pytest.raises(DatasetError, match=re.escape(f"data.json, row 2: expected an object, found {found}")):
        _read(_ROW, row)


@pytest.mark.parametrize("field", FIELDS)
def test_one_field_is_enough_to_recognise_the_shape(field: str) -> None:
    # a row with a misspelt field gets an error with the name of the missing one
    assert recognises({field: "x"})


def test_another_shape_is_not_recognised() -> None:
    assert not recognises({"conversations": [], "id": "x"})
    assert not recognises({})
