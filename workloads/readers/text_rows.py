"""Rows that have text, and the workload of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workloads.errors import DatasetError
from workloads.readers.rejects import RejectCounter
from workloads.request import Message
from workloads.workload import Workload, WorkloadFacts


@dataclass(frozen=True, slots=True)
class TextRow:
    """One turn: ``parent`` is the index of the row before it in its session; the others are the workload's columns."""

    prompt: str
    answer: str | None = None
    history: tuple[Message, ...] = ()
    session: str | None = None
    parent: int | None = None
    output_tokens: int | None = None


def text_workload(name: str, rows: Sequence[TextRow], rejects: RejectCounter) -> Workload:
    """The workload of ``rows`` in the format ``name``. Raises DatasetError where there is none."""
    if not rows:
        raise nothing_read(rejects)
    return Workload.of_columns(
        WorkloadFacts(name, rejects.path.name),
        len(rows),
        {
            "session": [row.session for row in rows],
            "parent": [row.parent for row in rows],
            "history": [[vars_of(message) for message in row.history] or None for row in rows],
            "prompt": [row.prompt for row in rows],
            "answer": [row.answer for row in rows],
            "output_tokens": [row.output_tokens for row in rows],
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
