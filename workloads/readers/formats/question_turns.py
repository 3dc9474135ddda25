"""Reader of rows of JSON with ``turns``, a list of questions that are asked one after the other: MT-Bench, Spec-Bench."""

from __future__ import annotations

from collections.abc import Iterator

from workloads.readers.fields import Row, checked_prompt, list_of, text_of
from workloads.readers.json_rows import LocatedRow, accepted
from workloads.readers.rejects import RejectCounter, RowError
from workloads.readers.text_rows import TextRow, text_workload
from workloads.table.workload import Workload

NAME = "turns"
SHAPE = "JSON with turns (MT-Bench, Spec-Bench)"


def recognises(first_row: Row) -> bool:
    """Whether a row has turns."""
    return "turns" in first_row


def read(rows: Iterator[LocatedRow], rejects: RejectCounter) -> Workload:
    """The workload of the sessions. Raises DatasetError."""
    turns: list[TextRow] = []
    for where, prompts in accepted(rows, _prompts, rejects):
        for number, prompt in enumerate(prompts):
            turns.append(TextRow(prompt, session=where, parent=len(turns) - 1 if number else None))
    return text_workload(NAME, turns, rejects)


def _prompts(row: Row) -> list[str]:
    turns = list_of(row, "turns")
    if not turns:
        raise RowError('"turns" is empty')
    named = {f"turn {number}": turn for number, turn in enumerate(turns, start=1)}
    return [checked_prompt(text_of(named, name)) for name in named]
