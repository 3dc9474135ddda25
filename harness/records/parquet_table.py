"""Parquet files of a fixed schema.

``pyarrow.array`` and ``pyarrow.parquet.read_table`` import pandas wherever it is installed, half a second of CPU. So columns
are built from Arrow's buffers (https://arrow.apache.org/docs/format/Columnar.html), and files are read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from harness.records.whole_file import written_whole

_NUMBERS = {pa.int32(): np.int32, pa.int64(): np.int64, pa.float64(): np.float64}


def write_columns(path: Path, schema: pa.Schema, arrays: Sequence[pa.Array]) -> None:
    """Write an array for each field of ``schema``; the file appears whole or not at all. Raises OSError."""
    with written_whole(path) as temporary:
        repeating = [field.name for field in schema if not pa.types.is_integer(field.type) and not pa.types.is_list(field.type)]
        table = pa.Table.from_arrays(arrays, schema=schema)
        pq.write_table(table, temporary, compression="zstd", use_dictionary=repeating)


def arrow_array(values: Sequence[Any], of_type: pa.DataType) -> pa.Array:
    """An array of numbers, bool, string or lists of int64; None is null, but not within a list."""
    known = np.fromiter((value is not None for value in values), bool, len(values))
    validity = None if known.all() else _bits(known)
    if of_type == pa.list_(pa.int64()):
        lists = [value or () for value in values]
        offsets = _offsets([len(value) for value in lists])
        within = np.fromiter(chain.from_iterable(lists), np.int64, int(offsets[-1]))
        child = pa.Array.from_buffers(pa.int64(), len(within), [None, pa.py_buffer(within)])
        return pa.Array.from_buffers(of_type, len(values), [validity, pa.py_buffer(offsets)], children=[child])
    if of_type == pa.string():
        encoded = [b"" if value is None else value.encode() for value in values]
        buffers = [pa.py_buffer(_offsets([len(value) for value in encoded])), pa.py_buffer(b"".join(encoded))]
    elif of_type == pa.bool_():
        buffers = [_bits(np.fromiter(map(bool, values), bool, len(values)))]
    else:
        numbers = (0 if value is None else value for value in values)
        buffers = [pa.py_buffer(np.fromiter(numbers, _NUMBERS[of_type], len(values)))]
    return pa.Array.from_buffers(of_type, len(values), [validity, *buffers])


def _bits(values: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _offsets(lengths: Sequence[int]) -> NDArray[np.int32]:
    """The start of each value, and the end of the last. Raises OverflowError where an offset exceeds 32 bits."""
    ends = np.cumsum(np.asarray([0, *lengths], np.int64))
    if ends[-1] > np.iinfo(np.int32).max:
        raise OverflowError(f"a column of {ends[-1]:,} values or bytes is too long")
    return ends.astype(np.int32)


def read_columns(path: Path, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table:
    """The fields of ``schema`` in its order, or those named in ``columns`` in theirs, each of the schema's type.

    A column that an older version did not write is null; one that only a newer version writes is ignored. Raises OSError, or
    pyarrow.ArrowException, also where a field that is never null is missing or has a null.

    ``pyarrow.parquet.read_table`` would, in a folder whose name is like "worker=3", take that column from the name.
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
