"""Files of other versions or programs: read as this version's columns, or refused with an error of Arrow."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench_records.parquet_table import read_columns

_TEXT = pa.dictionary(pa.int32(), pa.string())
_SCHEMA = pa.schema(
    [pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.list_(pa.int64())), pa.field("c", pa.string()), ("d", _TEXT)]
)
_ROW = {"a": 1, "b": [2, 3], "c": "four", "d": "five"}


def _written(path: Path, table: pa.Table) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(table, path)
    return path


def _read(path: Path, table: pa.Table) -> pa.Table:
    found = read_columns(_written(path / "file.parquet", table), _SCHEMA)
    assert found.schema.equals(_SCHEMA)
    return found


def test_columns_come_in_the_order_of_the_schema_or_of_the_names(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([_ROW], _SCHEMA)
    assert _read(tmp_path, table.select(["d", "c", "b", "a"])).to_pylist() == [_ROW]
    assert read_columns(tmp_path / "file.parquet", _SCHEMA, ["c", "a"]).to_pylist() == [{"c": "four", "a": 1}]
    assert read_columns(tmp_path / "file.parquet", _SCHEMA, ["c", "a"]).column_names == ["c", "a"]


def test_what_is_never_null_must_be_there(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([_ROW] * 2, _SCHEMA).drop_columns(["a"])
    with pytest.raises(pa.ArrowInvalid, match="2 of 2 values of a"):
        _read(tmp_path, table)
    with pytest.raises(pa.ArrowInvalid, match="1 of 2 values of a"):
        _read(tmp_path, table.append_column("a", pa.array([1, None])))


@pytest.mark.parametrize("name", ["b", "c", "d"])
def test_a_column_that_is_not_there_is_null(tmp_path: Path, name: str) -> None:
    table = pa.Table.from_pylist([_ROW] * 2, _SCHEMA).drop_columns([name])
    assert _read(tmp_path, table).to_pylist() == [_ROW | {name: None}] * 2
    assert read_columns(tmp_path / "file.parquet", _SCHEMA, [name]).to_pylist() == [{name: None}] * 2


def test_other_columns_and_metadata_are_left_out(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([_ROW], _SCHEMA).append_column("e", pa.array([6])).replace_schema_metadata({"f": "g"})
    found = _read(tmp_path, table)
    assert found.to_pylist() == [_ROW]
    assert found.schema.metadata is None


def test_other_types_of_the_same_values_are_turned(tmp_path: Path) -> None:
    columns = [("a", pa.int8()), ("b", pa.large_list(pa.int32())), ("c", pa.large_string()), ("d", pa.string())]
    assert _read(tmp_path, pa.Table.from_pylist([_ROW] * 3, pa.schema(columns))).to_pylist() == [_ROW] * 3


@pytest.mark.parametrize("values", [["x"], [1.5], [[1]], [{"a": 1}]])
def test_other_values_are_refused(tmp_path: Path, values: list[object]) -> None:
    with pytest.raises(pa.ArrowException):
        _read(tmp_path, pa.table({"a": pa.array(values)}))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(pa.ArrowInvalid):
        _read(tmp_path, twice)


def test_a_file_of_no_rows_and_of_many_groups(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([_ROW | {"a": k, "d": str(k)} for k in range(10)], _SCHEMA)
    assert _read(tmp_path, table.slice(0, 0)).num_rows == 0
    pq.write_table(table, tmp_path / "file.parquet", row_group_size=3)
    assert read_columns(tmp_path / "file.parquet", _SCHEMA).to_pylist() == table.to_pylist()


def test_the_name_of_a_folder_is_no_column(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([_ROW], _SCHEMA)
    assert read_columns(_written(tmp_path / "a=7" / "file.parquet", table), _SCHEMA).to_pylist() == [_ROW]


def test_no_file_a_folder_and_no_table(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_columns(tmp_path / "file.parquet", _SCHEMA)
    with pytest.raises(OSError, match="directory"):
        read_columns(tmp_path, _SCHEMA)
    for content in (b"", b"no table", b"PAR1" + b"x" * 50 + b"PAR1"):
        (tmp_path / "file.parquet").write_bytes(content)
        with pytest.raises((OSError, pa.ArrowException)):
            read_columns(tmp_path / "file.parquet", _SCHEMA)


def test_whole_numbers_beyond_2_53_are_refused_but_where_any_size_is_known(tmp_path: Path) -> None:
    large = pa.Table.from_pylist([_ROW | {"a": 2**53 + 1}], _SCHEMA)
    path = _written(tmp_path / "file.parquet", large)
    with pytest.raises(pa.ArrowInvalid, match="a has the value 9007199254740993"):
        read_columns(path, _SCHEMA)
    assert read_columns(path, _SCHEMA, ["a"], of_any_size=("a",)).to_pylist() == [{"a": 2**53 + 1}]
