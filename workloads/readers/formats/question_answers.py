"""Reader of rows of JSON with ``question`` and ``answer``: GSM8K."""

from __future__ import annotations

from collections.abc import Iterator

from workloads.readers.fields import Row, checked_prompt, text_of
from workloads.readers.json_rows import LocatedRow, accepted
from workloads.readers.rejects import RejectCounter
from workloads.readers.text_rows import TextRow, text_workload
from workloads.table.workload import Workload

NAME = "questions"
SHAPE = "JSON with question and answer (GSM8K)"


def recognises(first_row: Row) -> bool:
    """Whether a row has a question with its answer."""
    return "question" in first_row and "answer" in first_row


def read(rows: Iterator[LocatedRow], rejects: RejectCounter) -> Workload:
    """The workload of the rows. Raises DatasetError."""
    return text_workload(NAME, [row for _, row in accepted(rows, _row, rejects)], rejects)


def _row(row: Row) -> TextRow:
    return TextRow(checked_prompt(text_of(row, "question")), text_of(row, "answer"))
