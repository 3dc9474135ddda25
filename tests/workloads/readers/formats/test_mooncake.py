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
        (_row(0, 600, 5, [0, 2**63]), '"hash_ids" must be a list of 64-bit integers'),
        (_row(0, 600, 5, {"0": 1}), '"hash_ids" must be a list, found dict'),
        ({"timestamp": 0, "input_length": 600, "output_length": 5}, 'the field "hash_ids" is missing'),
    ],
)
def test_a_malformed_row_is_named_with_its_line(rows: Rows, row: Any, problem: str) -> None:
    with pytest.raises(DatasetError, match=f"line 2: {problem}"):
        rows(_GOOD, row, lines=True)


def test_a_cut_last_line_is_counted(read: Read) -> None:
    content = "\n".join([json.dumps(_GOOD), json.dumps(_GOOD)[:-9]]).encode()
    reading = read(content)
    assert (len(reading.workload), reading.rejects.first[0].where) == (1, "line 2")


def test_the_real_trace_stands_on_a_grid_of_three_seconds(shared_data: Path) -> None:
    reading = read_workload_file(shared_data / "mooncake_conversation_trace.jsonl", strict=True)
    assert (len(reading.workload), reading.rejects.count) == (12_031, 0)
    assert (reading.workload.facts.tick_ns, reading.workload.facts.block_tokens) == (3_000_000_000, 512)
    assert len(set(reading.workload.table["arrival_ns"].to_pylist())) == 1_180
