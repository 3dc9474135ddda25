"""The workload table: what is written is read back equal, and a file that is not one is named."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.elements.errors import DatasetError
from workloads.table.workload import SCHEMA, Workload, WorkloadFacts, parse_workload

FACTS = WorkloadFacts("mooncake", "trace.jsonl", rejected_rows=3, block_tokens=512, tick_ns=3_000_000_000)

_text = st.none() | st.text(st.characters(codec="utf-8"), max_size=20)
_count = st.none() | st.integers(0, 10**9)
_rows = st.lists(
    st.fixed_dictionaries(
        {
            "think_time_ns": _count,
            "session": _text,
            "history": st.none() | st.lists(st.fixed_dictionaries({"role": st.just("system"), "content": _text}), max_size=2),
            "prompt": _text,
            "input_tokens": _count,
            "token_ids": st.none() | st.lists(st.integers(0, 2**31), max_size=4),
        }
    ),
    max_size=8,
)


def _workload(rows: list[dict[str, object]]) -> Workload:
    names = ("think_time_ns", "session", "history", "prompt", "input_tokens", "token_ids")
    return Workload.of_columns(FACTS, len(rows), {name: [row[name] for row in rows] for name in names})


@given(rows=_rows)
def test_a_written_workload_is_read_back_equal(rows: list[dict[str, object]], tmp_path_factory: pytest.TempPathFactory) -> None:
    workload = _workload(rows)
    path = tmp_path_factory.mktemp("workload") / "workload.parquet"
    workload.write(path)
    back = parse_workload(path, path.read_bytes())
    assert back == workload
    assert back.digest == workload.digest


def test_the_digest_covers_every_column_and_the_facts() -> None:
    columns = {"prompt": ["a", "b"], "output_tokens": [1, 2]}
    workload = Workload.of_columns(FACTS, 2, columns)
    others = [
        Workload.of_columns(WorkloadFacts("mooncake", "trace.jsonl"), 2, columns),
        Workload.of_columns(FACTS, 2, columns | {"output_tokens": [1, 3]}),
        Workload.of_columns(FACTS, 2, columns | {"request_class": ["a", None]}),
    ]
    assert len({workload.digest, *(other.digest for other in others)}) == 4


def test_a_file_of_before_there_were_joins_is_read_and_keeps_its_digest(tmp_path: Path) -> None:
    workload = Workload.of_columns(FACTS, 2, {"prompt": ["a", "b"], "parent": [None, 0]})
    assert workload.digest == "551630a0d3a819407f5eaf3326b0db1c1c6b613717e2a0f14a5cf1c18310d0e3"
    path = tmp_path / "workload.parquet"
    workload.write(path)
    table = pq.read_table(path).drop_columns(["joins", "request_id"])
    pq.write_table(table, path)
    assert parse_workload(path, path.read_bytes()) == workload
    joined = Workload.of_columns(FACTS, 2, {"prompt": ["a", "b"], "parent": [None, 0], "joins": [None, [0]]})
    assert joined.digest != workload.digest


@pytest.mark.parametrize(
    ("parents", "joins", "problem"),
    [
        ([None, 0, 0], [None, None, [2]], "a join is not an earlier row"),
        ([None, 0, 0], [None, [-1], None], "a join is not an earlier row"),
        ([None, None, 0], [None, [0], None], "a row joins others and has no parent"),
    ],
)
def test_joins_that_cannot_be_are_named(
    parents: list[int | None], joins: list[list[int] | None], problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "workload.parquet"
    Workload.of_columns(FACTS, 3, {"parent": parents, "joins": joins}).write(path)
    with pytest.raises(DatasetError, match=problem):
        parse_workload(path, path.read_bytes())


def test_the_digest_does_not_depend_on_how_the_table_is_chunked() -> None:
    workload = Workload.of_columns(FACTS, 4, {"prompt": ["a", "b", None, "d"]})
    chunked = Workload(pa.concat_tables([workload.table.slice(0, 1), workload.table.slice(1)]), FACTS)
    assert chunked.digest == workload.digest


def test_columns_that_an_origin_lacks_are_null() -> None:
    workload = Workload.of_columns(FACTS, 2, {"input_tokens": [5, 6]})
    assert len(workload) == 2
    assert workload.table.column_names == SCHEMA.names
    assert workload.table["prompt"].to_pylist() == [None, None]


def test_a_column_that_workloads_do_not_have_is_refused() -> None:
    with pytest.raises(KeyError, match="prompts"):
        Workload.of_columns(FACTS, 1, {"prompts": ["a"]})


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "is not Parquet"), (b"PAR1 but no more", "is not Parquet"), (b"\x00" * 100, "is not Parquet")],
)
def test_a_file_that_is_not_parquet_is_named(content: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.parquet"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=problem):
        parse_workload(path, path.read_bytes())


def test_parquet_that_is_not_a_workload_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(DatasetError, match="field prompt=COLUMN reads other Parquet"):
        parse_workload(path, path.read_bytes())


def test_a_workload_with_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "workload.parquet"
    Workload.of_columns(FACTS, 1, {}).write(path)
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["prompt"]), path)
    with pytest.raises(DatasetError, match="other columns"):
        parse_workload(path, path.read_bytes())


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"arrival_ns": [5, 4]}, "arrival_ns is not sorted"),
        ({"arrival_ns": [-5, 4]}, "arrival_ns is negative"),
        ({"input_tokens": [5, -4]}, "input_tokens is negative"),
        ({"output_tokens": [None, -4]}, "output_tokens is negative"),
        ({"think_time_ns": [None, -4]}, "think_time_ns is negative"),
        ({"parent": [None, 1]}, "a parent is not an earlier row"),
        ({"parent": [None, -1]}, "a parent is not an earlier row"),
    ],
)
def test_columns_that_contradict_each_other_are_refused(columns: dict[str, list[int]], problem: str, tmp_path: Path) -> None:
    path = tmp_path / "workload.parquet"
    Workload.of_columns(FACTS, 2, columns).write(path)
    with pytest.raises(DatasetError, match=problem):
        parse_workload(path, path.read_bytes())
