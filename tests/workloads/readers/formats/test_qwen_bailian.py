"""Qwen-Bailian's traces: trees of turns with hashes of blocks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Read = Callable[..., Any]
Rows = Callable[..., list[dict[str, Any]]]


def _row(chat: Any, parent: Any, timestamp: float, **more: Any) -> dict[str, Any]:
    return {
        "chat_id": chat, "parent_chat_id": parent, "timestamp": timestamp, "input_length": 20, "output_length": 3,
        "type": "text", "turn": 1, "hash_ids": [1, 2], **more,
    }  # fmt: skip


def test_a_turn_waits_for_its_parent_and_has_its_session(rows: Rows) -> None:
    read = rows(_row(5, -1, 0.5), _row(9, -1, 0.75), _row(11, 5, 2.0), _row(12, 5, 2.5), _row(13, 11, 3.0), lines=True)
    assert [(row["arrival_ns"], row["session"], row.get("parent")) for row in read] == [
        (0, "5", None),
        (250_000_000, "9", None),
        (1_500_000_000, "5", 0),
        (2_000_000_000, "5", 0),
        (2_500_000_000, "5", 2),
    ]
    assert read[0] == {
        "arrival_ns": 0, "session": "5", "input_tokens": 20, "output_tokens": 3, "block_hashes": [1, 2],
        "request_class": "text",
    }  # fmt: skip


def test_a_parent_that_is_not_an_earlier_row_is_none_and_its_children_share_the_session(rows: Rows) -> None:
    read = rows(_row(7, 3, 1.0), _row(8, 3, 2.0), _row(9, 10, 3.0), _row(10, -1, 4.0), lines=True)
    assert [(row["session"], row.get("parent")) for row in read] == [("3", None), ("3", None), ("10", None), ("10", None)]


def test_blocks_have_16_tokens(read: Read) -> None:
    reading = read(json.dumps(_row(1, -1, 0)).encode(), strict=True)
    assert reading.workload.facts.block_tokens == 16


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (_row(1, -1, 1.0), '"chat_id" 1 occurs in an earlier row'),
        (_row("2", -1, 1.0), '"chat_id" must be a 64-bit integer'),
        (_row(2, None, 1.0), '"parent_chat_id" must be a 64-bit integer'),
        (_row(2, 2**70, 1.0), '"parent_chat_id" must be a 64-bit integer'),
        (_row(2, -1, 1.0, type=5), '"type" must be a string'),
        (_row(2, -1, -1.0), '"timestamp" must be a time'),
        (_row(2, -1, 1.0, hash_ids=[1, 2, 3]), '"hash_ids" has 3 blocks'),
    ],
)
def test_a_malformed_row_is_counted(read: Read, row: Any, problem: str) -> None:
    reading = read("\n".join(map(json.dumps, [_row(1, -1, 0.0), row])).encode())
    assert len(reading.workload) == 1
    assert reading.rejects.first[0].where == "line 2"
    assert reading.rejects.first[0].reason.startswith(problem)
