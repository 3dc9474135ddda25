"""Mooncake's traces with hashes of blocks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workloads.elements.errors import DatasetError
from workloads.readers.detect import read_workload_file

Read = Callable[..., Any]
Rows = Callable[..., list[dict[str, Any]]]


def _row(timestamp: Any, inputs: Any, outputs: Any, hashes: Any) -> dict[str, Any]:
    return {"timestamp": timestamp, "input_length": inputs, "output_length": outputs, "hash_ids": hashes}


_GOOD = _row(0, 600, 5, [0, 1])


def test_times_lengths_and_hashes_are_read(rows: Rows) -> None:
    assert rows(_GOOD, _row(2_500, 512, 7, [0]), lines=True) == [
        {"arrival_ns": 0, "input_tokens": 600, "output_tokens": 5, "block_hashes": [0, 1]},
        {"arrival_ns": 2_500_000_000, "input_tokens": 512, "output_tokens": 7, "block_hashes": [0]},
    ]


def test_the_partial_last_block_may_be_left_out(rows: Rows) -> None:
    assert rows(_row(0, 600, 5, [0]), lines=True)[0]["block_hashes"] == [0]


def test_rows_are_sorted_by_time(rows: Rows) -> None:
    read = rows(_row(9, 1, 1, [3]), _row(4, 2, 1, [4]), _row(9, 3, 1, [5]), lines=True)
    assert [(row["arrival_ns"], row["block_hashes"]) for row in read] == [(0, [4]), (5_000_000, [3]), (5_000_000, [5])]


def test_a_row_without_output_is_left_out(read: Read) -> None:
    content = "\n".join(map(json.dumps, [_GOOD, _row(1, 1, 0, [0])])).encode()
    assert read(content, strict=True).rejects.count == 1


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (_row(-1, 600, 5, [0, 1]), '"timestamp" must be a time'),
        (_row("0", 600, 5, [0, 1]), '"timestamp" must be a time'),
        (_row(float("nan"), 600, 5, [0, 1]), '"timestamp" must be a time'),
        (_row(1e300, 600, 5, [0, 1]), '"timestamp" must be a time'),
        (_row(10**30, 600, 5, [0, 1]), '"timestamp" must be a time'),
        (_row(0, -600, 5, [0, 1]), '"input_length" must be a whole number'),
        (_row(0, 600.5, 5, [0, 1]), '"input_length" must be a whole number'),
        (_row(0, 600, None, [0, 1]), '"output_length" must be a whole number'),
        (_row(0, 600, 5, [0, 1, 2]), '"hash_ids" has 3 blocks, and "input_length" 600 needs 2'),
        (_row(0, 6000, 5, [0, 1, 2]), '"hash_ids" has 3 blocks, and "input_length" 6000 needs 12'),
        (_row(0, 600, 5, [0, "1"]), '"hash_ids" must be a list of 64-bit integers'),
        (_row(0, 600, 5, [0, 1.5]), '"hash_ids" must be a list of 64-bit integers'),
        (_row(0, 600, 5, [0, 2**64]), '"hash_ids" must be a list of 64-bit integers'),
        (_row(0, 600, 5, {"0": 1}), '"hash_ids" must be a list, found dict'),
        ({"timestamp": 0, "input_length": 600, "output_length": 5}, 'the field "hash_ids" is missing'),
    ],
)
def test_a_malformed_row_is_named_with_its_line(rows: Rows, row: Any, problem: str) -> None:
    with pytest.raises(DatasetError, match=f"line 2: {problem}"):
        rows(_GOOD, row, lines=True)


def _agentic(name: str, *waits: str, **more: Any) -> dict[str, Any]:
    row = {"request_id": name, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]} | more
    return row | ({"wait_for": list(waits)} if waits else {})


_ROOT = _agentic("a", timestamp=0)


def test_a_row_waits_for_all_that_it_names_and_for_its_tools(read: Read) -> None:
    parts = [_agentic("b", "a", delay=5), _agentic("c", "a", delay=5, tool_wait_ms=40, session_id="side")]
    rows = [_agentic("d", "a", "b", "c", "b", delay_ms=1), *parts, _ROOT]  # in any order
    reading = read("\n".join(map(json.dumps, rows)).encode(), strict=True)
    columns = ("request_id", "arrival_ns", "session", "parent", "joins", "think_time_ns")
    assert list(zip(*(reading.workload.table[name].to_pylist() for name in columns), strict=True)) == [
        ("a", 0, "a", None, None, None),
        ("b", 5_000_000, "a", 0, None, 5_000_000),
        ("c", 45_000_000, "side", 0, None, 45_000_000),
        ("d", 46_000_000, "a", 0, [1, 2], 1_000_000),
    ]
    assert (reading.workload.facts.untimed_rows, reading.workload.facts.tick_ns) == (3, None)


def test_a_row_of_a_session_waits_for_the_one_before_it(read: Read) -> None:
    rows = [_GOOD, _row(10, 600, 5, [0, 2]) | {"session_id": "s"}]
    rows += [{"session_id": "s", "delay_ms": 50, "input_tokens": 520, "output_tokens": 2, "hash_ids": [0, 2]}]
    reading = read("\n".join(map(json.dumps, rows)).encode(), strict=True)
    columns = ("arrival_ns", "parent", "think_time_ns", "input_tokens", "output_tokens")
    assert list(zip(*(reading.workload.table[name].to_pylist() for name in columns), strict=True)) == [
        (0, None, None, 600, 5),
        (10_000_000, None, None, 600, 5),
        (60_000_000, 1, 50_000_000, 520, 2),
    ]
    assert reading.workload.facts.untimed_rows == 1


def test_sessions_are_chained_by_time_in_whatever_order_the_file_has_them(read: Read) -> None:
    late, early = _row(900, 600, 5, [0, 2]) | {"session_id": "s"}, _row(10, 600, 5, [0, 1]) | {"session_id": "s"}
    after_late = {"session_id": "s", "delay_ms": 50, "input_tokens": 520, "output_tokens": 2, "hash_ids": [0, 2]}
    reading = read("\n".join(map(json.dumps, [late, after_late, early])).encode(), strict=True)
    columns = ("arrival_ns", "parent", "session")
    assert list(zip(*(reading.workload.table[name].to_pylist() for name in columns), strict=True)) == [
        (0, None, "s"),
        (890_000_000, 0, "s"),
        (940_000_000, 1, "s"),
    ]


def test_an_id_may_be_repeated_where_no_row_waits_for_it(read: Read) -> None:
    rows = [_GOOD | {"request_id": "a"}, _row(10, 600, 5, [0, 2]) | {"request_id": "a", "session_id": "s"}]
    rows += [_row(20, 600, 5, [0, 2]) | {"request_id": "a", "session_id": "s"}]
    reading = read("\n".join(map(json.dumps, rows)).encode(), strict=True)
    columns = ("request_id", "parent")
    assert list(zip(*(reading.workload.table[name].to_pylist() for name in columns), strict=True)) == [
        ("a", None),
        ("a", None),
        ("a", 1),
    ]
    assert reading.rejects.count == 0


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (_agentic("b", "z"), "it waits for the request 'z', which the file lacks"),
        (_agentic("b"), 'the field "timestamp" is missing'),
        (_agentic("a", "a"), "\"request_id\" 'a' occurs in an earlier row, too"),
        (_agentic("b", "a", delay=-1), '"delay" must be a time'),
        (_agentic("b", wait_for="a"), '"wait_for" must be a list'),
        (_agentic("b", wait_for=[None]), '"wait_for" must have strings or whole numbers'),
        (_agentic("c", "late", timestamp=5), "its timestamp is before that of a request that it waits for"),
        (_agentic("b", "b"), "the request 'b' waits for itself, over others"),
    ],
)
def test_a_row_that_cannot_wait_is_named_with_its_line(rows: Rows, row: Any, problem: str) -> None:
    others = [_ROOT, row, _agentic("late", "a", timestamp=9)]
    with pytest.raises(DatasetError, match=f"line 2: {problem}"):
        rows(*others, lines=True)


def test_a_cut_last_line_is_counted(read: Read) -> None:
    content = "\n".join([json.dumps(_GOOD), json.dumps(_GOOD)[:-9]]).encode()
    reading = read(content)
    assert (len(reading.workload), reading.rejects.first[0].where) == (1, "line 2")


def test_the_real_trace_stands_on_a_grid_of_three_seconds(shared_data: Path) -> None:
    reading = read_workload_file(shared_data / "mooncake_conversation_trace.jsonl", strict=True)
    assert (len(reading.workload), reading.rejects.count) == (12_031, 0)
    assert (reading.workload.facts.tick_ns, reading.workload.facts.block_tokens) == (3_000_000_000, 512)
    assert len(set(reading.workload.table["arrival_ns"].to_pylist())) == 1_180
