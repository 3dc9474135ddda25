"""Columns between Arrow and numpy: the same as pyarrow's own way, which imports pandas."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.metrics.columns import booleans, floats, integer_column, integers, nearest_floats, text_column

_EXACT = st.integers(-(2**53), 2**53)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@given(st.lists(st.none() | _EXACT), st.integers(0, 9))
def test_numbers_as_floats_with_nan_for_null(values: list[int | None], start: int) -> None:
    array = pa.array(values, pa.int64())[start:]
    expected = np.array([np.nan if value is None else value for value in values[start:]], dtype=np.float64)
    np.testing.assert_array_equal(floats(array), expected)
    np.testing.assert_array_equal(floats(pa.chunked_array([array])), expected)
    np.testing.assert_array_equal(floats(pa.chunked_array([array, array])), np.tile(expected, 2))


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.integers(0, 9))
def test_whole_numbers_keep_every_digit(values: list[int], start: int) -> None:
    assert integers(pa.chunked_array([pa.array(values, pa.int64())[start:]])).tolist() == values[start:]


def test_a_column_in_several_pieces_is_whole() -> None:
    """A column of the right type, too, which no conversion joins."""
    assert integers(pa.chunked_array([pa.array([1, 2], pa.int64()), pa.array([3], pa.int64())])).tolist() == [1, 2, 3]
    assert floats(pa.chunked_array([pa.array([1.5], pa.float64()), pa.array([2.5], pa.float64())])).tolist() == [1.5, 2.5]


@given(st.lists(st.none() | st.booleans()), st.integers(0, 9))
def test_a_truth_that_is_not_known_is_false(values: list[bool | None], start: int) -> None:
    assert booleans(pa.chunked_array([pa.array(values, pa.bool_())[start:]])).tolist() == [bool(v) for v in values[start:]]


def test_a_column_of_no_chunks_is_empty() -> None:
    assert floats(pa.chunked_array([], pa.int64())).tolist() == []
    assert integers(pa.chunked_array([], pa.int64())).tolist() == []
    assert booleans(pa.chunked_array([], pa.bool_())).tolist() == []


def test_a_whole_number_that_a_float_does_not_hold_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        floats(pa.array([2**53 + 1], pa.int64()))


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_a_whole_number_of_any_size_has_a_nearest_float(values: list[int | None]) -> None:
    found = nearest_floats(pa.chunked_array([pa.array(values, pa.int64())]))
    np.testing.assert_array_equal(found, [np.nan if value is None else float(value) for value in values])


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_what_is_not_known_is_null(values: list[int | None]) -> None:
    known = np.array([value is not None for value in values], dtype=np.bool_)
    column = integer_column(np.array([value or 0 for value in values], dtype=np.int64), known)
    column.validate(full=True)
    assert column.to_pylist() == values


@given(st.lists(st.none() | _TEXT))
def test_texts(texts: list[str | None]) -> None:
    column = text_column(texts)
    column.validate(full=True)
    assert column.to_pylist() == texts


def test_a_missing_whole_number_is_refused() -> None:
    with pytest.raises(pa.ArrowInvalid, match="1 of 2 values"):
        integers(pa.array([None, 1], pa.int64()))
