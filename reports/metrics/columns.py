"""Columns between Arrow and numpy, without pandas.

``pyarrow.Array.to_numpy`` and ``pyarrow.array`` import pandas where it is installed, to recognise its objects: 0.4 s of CPU at
the end of every measurement. No such object occurs here, so numbers are read by DLPack, and columns are made from buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def floats(column: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """A column of numbers, shape [n]; null is NaN. Raises pyarrow.ArrowInvalid for whole numbers that float64 does not hold."""
    return _floats(column.cast(pa.float64()))


def nearest_floats(column: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    """A column of whole numbers of any size, shape [n], as the nearest ones that float64 holds; null is NaN."""
    return _floats(column.cast(pa.float64(), safe=False))


def integers(column: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """A column of whole numbers, shape [n]. Raises pyarrow.ArrowInvalid where it has a null."""
    array = _whole(column.cast(pa.int64()))
    if array.null_count:
        raise pa.ArrowInvalid(f"{array.null_count} of {len(array)} values are missing in a column that needs all")
    return _viewed(array)


def booleans(column: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
    """A column of booleans, shape [n]; null is false."""
    return np.asarray(floats(column) == 1.0)


def integer_column(values: NDArray[np.int64], known: NDArray[np.bool_]) -> pa.Array:
    """``values``, shape [n], with null where they are not ``known``."""
    return pa.Array.from_buffers(pa.int64(), values.size, [_bits(known), pa.py_buffer(np.ascontiguousarray(values))])


def text_column(texts: Sequence[str | None]) -> pa.Array:
    """``texts``, [n], with null for None."""
    encoded = [b"" if text is None else text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    known = np.array([text is not None for text in texts], dtype=np.bool_)
    buffers = [_bits(known), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _floats(column: pa.Array | pa.ChunkedArray) -> NDArray[np.float64]:
    array = _whole(column)
    return _viewed(pc.fill_null(array, _nan()) if array.null_count else array)


def _viewed(array: pa.Array) -> NDArray[Any]:
    return np.from_dlpack(array)


def _nan() -> pa.Scalar:
    """NaN as a scalar; ``pyarrow.scalar`` imports pandas, too."""
    return pa.Array.from_buffers(pa.float64(), 1, [None, pa.py_buffer(np.array([np.nan]))])[0]


def _bits(known: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(known, bitorder="little"))
