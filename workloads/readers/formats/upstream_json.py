"""Reader of upstream's dataset: objects with the strings ``input``, ``instruction`` and ``output``.

Source: ``tools/inflight_batcher_llm/benchmark_core_model.py``; the prompt is input, a space, instruction.
"""

from __future__ import annotations

from collections.abc import Iterator

from workloads.readers.fields import Row, checked_prompt, text_of
from workloads.readers.json_rows import LocatedRow, accepted
from workloads.readers.rejects import RejectCounter
from workloads.readers.text_rows import TextRow, text_workload
from workloads.table.workload import Workload

NAME = "upstream"
SHAPE = "JSON with input, instruction and output"
_FIELDS = ("input", "instruction", "output")


def recognises(first_row: Row) -> bool:
    """Whether a row has one of the fields: a row with a misspelt one gets an error with the name of the missing one."""
    return any(field in first_row for field in _FIELDS)


def read(rows: Iterator[LocatedRow], rejects: RejectCounter) -> Workload:
    """The workload of the rows. Raises DatasetError."""
    return text_workload(NAME, [row for _, row in accepted(rows, _row, rejects)], rejects)


def _row(row: Row) -> TextRow:
    text, instruction, output = (text_of(row, field) for field in _FIELDS)
    return TextRow(checked_prompt(f"{text} {instruction}"), output)
