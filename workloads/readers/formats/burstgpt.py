"""Reader of BurstGPT's traces, with 6 columns and, since release 1.2, with 8: CSV with arrivals in seconds and lengths.

A row with 0 response tokens is a failed request and is left out. ``request_class`` is model and log type. Where the file has
sessions, a turn's parent is the turn before it, and the think time counts from that one's answer, if its elapsed time is known;
a turn that arrived before the answer did not wait for it, and has no parent. Source: HPMLL/BurstGPT.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workloads.readers.csv_columns import Block, csv_blocks, header_of, seconds_ns, tokens
from workloads.readers.length_trace import LengthBlock, joined, length_block, length_workload
from workloads.readers.rejects import RejectCounter
from workloads.readers.source import Source
from workloads.table.workload import Workload

NAME = "burstgpt"
SHAPE = "CSV with Timestamp, Model, Request tokens, Response tokens, Log Type (BurstGPT)"
_COLUMNS = ("Timestamp", "Model", "Request tokens", "Response tokens", "Log Type")
_SESSION_COLUMNS = ("Session ID", "Elapsed time")


def recognises(header: Sequence[str]) -> bool:
    """Whether a header has BurstGPT's columns of lengths."""
    return {"Request tokens", "Response tokens"} <= set(header)


def read(source: Source, rejects: RejectCounter) -> Workload:
    """The workload of the rows. Raises DatasetError."""
    has_sessions = set(_SESSION_COLUMNS) <= set(header_of(source.head))
    names = (*_COLUMNS, *_SESSION_COLUMNS) if has_sessions else _COLUMNS
    blocks: list[LengthBlock] = []
    for block in csv_blocks(source, names, rejects):
        lengths = tokens(block, "Request tokens"), tokens(block, "Response tokens")
        blocks.append(_slim(length_block(block, seconds_ns(block, "Timestamp"), lengths, rejects)))
    rows = joined(blocks, rejects)
    return length_workload(NAME, rows, rejects, _class(rows) | (_sessions(rows) if has_sessions else {}))


def _slim(block: LengthBlock) -> LengthBlock:
    """The block without the texts of columns that are parsed already: they are most of a file."""
    kept = {"Model", "Log Type", *_SESSION_COLUMNS}
    texts = {name: texts for name, texts in block.texts.items() if name in kept}
    return LengthBlock(block.arrival_ns, block.input_tokens, block.output_tokens, texts)


def _class(rows: LengthBlock) -> dict[str, pa.Array]:
    return {"request_class": pc.binary_join_element_wise(rows.texts["Model"], rows.texts["Log Type"], ", ")}


def _sessions(rows: LengthBlock) -> dict[str, pa.Array]:
    sessions = rows.texts["Session ID"]
    sessions = pc.if_else(pc.equal(sessions, ""), pa.scalar(None, pa.string()), sessions)
    codes = sessions.dictionary_encode().indices
    has_session = codes.is_valid().to_numpy(zero_copy_only=False)
    group = pc.fill_null(codes, -1).to_numpy(zero_copy_only=False)
    by_session = np.argsort(group, kind="stable")
    parent = np.full(group.size, -1, np.int64)
    is_next = (group[by_session][1:] == group[by_session][:-1]) & has_session[by_session][1:]
    parent[by_session[1:][is_next]] = by_session[:-1][is_next]
    elapsed = seconds_ns(Block(rows.texts, 0, ()), "Elapsed time")
    answered_ns = rows.arrival_ns + elapsed.values
    think_ns = rows.arrival_ns - answered_ns[parent]
    is_known = (parent >= 0) & elapsed.is_valid[parent]
    parent[is_known & (think_ns < 0)] = -1
    return {
        "session": sessions,
        "parent": pa.array(parent, mask=parent < 0),
        "think_time_ns": pa.array(think_ns, mask=~is_known | (parent < 0)),
    }
