"""A column of a record's table: its schema and its documentation in one place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

RUN_CLOCK = "ns, run clock"
"""The unit of a moment: ns of the monotonic clock since the run's start; before it, negative."""


@dataclass(frozen=True, slots=True)
class Column:
    """``unit`` includes the clock of a time; "" where there is none. ``null`` is what a null means, None where there is none.

    ``unit``, ``meaning`` and ``null`` are Markdown, for the documentation.
    """

    name: str
    type: pa.DataType
    unit: str
    meaning: str
    null: str | None = None


def schema_of(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema of a table of ``columns``, in their order."""
    return pa.schema([pa.field(column.name, column.type, nullable=column.null is not None) for column in columns])
