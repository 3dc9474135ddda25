"""Files of any columns, which the user names."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workloads.elements.errors import DatasetError, WorkloadError
from workloads.readers.detect import Reading, read_workload_file
from workloads.readers.named_columns import NamedColumns

ReadAs = Callable[..., Reading]

_ROWS: list[dict[str, Any]] = [
    {"question": "What is 2 + 2?", "answer": "It is\n4.", "n": 3, "meta": {"topic": ["sums", "plus"]}},
    {"question": 'Say "no",\nplease.', "answer": None, "n": None, "meta": {"topic": ["words", "no"]}},
]
_AS_GSM8K = ("prompt=question", "answer=answer", "output_tokens=n")


@pytest.fixture
def read_as(tmp_path: Path) -> ReadAs:
    """Reads a file of the given bytes with ``--field``."""

    def read(content: bytes, *fields: str, strict: bool = True) -> Reading:
        path = tmp_path / "data"
        path.write_bytes(content)
        return read_workload_file(path, None, strict, NamedColumns.of(fields))

    return read


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())


def _csv(delimiter: str) -> bytes:
    lines = ["question;answer;n", '"What is 2 + 2?";"It is\n4.";3', '"Say ""no"",\nplease.";;']
    return "\r\n".join(line.replace(";", delimiter) for line in lines).encode("utf-8-sig")


def test_a_text_of_csv_may_have_lines_of_json(read_as: ReadAs) -> None:
    """A line of a prompt that is an object does not make the file JSON lines."""
    for text in ("void f()\n{}", '{"a": 1}', "[\n1]"):
        cell = '"' + text.replace('"', '""') + '"'
        table = read_as(f"q,n\n{cell},3\n".encode(), "prompt=q", "output_tokens=n").workload.table
        assert (table["prompt"].to_pylist(), table["output_tokens"].to_pylist()) == ([text], [3])


def test_json_lines_of_which_the_first_is_cut_are_json(read_as: ReadAs) -> None:
    reading = read_as(b'"q": "cut"}\n{"q": "whole", "n": 2}\n', "prompt=q", "output_tokens=n", strict=False)
    assert reading.workload.table["prompt"].to_pylist() == ["whole"]
    assert reading.rejects.count == 1


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(_ROWS).encode(),
        gzip.compress("\n".join(map(json.dumps, _ROWS)).encode()),
        _parquet(_ROWS),
        _csv(","),
        _csv(";"),
        _csv("\t"),
    ],
)
def test_a_file_of_any_kind_is_read_by_its_columns(read_as: ReadAs, content: bytes) -> None:
    reading = read_as(content, *_AS_GSM8K)
    table = reading.workload.table
    assert table["prompt"].to_pylist() == ["What is 2 + 2?", 'Say "no",\nplease.']
    assert table["answer"].to_pylist() == ["It is\n4.", None]
    assert table["output_tokens"].to_pylist() == [3, None]
    assert reading.workload.facts.format == "fields"
    assert table["arrival_ns"].null_count == 2


def test_a_path_leads_into_nested_values(read_as: ReadAs) -> None:
    content = json.dumps(_ROWS).encode()
    assert read_as(content, "prompt=meta.topic.1").workload.table["prompt"].to_pylist() == ["plus", "no"]
    dotted = json.dumps([{"meta.topic": "whole", "meta": {"topic": "part"}}]).encode()
    assert read_as(dotted, "prompt=meta.topic").workload.table["prompt"].to_pylist() == ["whole"]


def test_times_sessions_and_delays_make_conversations(read_as: ReadAs) -> None:
    content = b"text,at,who,wait\nsecond,20.5,7,15\nfirst,10,7,\nother,12,8,\n"
    table = read_as(content, "prompt=text", "timestamp=at", "session_id=who", "delay=wait").workload.table
    assert table["prompt"].to_pylist() == ["first", "other", "second"]
    assert table["arrival_ns"].to_pylist() == [0, 2_000_000, 10_500_000]
    assert table["session"].to_pylist() == ["7", "8", "7"]
    assert table["parent"].to_pylist() == [None, None, 0]
    assert table["think_time_ns"].to_pylist() == [None, None, 15_000_000]


def test_lengths_without_prompts_are_a_trace(read_as: ReadAs) -> None:
    table = read_as(b"in,out\n5,6\n7.0,8\n", "input_tokens=in", "output_tokens=out").workload.table
    assert (table["input_tokens"].to_pylist(), table["output_tokens"].to_pylist()) == ([5, 7], [6, 8])
    assert table["prompt"].null_count == 2


@pytest.mark.parametrize(
    ("content", "fields", "problem"),
    [
        (b'{"q": 1}', ("prompt=quest",), "data, line 1: has no column 'quest' (field prompt=quest); it has 'q'"),
        (b"q,a\n1,2\n", ("prompt=x",), "data, line 2: has no column 'x' (field prompt=x); it has 'q', 'a'"),
        (_parquet(_ROWS), ("prompt=x",), "row 1: has no column 'x' (field prompt=x); it has 'question', 'answer', 'n', 'meta'"),
        (b'[{"q": {"a": "b"}}]', ("prompt=q.b",), "row 1: has no column 'q.b'"),
        (b'{"q": ["a"]}', ("prompt=q",), 'line 1: "q" must be a string, found list'),
        (b'{"q": "a"}\n{"p": "a"}', ("prompt=q",), 'line 2: the field "q" is missing'),
        (b'{"q": "a"}\n{"q": " "}', ("prompt=q",), "line 2: the prompt is empty"),
        (b'q,n\n"a\nb",4\nc,many\n', ("prompt=q", "output_tokens=n"), 'line 4: "n" must be a whole number'),
        (b"q,n\na,-1\n", ("prompt=q", "output_tokens=n"), 'line 2: "n" must be a whole number'),
        (b"q,n\na,1\nb\n", ("prompt=q",), "line 3: has 1 columns, not 2"),
        (b"q,n\na\xff,1\n", ("prompt=q",), "line 2: is not UTF-8"),
        (b"q,q\na,1\n", ("prompt=q",), "line 1: the column 'q' occurs twice"),
        (b"q,n\n", ("prompt=q",), "holds no rows"),
        (b"", ("prompt=q",), "is empty"),
        (b"a\x00b", ("prompt=q",), "is binary: neither JSON, nor CSV, nor Parquet"),
        (b"PAR1 but no more", ("prompt=q",), "is not Parquet"),
        (b"in,out\n5,\n", ("input_tokens=in", "output_tokens=out"), 'line 2: "out" must be a whole number'),
        (b"q,t\na,1\nb,\n", ("prompt=q", "timestamp=t"), 'line 3: the field "timestamp" is missing, which other rows have'),
        (b'{"q": "a", "s": true}', ("prompt=q", "session_id=s"), '"s" must be a string or a whole number, found True'),
    ],
)
def test_what_a_file_lacks_is_named_with_its_place(
    read_as: ReadAs, content: bytes, fields: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(DatasetError) as error:
        read_as(content, *fields)
    assert problem in str(error.value)


def test_a_row_that_cannot_be_read_is_counted(read_as: ReadAs) -> None:
    reading = read_as(b"q,n\na,1\nb,x\nc,3\n", "prompt=q", "output_tokens=n", strict=False)
    assert (len(reading.workload), reading.rejects.count) == (2, 1)
    assert reading.workload.facts.rejected_rows == 1


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (("question",), "'question' is not NAME=COLUMN"),
        (("prompt=",), "'prompt=' is not NAME=COLUMN"),
        (("question=prompt",), "'question' is no field; fields are prompt, answer"),
        (("prompt=a", "prompt=b"), "the field prompt is given twice"),
        (("prompt=a", "input_tokens=b"), "input_tokens belongs to files without prompts"),
        (("answer=a",), "prompt=COLUMN is missing, or else input_tokens=COLUMN"),
        (("input_tokens=a",), "prompt=COLUMN is missing"),
    ],
)
def test_names_that_make_no_rows_are_refused(fields: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        NamedColumns.of(fields)


def test_a_format_of_its_own_contradicts_named_columns(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text('{"q": "a"}')
    with pytest.raises(WorkloadError, match="format custom cannot be combined with field"):
        read_workload_file(path, "custom", columns=NamedColumns.of(["prompt=q"]))
    with pytest.raises(WorkloadError, match="format fields needs field"):
        read_workload_file(path, "fields")
    assert len(read_workload_file(path, "fields", columns=NamedColumns.of(["prompt=q"])).workload) == 1


def test_a_quote_that_is_not_closed_is_no_prompt_of_all_lines_after_it(read_as: ReadAs) -> None:
    content = b'n,prompt\n5,"one\nof two lines"\n6,"two\n7,three\n8,four'
    reading = read_as(content, "prompt=prompt", "output_tokens=n", strict=False)
    assert reading.workload.table["prompt"].to_pylist() == ["one\nof two lines"]
    (reject,) = reading.rejects.first
    assert (reading.rejects.count, reject.where) == (1, "line 4")
    assert reject.reason == "has a quote that is not closed, so the 3 lines from it to the end are one row"
    with pytest.raises(DatasetError, match="line 4: has a quote that is not closed"):
        read_as(content, "prompt=prompt")


def test_a_quote_that_is_not_closed_in_the_last_line_or_in_the_header(read_as: ReadAs) -> None:
    reading = read_as(b'n,prompt\n5,one\n6,"two', "prompt=prompt", strict=False)
    assert [reject.reason for reject in reading.rejects.first] == ["has a quote that is not closed"]
    with pytest.raises(DatasetError, match="line 1: has a quote that is not closed"):
        read_as(b'n,"prompt\n5,one\n6,two\n', "prompt=prompt")


def test_rows_of_failed_requests_are_left_out_and_counted(read_as: ReadAs) -> None:
    """As those of the known traces: a prompt of no token cannot be sent, nor an answer of none be requested."""
    content = b"a,b\n10,5\n0,5\n12,0\n0,0\n14,7\n"
    reading = read_as(content, "input_tokens=a", "output_tokens=b")
    assert reading.workload.table["input_tokens"].to_pylist() == [10, 14]
    assert reading.rejects.count == reading.workload.facts.rejected_rows == 3
    assert (reading.rejects.first[0].where, reading.rejects.first[0].reason) == (
        "line 3",
        "the request failed: it has no tokens",
    )
