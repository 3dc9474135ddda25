"""``client.parquet``: the client's own state through a run, one row a ClientSample, by time. Writer and reader."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from harness.records.client_sample import ClientSample
from harness.records.parquet_table import arrow_array, read_columns, write_columns

_SCHEMA = pa.schema(
    [pa.field(name, pa.int64(), nullable=name != "time_ns") for name in ClientSample.__struct_fields__],
)


def write_client_table(samples: Iterable[ClientSample], path: Path) -> None:
    """Write ``samples`` to ``path``, sorted by time; the file appears whole or not at all. Raises OSError."""
    ordered = sorted(samples, key=lambda sample: sample.time_ns)
    arrays = [arrow_array([getattr(sample, field.name) for sample in ordered], field.type) for field in _SCHEMA]
    write_columns(path, _SCHEMA, arrays)


def read_client_table(path: Path) -> pa.Table:
    """Read what ``write_client_table`` wrote: the fields of ClientSample. Raises OSError or pyarrow.ArrowInvalid."""
    return read_columns(path, _SCHEMA)
