"""The table that reports read is the table that the harness wrote, value for value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench_records.record import Outcome, Record, TokenSource
from bench_records.table import read_table, write_table

_NS = st.integers(min_value=0, max_value=2**53)
_TOKENS = st.lists(st.tuples(_NS, st.integers(1, 100)), max_size=4)


@st.composite
def _records(draw: Any) -> Record:
    tokens = draw(_TOKENS)
    return Record(
        index=draw(st.integers(0, 2**40)),
        outcome=draw(st.sampled_from(Outcome)),
        scheduled_ns=draw(_NS),
        requested_output_tokens=draw(st.integers(1, 2**31)),
        sent_ns=draw(st.none() | _NS),
        done_ns=draw(st.none() | _NS),
        token_times_ns=tuple(at for at, _ in tokens),
        token_counts=draw(st.none() | st.just(tuple(count for _, count in tokens))),
        input_tokens=draw(st.none() | st.integers(0, 2**31)),
        output_tokens=draw(st.none() | st.integers(0, 2**31)),
        output_tokens_source=draw(st.none() | st.sampled_from(TokenSource)),
        prompt_echoed=draw(st.none() | st.booleans()),
        ignore_eos=draw(st.booleans()),
        error=draw(st.none() | st.text(max_size=20)),
        worker=draw(st.none() | st.integers(0, 255)),
        session=draw(st.none() | st.text(max_size=5)),
    )


def _back(row: dict[str, Any]) -> Record:
    counts, source = row["token_counts"], row["output_tokens_source"]
    return Record(
        **row
        | {
            "outcome": Outcome(row["outcome"]),
            "token_times_ns": tuple(row["token_times_ns"]),
            "token_counts": None if counts is None else tuple(counts),
            "output_tokens_source": None if source is None else TokenSource(source),
        }
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("table") / "requests.parquet"


@settings(max_examples=50)
@given(st.lists(_records(), max_size=5))
def test_what_is_read_is_what_was_written(path: Path, records: list[Record]) -> None:
    write_table(records, path)
    assert [_back(row) for row in read_table(path).to_pylist()] == records


def test_every_field_of_a_record_has_a_column(path: Path) -> None:
    write_table([], path)
    assert read_table(path).column_names == list(Record.__struct_fields__)


def test_unknown_counts_and_no_counts_are_distinguished(path: Path) -> None:
    write_table([Record(0, Outcome.DONE, 0, 1, token_counts=None), Record(1, Outcome.DONE, 0, 1, token_counts=())], path)
    assert read_table(path)["token_counts"].to_pylist() == [None, []]


def test_a_table_replaces_the_one_before_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "requests.parquet"
    write_table([Record(0, Outcome.DONE, 0, 1)] * 3, path)
    write_table([Record(7, Outcome.LOST, 0, 1)], path)
    assert read_table(path)["index"].to_pylist() == [7]
    assert [file.name for file in tmp_path.iterdir()] == ["requests.parquet"]


def test_a_write_that_fails_leaves_the_table_before_it_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "requests.parquet"
    good = Record(0, Outcome.DONE, 0, 1)
    write_table([good], path)
    bad = Record(1, Outcome.DONE, 2**64, 1)  # no 64-bit number of nanoseconds
    with pytest.raises((OverflowError, pa.ArrowException)):
        write_table([good, bad], path)
    assert [_back(row) for row in read_table(path).to_pylist()] == [good]
    assert good.sent_ns is None
