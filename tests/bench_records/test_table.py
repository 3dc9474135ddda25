from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from bench_records.record import FAILURES, Outcome, Record, TokenSource
from bench_records.table import read_table, write_table

_NS = st.integers(-(2**53), 2**53)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_COUNT = st.integers(0, 2**31)
_RECORDS = st.builds(
    Record,
    index=_COUNT,
    outcome=st.sampled_from(Outcome),
    scheduled_ns=_NS,
    requested_output_tokens=_COUNT,
    released_ns=st.none() | _NS,
    sent_ns=st.none() | _NS,
    done_ns=st.none() | _NS,
    token_times_ns=st.lists(_NS, max_size=4).map(tuple),
    token_counts=st.none() | st.lists(_COUNT, max_size=4).map(tuple),
    input_tokens=st.none() | _COUNT,
    output_tokens=st.none() | _COUNT,
    output_tokens_source=st.none() | st.sampled_from(TokenSource),
    prompt_echoed=st.none() | st.booleans(),
    ignore_eos=st.booleans(),
    error=st.none() | _TEXT,
    worker=st.none() | _COUNT,
    session=st.none() | _TEXT,
)


def _as_record(row: dict[str, object]) -> Record:
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    source = values["output_tokens_source"]
    return Record(
        **{
            **values,
            "outcome": Outcome(values["outcome"]),
            "output_tokens_source": None if source is None else TokenSource(source),
        }  # type: ignore[arg-type]
    )


@settings(max_examples=50)
@given(st.lists(_RECORDS, max_size=8))
def test_what_is_written_is_read(records: list[Record]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requests.parquet"
        write_table(records, path)
        assert [_as_record(row) for row in read_table(path).to_pylist()] == records


def test_table_has_every_field_of_a_record_in_its_order(tmp_path: Path) -> None:
    write_table([], tmp_path / "requests.parquet")
    record = Record(index=0, outcome=Outcome.DONE, scheduled_ns=0, requested_output_tokens=1)
    assert read_table(tmp_path / "requests.parquet").column_names == list(asdict(record))


def test_table_of_an_older_version_lacks_what_it_did_not_know(tmp_path: Path) -> None:
    path = tmp_path / "requests.parquet"
    write_table([Record(index=0, outcome=Outcome.DONE, scheduled_ns=5, requested_output_tokens=1, released_ns=6)], path)
    pq.write_table(read_table(path).drop_columns(["released_ns"]), path)
    (row,) = read_table(path).to_pylist()
    assert (row["scheduled_ns"], row["released_ns"]) == (5, None)
    assert read_table(path, ["released_ns"]).to_pylist() == [{"released_ns": None}]


def test_writing_leaves_no_other_file_and_replaces_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "requests.parquet"
    for count in (3, 1):
        write_table(
            [Record(index=k, outcome=Outcome.LOST, scheduled_ns=0, requested_output_tokens=1) for k in range(count)], path
        )
        assert read_table(path).num_rows == count
    assert list(tmp_path.iterdir()) == [path]


def test_file_that_is_no_table_is_an_error_of_arrow(tmp_path: Path) -> None:
    (tmp_path / "requests.parquet").write_bytes(b"no table")
    with pytest.raises(pa.ArrowInvalid):
        read_table(tmp_path / "requests.parquet")


def test_failures_are_all_outcomes_of_requests_sent_that_were_not_as_planned() -> None:
    assert {*FAILURES, Outcome.DONE, Outcome.WITHDRAWN, Outcome.NOT_SENT} == set(Outcome)
    assert Outcome.WITHDRAWN not in FAILURES
    assert Outcome.DONE not in FAILURES
