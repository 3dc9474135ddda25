"""Rows that have text, some with the time at which they arrived, and the workload of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from workloads.elements.errors import DatasetError
from workloads.elements.request import Message
from workloads.readers.arrivals_of_origin import find_tick_ns
from workloads.readers.rejects import RejectCounter
from workloads.table.workload import Workload, WorkloadFacts


@dataclass(frozen=True, slots=True)
class TextRow:
    """One turn: ``parent`` is the index of the row before it in its session; the others are the workload's columns.

    ``arrival_ns`` counts from any moment. Without a ``prompt`` a row has both lengths.
    """

    prompt: str | None
    answer: str | None = None
    history: tuple[Message, ...] = ()
    session: str | None = None
    parent: int | None = None
    output_tokens: int | None = None
    arrival_ns: int | None = None
    think_time_ns: int | None = None
    input_tokens: int | None = None


def timed_rows(located: Iterable[tuple[str, TextRow]], rejects: RejectCounter) -> list[TextRow]:
    """Rows in the order of their arrival, where they have a time, each with the row before it in its session as its parent.

    Where some rows have a time, a row without one is counted as malformed. A row that requests no output token holds
    no request.
    """
    rows: list[tuple[str, TextRow]] = []
    for where, row in located:
        if row.output_tokens == 0:
            rejects.left_out(where, "the row requests 0 output tokens")
        else:
            rows.append((where, row))
    if any(row.arrival_ns is not None for _, row in rows):
        for where, row in rows:
            if row.arrival_ns is None:
                rejects.malformed(where, 'the field "timestamp" is missing, which other rows have')
        rows = sorted((pair for pair in rows if pair[1].arrival_ns is not None), key=lambda pair: pair[1].arrival_ns or 0)
    last: dict[str, int] = {}
    threaded: list[TextRow] = []
    for number, (_, row) in enumerate(rows):
        threaded.append(row if row.session is None else replace(row, parent=last.get(row.session)))
        if row.session is not None:
            last[row.session] = number
    return threaded


def text_workload(name: str, rows: Sequence[TextRow], rejects: RejectCounter) -> Workload:
    """The workload of ``rows``, sorted by arrival where they have one. Raises DatasetError where there is none."""
    if not rows:
        raise nothing_read(rejects)
    arrivals = [row.arrival_ns for row in rows if row.arrival_ns is not None]
    columns: dict[str, NDArray[np.int64]] = {}
    if arrivals:
        columns["arrival_ns"] = np.array(arrivals, np.int64) - arrivals[0]
    return Workload.of_columns(
        WorkloadFacts(name, rejects.path.name, tick_ns=find_tick_ns(columns["arrival_ns"]) if arrivals else None),
        len(rows),
        {
            **columns,
            "session": [row.session for row in rows],
            "parent": [row.parent for row in rows],
            "history": [[vars_of(message) for message in row.history] or None for row in rows],
            "prompt": [row.prompt for row in rows],
            "answer": [row.answer for row in rows],
            "input_tokens": [row.input_tokens for row in rows],
            "output_tokens": [row.output_tokens for row in rows],
            "think_time_ns": [row.think_time_ns for row in rows],
        },
    )


def vars_of(message: Message) -> dict[str, str]:
    """A message as an element of the column ``history``."""
    return {"role": message.role, "content": message.content}


def nothing_read(rejects: RejectCounter) -> DatasetError:
    """The error of a file that has no usable row, with the first reason."""
    first = rejects.total().first
    if not first:
        return DatasetError(rejects.path, "holds no rows")
    return DatasetError(rejects.path, f"holds no usable row, of {rejects.count:,}: {first[0].reason}", first[0].where)
