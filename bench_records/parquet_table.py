"""Parquet files of a fixed schema.

``pyarrow.array`` and ``pyarrow.parquet.read_table`` import pandas wherever it is installed, half a second of CPU. So columns
are built from Arrow's buffers (https://arrow.apache.org/docs/format/Columnar.html), and files are read one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bench_records.regular_file import regular
from bench_records.whole_file import written_whole

_LARGEST = 1 << 53  # float64 holds whole numbers up to here exactly; as ns they are 104 days
_VALUE_BYTES = 8
# A few bytes of Parquet can expand to gigabytes of equal values. In what a run writes, requests that were due at once and never
# sent repeat themselves most: 190 bytes in memory for one in the file; others take up to 50.
_MOST_TIMES_LARGER = 600
_ALWAYS_READ_BYTES = 64 << 20

_NUMBERS = {pa.int32(): np.int32, pa.int64(): np.int64, pa.float64(): np.float64}


def write_columns(path: Path, schema: pa.Schema, arrays: Sequence[pa.Array]) -> None:
    """Write an array for each field of ``schema``; the file appears whole or not at all. Raises OSError."""
    with written_whole(path) as temporary:
        repeating = [field.name for field in schema if not pa.types.is_integer(field.type) and not pa.types.is_list(field.type)]
        table = pa.Table.from_arrays(arrays, schema=schema)
        pq.write_table(table, temporary, compression="zstd", use_dictionary=repeating)


def arrow_array(values: Sequence[Any], of_type: pa.DataType) -> pa.Array:
    """An array of numbers, bool, string or lists of int64; None is null, but not within a list."""
    unknown = values.count(None)
    if unknown == len(values):
        return pa.nulls(len(values), of_type)
    validity = _bits(np.fromiter((value is not None for value in values), bool, len(values))) if unknown else None
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
        numbers = (0 if value is None else value for value in values) if unknown else values
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


def read_columns(
    path: Path, schema: pa.Schema, columns: Sequence[str] | None = None, of_any_size: Collection[str] = ()
) -> pa.Table:
    """The fields of ``schema`` in its order, or those named in ``columns`` in theirs, each of the schema's type.

    A column that an older version did not write is null; one that only a newer version writes is ignored. Raises OSError, or
    pyarrow.ArrowException, also where a field that is never null is missing or has a null, a whole number is beyond 2⁵³ in
    a column that is not named in ``of_any_size``, or the table is so much larger than the file that no run has written it.

    ``pyarrow.parquet.read_table`` would, in a folder whose name is like "worker=3", take that column from the name.
    """
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    limit = max(_ALWAYS_READ_BYTES, _MOST_TIMES_LARGER * regular(path).stat().st_size)
    with pq.ParquetFile(path) as file:
        found, metadata = file.schema_arrow, file.metadata
    present = [name for name in wanted.names if name in found.names]
    if any(found.names.count(name) > 1 for name in present):
        raise pa.ArrowInvalid("two columns have one name")
    _check_size(_declared_bytes(metadata, wanted), limit)
    texts = [name for name in present if _is_text(found.field(name).type)]
    with pq.ParquetFile(path, metadata=metadata, read_dictionary=texts) as file:
        rows, table = metadata.num_rows, file.read(columns=present)
    arrays = [
        _converted(table[field.name], field, limit) if field.name in present else pa.nulls(rows, field.type) for field in wanted
    ]
    for field, array in zip(wanted, arrays, strict=True):
        if field.name not in of_any_size:
            _check_range(array, field.name)
    for field, array in zip(wanted, arrays, strict=True):
        if not field.nullable and array.null_count:
            raise pa.ArrowInvalid(f"{array.null_count:,} of {rows:,} values of {field.name} are missing")
    return pa.Table.from_arrays(arrays, schema=wanted)


def _is_text(of_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(of_type) or pa.types.is_large_string(of_type))


def _declared_bytes(metadata: pq.FileMetaData, wanted: pa.Schema) -> int:
    """The bytes in memory of the fields of ``wanted``, by the file's footer; texts, which repeat, count once for each page."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    read = [column for column in columns if column.path_in_schema.partition(".")[0] in wanted.names]
    missing = max(0, len(wanted) - len({column.path_in_schema for column in read}))
    values = sum(column.num_values for column in read) + metadata.num_rows * missing
    return int(values * _VALUE_BYTES + sum(column.total_uncompressed_size for column in read))


def _check_size(table_bytes: int, limit: int) -> None:
    """Raises pyarrow.ArrowInvalid."""
    if table_bytes > limit:
        raise pa.ArrowInvalid(f"its table of {table_bytes:,} bytes is too large for a file of its size")


def _converted(column: pa.ChunkedArray, field: pa.Field, limit: int) -> pa.ChunkedArray:
    """``column`` in the type of ``field``. Raises pyarrow.ArrowException."""
    if pa.types.is_string(field.type):
        _check_size(sum(map(_text_bytes, column.chunks)), limit)
    converted = column.cast(field.type)
    values = pc.list_flatten(converted) if pa.types.is_list(field.type) else converted
    if pa.types.is_list(field.type) and values.null_count:
        raise pa.ArrowInvalid(f"{values.null_count:,} values within {field.name} are missing")
    return converted


def _text_bytes(chunk: pa.Array) -> int:
    """The bytes of a column of texts without its dictionary."""
    if not pa.types.is_dictionary(chunk.type):
        return int(chunk.nbytes)
    lengths = pc.binary_length(chunk.dictionary)
    return int(pc.sum(lengths.take(chunk.indices)).as_py() or 0) if len(lengths) else 0


def _check_range(column: pa.Array | pa.ChunkedArray, name: str) -> None:
    """Raises pyarrow.ArrowInvalid for a whole number, also one in a list, that float64 may not hold."""
    values = pc.list_flatten(column) if pa.types.is_list(column.type) else column
    if not pa.types.is_integer(values.type):
        return
    extremes = pc.min_max(values)
    for extreme in ("min", "max"):
        value = extremes[extreme].as_py()
        if value is not None and abs(value) > _LARGEST:
            raise pa.ArrowInvalid(f"{name} has the value {value}, which is beyond 2⁵³")
