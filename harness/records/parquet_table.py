"""Reading a Parquet file as the columns that this version knows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def read_columns(path: Path, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
    """The fields of ``schema`` in its order, or those named in ``columns`` in theirs, each of the schema's type.

    What an older version did not write is null; what a newer one wrote beside is left out. Raises OSError, or
    pyarrow.ArrowException, also where a field that is never null is missing or has a null.

    ``pyarrow.parquet.read_table`` would do the same by way of pyarrow.dataset, which imports pandas wherever it is installed,
    half a second of CPU; and in a folder whose name is like "worker=3" it would take the column from the name.
    """
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        present = [name for name in wanted.names if name in names]
        if any(names.count(name) > 1 for name in present):
            raise pa.ArrowInvalid("two columns have one name")
        rows, table = file.metadata.num_rows, file.read(columns=present)
    arrays = [table[field.name].cast(field.type) if field.name in present else pa.nulls(rows, field.type) for field in wanted]
    for field, array in zip(wanted, arrays, strict=True):
        if not field.nullable and array.null_count:
            raise pa.ArrowInvalid(f"{array.null_count:,} of {rows:,} values of {field.name} are missing")
    return pa.Table.from_arrays(arrays, schema=wanted)
