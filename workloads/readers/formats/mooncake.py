"""Reader of Mooncake's traces: JSON lines with ``timestamp`` in ms, lengths, and a hash for each block of 512 tokens.

Source: kvcache-ai/Mooncake (FAST 2025).
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.readers.block_trace import BlockRow, block_workload, holds_request, lengths_of
from workloads.readers.fields import Row, time_ns_of
from workloads.readers.json_rows import LocatedRow, accepted
from workloads.readers.rejects import RejectCounter
from workloads.table.workload import Workload

NAME = "mooncake"
SHAPE = "JSON with timestamp, input_length, output_length and hash_ids (Mooncake)"
BLOCK_TOKENS = 512
_MS = 1_000_000


def recognises(first_row: Row) -> bool:
    """Whether a row has hashes of blocks, and no conversation."""
    return "hash_ids" in first_row and "chat_id" not in first_row


def read(rows: Iterator[LocatedRow], rejects: RejectCounter) -> Workload:
    """The workload of the rows. Raises DatasetError."""
    blocks = [row for where, row in accepted(rows, _row, rejects) if holds_request(row.lengths, where, rejects)]
    return block_workload(NAME, blocks, BLOCK_TOKENS, rejects)


def _row(row: Row) -> BlockRow:
    return BlockRow(time_ns_of(row, "timestamp", _MS), lengths_of(row, BLOCK_TOKENS))
