"""Rows of any Parquet file, each with its number."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from workloads.elements.errors import DatasetError
from workloads.readers.json_rows import LocatedRow
from workloads.readers.source import Source

PARQUET_MAGIC = b"PAR1"
_BATCH_ROWS = 1_000


def parquet_rows(source: Source) -> Iterator[LocatedRow]:
    """Raises DatasetError."""
    number = 0
    try:
        with pq.ParquetFile(pa.BufferReader(source.read())) as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        raise DatasetError(source.path, f"is not Parquet: {error}") from error
