"""Rows of traces with lengths and hashes of prefix blocks, and the workload of them: what Mooncake and Qwen-Bailian share."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

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
    """A row of a trace. ``id`` and ``parent_id`` name turns of conversations, ``request_class`` is the origin's type."""

    arrival_ns: int
    lengths: Lengths
    id: int | None = None
    parent_id: int | None = None
    request_class: str | None = None


def lengths_of(row: Row, block_tokens: int) -> Lengths:
    """The fields ``input_length``, ``output_length`` and ``hash_ids``. Raises RowError.

    The last block may be partial, and may be left out then.
    """
    input_tokens, output_tokens = tokens_of(row, "input_length"), tokens_of(row, "output_length")
    hashes = list_of(row, "hash_ids")
    try:
        ids = array("q", cast("list[int]", hashes))
    except (TypeError, OverflowError) as error:
        wrong = next((value for value in hashes if not isinstance(value, int) or abs(value) >= 2**63), None)
        raise RowError(f'"hash_ids" must be a list of 64-bit integers, found {shown(wrong)}') from error
    if not input_tokens // block_tokens <= len(ids) <= -(-input_tokens // block_tokens):
        raise RowError(
            f'"hash_ids" has {len(ids)} blocks, and "input_length" {input_tokens} needs '
            f"{-(-input_tokens // block_tokens)} of {block_tokens} tokens"
        )
    return Lengths(input_tokens, output_tokens, ids)


def holds_request(lengths: Lengths, where: str, rejects: RejectCounter) -> bool:
    """Whether a row has a prompt and an answer; one of a failed request is counted as left out."""
    if lengths.input_tokens and lengths.output_tokens:
        return True
    rejects.left_out(where, "the request failed: it has no tokens")
    return False


def block_workload(name: str, rows: Sequence[BlockRow], block_tokens: int, rejects: RejectCounter) -> Workload:
    """The workload of ``rows``, sorted by arrival. Raises DatasetError where there is none."""
    if not rows:
        raise nothing_read(rejects)
    arrival_ns = np.array([row.arrival_ns for row in rows], np.int64)
    order = order_of_arrival(arrival_ns)
    if order is not None:
        rows, arrival_ns = [rows[place] for place in order], arrival_ns[order]
    parents, sessions = _threads(rows)
    offsets = np.cumsum([0, *(len(row.lengths.block_hashes) for row in rows)])
    hashes = np.concatenate([np.frombuffer(row.lengths.block_hashes, np.int64) for row in rows])
    return Workload.of_columns(
        WorkloadFacts(name, rejects.path.name, block_tokens=block_tokens, tick_ns=find_tick_ns(arrival_ns)),
        len(rows),
        {
            "arrival_ns": arrival_ns - arrival_ns[0],
            "session": sessions,
            "parent": parents,
            "input_tokens": [row.lengths.input_tokens for row in rows],
            "output_tokens": [row.lengths.output_tokens for row in rows],
            "block_hashes": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(hashes)),
            "request_class": [row.request_class for row in rows],
        },
    )


def _threads(rows: Sequence[BlockRow]) -> tuple[list[int | None], list[str | None]]:
    """The row of each row's parent, if it is an earlier one, and the session: the id of the conversation's first turn."""
    place: dict[int, int] = {}
    parents: list[int | None] = []
    sessions: list[str | None] = []
    for number, row in enumerate(rows):
        parent = None if row.parent_id is None else place.get(row.parent_id)
        root = row.parent_id if parent is None and row.parent_id is not None else row.id
        parents.append(parent)
        sessions.append(sessions[parent] if parent is not None else None if root is None else str(root))
        if row.id is not None:
            place[row.id] = number
    return parents, sessions
