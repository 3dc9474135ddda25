"""Reader of Qwen-Bailian's traces: JSON lines with ``timestamp`` in s, lengths, a hash for each block of 16 tokens, and trees
of turns by ``chat_id`` and ``parent_chat_id`` (-1: the first turn).

A turn whose parent is not in the file, or not before it, has none. Source: alibaba-edu/qwen-bailian-usagetraces-anon.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.readers.block_trace import BlockRow, block_workload, holds_request, lengths_of
from workloads.readers.fields import Row, shown, text_of, time_ns_of
from workloads.readers.json_rows import LocatedRow, accepted
from workloads.readers.rejects import RejectCounter, RowError
from workloads.table.workload import Workload

NAME = "qwen"
SHAPE = "JSON with chat_id, parent_chat_id, timestamp, lengths and hash_ids (Qwen-Bailian)"
BLOCK_TOKENS = 16
_S = 1_000_000_000
_NO_PARENT = -1


def recognises(first_row: Row) -> bool:
    """Whether a row has hashes of blocks, and a conversation."""
    return "hash_ids" in first_row and "chat_id" in first_row


def read(rows: Iterator[LocatedRow], rejects: RejectCounter) -> Workload:
    """The workload of the rows. Raises DatasetError."""
    turns: list[BlockRow] = []
    seen: set[int | str | None] = set()
    for where, row in accepted(rows, _row, rejects):
        if row.id in seen:
            rejects.malformed(where, f'"chat_id" {row.id} occurs in an earlier row, too')
        elif holds_request(row.lengths, where, rejects):
            seen.add(row.id)
            turns.append(row)
    return block_workload(NAME, turns, BLOCK_TOKENS, rejects)


def _row(row: Row) -> BlockRow:
    parent = _id(row, "parent_chat_id")
    return BlockRow(
        arrival_ns=time_ns_of(row, "timestamp", _S),
        lengths=lengths_of(row, BLOCK_TOKENS),
        id=_id(row, "chat_id"),
        parent_id=None if parent == _NO_PARENT else parent,
        request_class=None if row.get("type") is None else text_of(row, "type"),
    )


def _id(row: Row, field: str) -> int:
    value = row.get(field)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise RowError(f'"{field}" must be a 64-bit integer, found {shown(value)}')
    return value
