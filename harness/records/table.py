"""``requests.parquet``: one row a record, in the order of the schedule. Writer and reader.

A module of its own beside ``record.py``, which workers import, and which must not load Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from harness.records.parquet_table import arrow_array, read_columns, write_columns
from harness.records.record import Record

_SCHEMA = pa.schema(
    [
        pa.field("index", pa.int64(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("scheduled_ns", pa.int64(), nullable=False),
        pa.field("requested_output_tokens", pa.int64(), nullable=False),
        pa.field("released_ns", pa.int64()),
        pa.field("sent_ns", pa.int64()),
        pa.field("done_ns", pa.int64()),
        pa.field("token_times_ns", pa.list_(pa.int64()), nullable=False),
        pa.field("token_counts", pa.list_(pa.int64())),
        pa.field("input_tokens", pa.int64()),
        pa.field("output_tokens", pa.int64()),
        pa.field("output_tokens_source", pa.string()),
        pa.field("prompt_echoed", pa.bool_()),
        pa.field("ignore_eos", pa.bool_(), nullable=False),
        pa.field("error", pa.string()),
        pa.field("worker", pa.int64()),
        pa.field("session", pa.string()),
        pa.field("text_tokens", pa.int64()),
        pa.field("requested_input_tokens", pa.int64()),
    ]
)


def write_table(records: Sequence[Record], path: Path) -> None:
    """Write ``records`` to ``path``; the file appears whole or not at all. Raises OSError."""
    arrays = [arrow_array([getattr(record, field.name) for record in records], field.type) for field in _SCHEMA]
    write_columns(path, _SCHEMA, arrays)


def read_table(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read what ``write_table`` wrote; ``columns`` are fields of Record (None: all). Raises OSError or pyarrow.ArrowInvalid."""
    return read_columns(path, _SCHEMA, columns)
