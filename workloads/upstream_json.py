"""Reader of upstream's dataset: a JSON array of objects with the strings ``input``, ``instruction`` and ``output``.

Source: ``tools/inflight_batcher_llm/benchmark_core_model.py``; the prompt is input, a space, instruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workloads.errors import DatasetError
from workloads.request import PromptRow, check_text

FIELDS = ("input", "instruction", "output")


def recognises(first_row: Mapping[str, Any]) -> bool:
    """Whether the first row of a dataset has upstream's fields."""
    return any(field in first_row for field in FIELDS)


def read_rows(rows: Sequence[Any], path: Path) -> Iterator[PromptRow]:
    """The rows as prompts. Raises DatasetError at the first row that is not an object with the three strings."""
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise DatasetError(path, f"expected an object, found {type(row).__name__}", f"row {number}")
        for field in FIELDS:
            if field not in row:
                raise DatasetError(path, f'the field "{field}" is missing', f"row {number}")
            if not isinstance(row[field], str):
                raise DatasetError(path, f'"{field}" must be a string, found {type(row[field]).__name__}', f"row {number}")
            check_text(row[field], path, f"row {number}")
        yield PromptRow(f"{row['input']} {row['instruction']}", row["output"], number)
