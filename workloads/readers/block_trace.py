"""Rows of traces with lengths and hashes of prefix blocks, and the workload of them: what the traces of Mooncake, Qwen-Bailian
and Dynamo share.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa

from workloads.readers.arrivals_of_origin import find_tick_ns, order_of_arrival
from workloads.readers.fields import Row, list_of, shown, tokens_of
from workloads.readers.rejects import RejectCounter, RowError
from workloads.readers.text_rows import nothing_read
from workloads.table.workload import Workload, WorkloadFacts


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths in tokens, and one hash for each block of the prompt; equal leading hashes are an equal prefix."""

    input_tokens: int
    output_tokens: int
    block_hashes: array[int]


@dataclass(frozen=True, slots=True)
class BlockRow:
    """A row of a trace. ``id`` and ``parent_id`` name turns of conversations, ``request_class`` is the origin's type.

    ``join_ids`` are other turns that one waits for besides its parent, and ``think_time_ns`` counts from the last of all.
    ``session`` is the origin's name of the conversation, None for that of its first turn. ``request_id`` is its name of the
    request.
    """

    arrival_ns: int
    lengths: Lengths
    id: int | str | None = None
    parent_id: int | str | None = None
    request_class: str | None = None
    join_ids: tuple[int | str, ...] = ()
    think_time_ns: int | None = None
    session: str | None = None
    request_id: str | None = None


def lengths_of(row: Row, block_tokens: int) -> Lengths:
    """The fields ``input_length``, ``output_length`` and ``hash_ids``. Raises RowError.

    The last block may be partial, and may be left out then.
    """
    input_tokens, output_tokens = tokens_of(row, "input_length"), tokens_of(row, "output_length")
    return Lengths(input_tokens, output_tokens, hashes_of(row, "hash_ids", ("input_length", input_tokens), block_tokens))


def hashes_of(row: Row, field: str, input_length: tuple[str, int], block_tokens: int) -> array[int]:
    """The hashes in ``field``, of a prompt whose length has a field and a value. Raises RowError.

    A hash of 64 bits without a sign becomes the signed one of the same bits. The last block may be partial, and left out then.
    """
    hashes = list_of(row, field)
    try:
        ids = array("q", cast("list[int]", hashes))
    except (TypeError, OverflowError):
        ids = array("q", [_signed(value, field) for value in hashes])
    length_field, input_tokens = input_length
    if not input_tokens // block_tokens <= len(ids) <= -(-input_tokens // block_tokens):
        raise RowError(
            f'"{field}" has {len(ids)} blocks, and "{length_field}" {input_tokens} needs '
            f"{-(-input_tokens // block_tokens)} of {block_tokens} tokens"
        )
    return ids


def _signed(value: object, field: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**64:
        raise RowError(f'"{field}" must be a list of 64-bit integers, found {shown(value)}')
    return value - 2**64 if value >= 2**63 else value


def holds_request(lengths: Lengths, where: str, rejects: RejectCounter) -> bool:
    """Whether a row has a prompt and an answer; one of a failed request is counted as left out."""
    if lengths.input_tokens and lengths.output_tokens:
        return True
    rejects.left_out(where, "the request failed: it has no tokens")
    return False


def block_workload(
    name: str, rows: Sequence[BlockRow], block_tokens: int, rejects: RejectCounter, untimed_rows: int = 0
) -> Workload:
    """The workload of ``rows``, sorted by arrival. Raises DatasetError where there is none.

    ``untimed_rows`` of them have no time of their own, but the earliest possible one.
    """
    if not rows:
        raise nothing_read(rejects)
    arrival_ns = np.array([row.arrival_ns for row in rows], np.int64)
    order = order_of_arrival(arrival_ns)
    if order is not None:
        rows, arrival_ns = [rows[place] for place in order], arrival_ns[order]
    facts = WorkloadFacts(
        name,
        rejects.path.name,
        block_tokens=block_tokens,
        tick_ns=None if untimed_rows else find_tick_ns(arrival_ns),
        untimed_rows=untimed_rows,
    )
    offsets = np.cumsum([0, *(len(row.lengths.block_hashes) for row in rows)])
    hashes = np.concatenate([np.frombuffer(row.lengths.block_hashes, np.int64) for row in rows])
    return Workload.of_columns(
        facts,
        len(rows),
        {
            "arrival_ns": arrival_ns - arrival_ns[0],
            **_threads(rows),
            "think_time_ns": [row.think_time_ns for row in rows],
            "input_tokens": [row.lengths.input_tokens for row in rows],
            "output_tokens": [row.lengths.output_tokens for row in rows],
            "block_hashes": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(hashes)),
            "request_class": [row.request_class for row in rows],
            "request_id": [row.request_id for row in rows],
        },
    )


def _threads(rows: Sequence[BlockRow]) -> dict[str, list[Any]]:
    """Columns: the row of each row's parent and those of its joins, if they are earlier ones, and the session, without another
    name the id of the conversation's first turn.
    """
    place: dict[int | str, int] = {}
    parents: list[int | None] = []
    sessions: list[str | None] = []
    joins: list[list[int] | None] = []
    for number, row in enumerate(rows):
        parent = None if row.parent_id is None else place.get(row.parent_id)
        root = row.parent_id if parent is None and row.parent_id is not None else row.id
        parents.append(parent)
        joins.append([place[other] for other in row.join_ids] or None)
        named = sessions[parent] if parent is not None else None if root is None else str(root)
        sessions.append(named if row.session is None else row.session)
        if row.id is not None:
            place[row.id] = number
    return {"parent": parents, "session": sessions, "joins": joins}
