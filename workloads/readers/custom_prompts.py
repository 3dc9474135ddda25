"""Reader of rows of JSON with ``prompt``, and ``output_tokens`` where the file sets lengths: vLLM's custom dataset."""

from __future__ import annotations

from collections.abc import Iterator

from workloads.readers.fields import Row, first_tokens_of, prompt_of
from workloads.readers.json_rows import LocatedRow, accepted
from workloads.readers.rejects import RejectCounter
from workloads.readers.text_rows import TextRow, text_workload
from workloads.workload import Workload

NAME = "custom"
SHAPE = "JSON with prompt and, where known, output_tokens (vLLM custom)"
_LENGTH_FIELDS = ("output_tokens", "max_tokens")


def recognises(first_row: Row) -> bool:
    """Whether a row has a prompt."""
    return "prompt" in first_row


def read(rows: Iterator[LocatedRow], rejects: RejectCounter) -> Workload:
    """The workload of the rows. Raises DatasetError."""
    return text_workload(NAME, [row for _, row in accepted(rows, _row, rejects)], rejects)


def _row(row: Row) -> TextRow:
    return TextRow(prompt_of(row, "prompt"), output_tokens=first_tokens_of(row, _LENGTH_FIELDS))
