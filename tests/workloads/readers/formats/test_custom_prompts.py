"""Rows with prompt and output_tokens, and rows with turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from workloads.elements.errors import DatasetError
from workloads.readers.detect import Reading

Rows = Callable[..., list[dict[str, Any]]]


def test_prompts_with_times_are_sorted_by_arrival_and_wait_within_their_session(rows: Rows) -> None:
    assert rows(
        {"timestamp": 1_700_000_002_000, "text_input": "c", "session_id": 7, "output_length": 3, "delay": 250},
        {"timestamp": 1_700_000_000_000, "text_input": "a", "session_id": 7},
        {"timestamp": 1_700_000_001_000.5, "prompt": "b", "session_id": "s"},
        lines=True,
    ) == [
        {"arrival_ns": 0, "prompt": "a", "session": "7"},
        {"arrival_ns": 1_000_500_000, "prompt": "b", "session": "s"},
        {
            "arrival_ns": 2_000_000_000, "prompt": "c", "session": "7", "parent": 0, "output_tokens": 3,
            "think_time_ns": 250_000_000,
        },
    ]  # fmt: skip


def test_whole_numbers_that_pandas_wrote_as_floats_are_read(rows: Rows) -> None:
    assert rows({"prompt": "a", "session_id": 7.0, "output_tokens": 5.0}, {"prompt": "b", "session_id": 7}, lines=True) == [
        {"prompt": "a", "session": "7", "output_tokens": 5},
        {"prompt": "b", "session": "7", "parent": 0},
    ]


def test_a_conversation_needs_no_times(rows: Rows) -> None:
    assert rows({"prompt": "a", "session_id": "x"}, {"prompt": "b", "session_id": "x"}, lines=True) == [
        {"prompt": "a", "session": "x"},
        {"prompt": "b", "session": "x", "parent": 0},
    ]


@pytest.mark.parametrize("field", ["prefix", "system_prompt", "system"])
def test_the_prefix_of_guidellm_is_a_system_prompt(rows: Rows, field: str) -> None:
    assert rows({field: "Be brief.", "prompt": "a"}, {field: "", "prompt": "b"}, {field: None, "prompt": "c"}) == [
        {"history": [{"role": "system", "content": "Be brief."}], "prompt": "a"},
        {"prompt": "b"},
        {"prompt": "c"},
    ]


def test_a_conversation_has_its_system_prompt_once(rows: Rows) -> None:
    first, second = ([{"role": "system", "content": text}] for text in ("Be brief.", "Be long."))
    assert rows(
        {"prefix": "Be brief.", "prompt": "a", "session_id": "x"},
        {"prefix": "Be brief.", "prompt": "b", "session_id": "x"},
        {"prefix": "Be brief.", "prompt": "c", "session_id": "y"},
        {"prefix": "Be long.", "prompt": "d", "session_id": "x"},
    ) == [
        {"history": first, "prompt": "a", "session": "x"},
        {"prompt": "b", "session": "x", "parent": 0},
        {"history": first, "prompt": "c", "session": "y"},
        {"history": second, "prompt": "d", "session": "x", "parent": 1},
    ]


def test_a_system_prompt_that_is_no_text_is_counted(read: Callable[..., Reading]) -> None:
    reading = read(b'{"prompt": "a"}\n{"prompt": "b", "prefix": 5}\n')
    assert str(reading.rejects).endswith('line 2: "prefix" must be a string, found int')


def test_a_row_without_a_time_among_others_with_one_is_counted(read: Callable[..., Reading]) -> None:
    reading = read(b'{"prompt": "a", "timestamp": 5}\n{"prompt": "b"}\n{"prompt": "c", "timestamp": 9}\n')
    assert reading.workload.table["prompt"].to_pylist() == ["a", "c"]
    assert str(reading.rejects).endswith('line 2: the field "timestamp" is missing, which other rows have')


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("timestamp", -1, '"timestamp" must be a time from 0'),
        ("timestamp", "5", '"timestamp" must be a time from 0'),
        ("delay", float("nan"), '"delay" must be a time from 0'),
        ("session_id", 1.5, '"session_id" must be a string or a whole number, found 1.5'),
    ],
)
def test_times_and_sessions_that_are_none_are_named(rows: Rows, field: str, value: Any, problem: str) -> None:
    with pytest.raises(DatasetError, match=problem):
        rows({"prompt": "a", field: value}, lines=True)


def test_prompts_may_have_a_length(rows: Rows) -> None:
    assert rows({"prompt": "a", "output_tokens": 5}, {"prompt": "b"}, {"prompt": "c", "max_tokens": 2}, lines=True) == [
        {"prompt": "a", "output_tokens": 5},
        {"prompt": "b"},
        {"prompt": "c", "output_tokens": 2},
    ]
    assert rows({"prompt": "a", "prompt_tokens_count": 1, "output_tokens_count": 4}) == [{"prompt": "a", "output_tokens": 4}]


@pytest.mark.parametrize("value", [-1, 10_000_001, 1.5, "5", True, float("nan"), float("inf"), [1], 10**400])
def test_a_length_that_is_none_is_named(rows: Rows, value: Any) -> None:
    with pytest.raises(DatasetError, match='line 2: "output_tokens" must be a whole number from 0 to 10,000,000, found'):
        rows({"prompt": "a"}, {"prompt": "a", "output_tokens": value}, lines=True)


@pytest.mark.parametrize(
    ("row", "problem"),
    [({"prompt": ""}, "the prompt is empty"), ({"prompt": None}, "must be a string"), ({"other": 1}, '"prompt" is missing')],
)
def test_a_row_without_a_prompt_is_named(rows: Rows, row: Any, problem: str) -> None:
    with pytest.raises(DatasetError, match=f"line 2: .*{problem}"):
        rows({"prompt": "a"}, row, lines=True)


@pytest.mark.parametrize(
    "row",
    [
        b'{"prompt": "a", "output_tokens": 0}',
        b'{"prompt": "a", "max_tokens": 0}',
        b'{"messages": [{"role": "user", "content": "a"}], "max_tokens": 0}',
    ],
)
def test_a_row_that_requests_no_output_is_left_out_and_counted(read: Callable[..., Reading], row: bytes) -> None:
    other = row.replace(b'"a"', b'"b"').replace(b": 0}", b": 3}")
    reading = read(row + b"\n" + other + b"\n", strict=True)
    assert reading.workload.table["prompt"].to_pylist() == ["b"]
    assert str(reading.rejects).endswith("1 row was not read; for example line 1: the row requests 0 output tokens")
