"""``client.parquet``: how the client fared through a run, one row a ClientSample, by time. Writer and reader of one format."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from harness.records.client_sample import ClientSample
from harness.records.parquet_table import read_columns
from harness.records.whole_file import written_whole

_SCHEMA = pa.schema(
    [pa.field(name, pa.int64(), nullable=name != "time_ns") for name in ClientSample.__struct_fields__],
)


def write_client_table(samples: Iterable[ClientSample], path: Path) -> None:
    """Write ``samples`` to ``path``, sorted by time; the file appears whole or not at all. Raises OSError."""
    ordered = sorted(samples, key=lambda sample: sample.time_ns)
    columns = [pa.array([getattr(sample, field.name) for sample in ordered], field.type) for field in _SCHEMA]
    with written_whole(path) as temporary:
        pq.write_table(pa.Table.from_arrays(columns, schema=_SCHEMA), temporary, compression="zstd")


def read_client_table(path: Path) -> pa.Table:
    """Read what ``write_client_table`` wrote: the fields of ClientSample. Raises OSError or pyarrow.ArrowInvalid."""
    return read_columns(path, _SCHEMA)
