"""The choice of a reader by a file's head, and what becomes of files that are damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workloads.elements.errors import DatasetError, WorkloadError
from workloads.readers.detect import FORMATS
from workloads.table.workload import Workload, WorkloadFacts

Read = Callable[..., Any]

_UPSTREAM = [{"input": "a", "instruction": "b", "output": "c d"}, {"input": "e", "instruction": "f", "output": "g"}]
_SHAREGPT = [{"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello you"}]}]
_MOONCAKE = [{"timestamp": k, "input_length": 600, "output_length": 5, "hash_ids": [0, k]} for k in range(3)]
_QWEN = [{**row, "chat_id": k, "parent_chat_id": -1, "hash_ids": [k] * 38} for k, row in enumerate(_MOONCAKE)]
_DYNAMO = [
    {"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 1_000 + k, "request": {
        "request_id": f"r{k}", "request_received_ms": 900 + k, "output_tokens": 5,
        "replay": {"trace_block_size": 64, "input_length": 100, "input_sequence_hashes": [0, k]}}}
    for k in range(3)
]  # fmt: skip
_BURST_HEADER = b"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"


def _dump(document: Any) -> bytes:
    return json.dumps(document, indent=1).encode()


def _lines(document: list[Any]) -> bytes:
    return b"\n".join(json.dumps(row).encode() for row in document)


FILES = {
    "upstream": _dump(_UPSTREAM),
    "sharegpt": _dump(_SHAREGPT),
    "openai": _lines([{"messages": [{"role": "user", "content": "a"}], "max_tokens": 4}] * 2),
    "custom": _lines([{"prompt": "a", "output_tokens": 3}] * 2),
    "turns": _lines([{"question_id": 1, "turns": ["a", "b"]}] * 2),
    "dynamo": _dump(_DYNAMO),
    "mooncake": _lines(_MOONCAKE),
    "qwen": _lines(_QWEN),
    "azure": b"TIMESTAMP,ContextTokens,GeneratedTokens\n" + b"2023-11-16 18:15:46.6805900,374,44\n" * 2,
    "burstgpt": _BURST_HEADER + b"5,a,1.5,ChatGPT,1,1,2,Conversation log\n" * 2,
}


@pytest.mark.parametrize("name", FILES)
def test_each_format_is_recognised_by_its_shape(read: Read, name: str) -> None:
    assert read(FILES[name], strict=True).workload.facts.format == name


def test_every_format_is_tried_here_except_three_that_are_tried_elsewhere() -> None:
    assert {*FILES, "text", "parquet", "fields"} == set(FORMATS)


@pytest.mark.parametrize("name", [name for name, content in FILES.items() if content[:1] in b"[{"])
def test_json_is_read_as_an_array_and_as_lines(read: Read, name: str) -> None:
    content = FILES[name]
    documents = json.loads(content) if content.startswith(b"[") else [json.loads(line) for line in content.splitlines()]
    table = read(_lines(documents), strict=True).workload.table.drop_columns("session")
    assert read(_dump(documents), strict=True).workload.table.drop_columns("session") == table


@pytest.mark.parametrize("character", ["\u2028", "\u2029", "\x85"])
def test_a_string_may_hold_what_ends_a_line_elsewhere_than_in_json(read: Read, character: str) -> None:
    row = json.dumps({"output": f"a{character}b", "prompt": "p", "output_tokens": 3}, ensure_ascii=False)
    reading = read(f"{row}\n{row}\n".encode(), strict=True)
    assert (reading.workload.facts.format, len(reading.workload)) == ("custom", 2)


@pytest.mark.parametrize("name", FILES)
def test_byte_order_marks_and_windows_line_ends_are_accepted(read: Read, name: str) -> None:
    content = FILES[name]
    changed = b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n") + b"\r\n"
    assert read(changed, strict=True).workload == read(content, strict=True).workload


def test_a_first_row_longer_than_the_head_is_recognised(read: Read) -> None:
    long = [{"id": "x", "conversations": [{"from": "human", "value": "a" * 200_000}]}]
    assert read(_dump(long)).workload.facts.format == "sharegpt"
    assert read(_lines(long)).workload.facts.format == "sharegpt"


def test_a_malformed_first_line_does_not_hide_the_format(read: Read) -> None:
    reading = read(b"{broken\n" + FILES["custom"])
    assert (reading.workload.facts.format, reading.rejects.first[0].where) == ("custom", "line 1")


def test_a_workload_is_read_as_it_was_written(read: Read, tmp_path: Path) -> None:
    facts = WorkloadFacts("mooncake", "x", rejected_rows=3, block_tokens=512)
    workload = Workload.of_columns(facts, 2, {"input_tokens": [1, 2]})
    workload.write(tmp_path / "w.parquet")
    assert read((tmp_path / "w.parquet").read_bytes()).workload == workload


def test_the_format_can_be_chosen(read: Read) -> None:
    both = [{"prompt": "a", "input": "x", "instruction": "y", "output": "z"}]
    assert read(_lines(both)).workload.table["prompt"].to_pylist() == ["a"]
    assert read(_lines(both), format_name="upstream").workload.table["prompt"].to_pylist() == ["x y"]
    with pytest.raises(WorkloadError, match="format csv: is none of azure, "):
        read(_lines(both), format_name="csv")


def test_text_beyond_ascii_is_read_as_utf_8(read: Read) -> None:
    content = '[{"input": "Grüße 🦊", "instruction": "日本", "output": "é"}]'.encode()
    assert read(content).workload.table["prompt"].to_pylist() == ["Grüße 🦊 日本"]


# ---- files that are damaged


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (b"not json", "row 1: unknown shape; known are: .*ShareGPT"),
        (b'{"other": 1}\n', "unknown shape"),
        (b"{}", "unknown shape"),
        (b"3", "unknown shape"),
        (b"[]", "holds no rows"),
        (b"[3]", "unknown shape"),
        (b"a,b\n1,2\n", "unknown shape"),
        (b"\x00\x01\x02" * 100, "is binary"),
        ("[]".encode("utf-16"), "is binary"),
        (b"\xff", "is binary, or text that is not UTF-8"),
        (b'[\n {"input": "a",}\n]', "line 2, column .*: is not JSON"),
        (b'[\r\n\r\n {"input" "a"}]', "line 3, column 11: is not JSON"),
        (b'[{"input": "line\nbreak"}]', "line 1, column 17: is not JSON"),
        (b'[{"input": "a"', "line 1, column 15: is not JSON"),
        (b'[{"input": "\xff"}]', "byte 12: is not UTF-8"),
        (b'\xef\xbb\xbf[{"input": "\xff"}]', "byte 15: is not UTF-8"),
        (b'[{"input": ' + b"1" * 5_000 + b"}]", "cannot be read"),
        (b'[{"input": ' + b"[" * 100_000, "nested too deeply"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"prompt": 1}\n{"prompt": 2}', "line 1: holds no usable row, of 2"),
        (b'{"prompt": ' + b"[" * 100_000, "line 1: holds no usable row"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens", "holds no rows"),
        (b'TIMESTAMP,ContextTokens,GeneratedTokens\n"a', "holds no usable row|is not CSV"),
        (b"PAR1 but no more", "is not Parquet"),
        (b"\x1f\x8b", "cannot be decompressed|is empty"),
        (b"\x28\xb5\x2f\xfd not zstd", "cannot be decompressed"),
    ],
)
def test_a_file_that_is_none_is_named_with_the_place_and_the_problem(read: Read, content: bytes, problem: str) -> None:
    with pytest.raises(DatasetError, match=rf"data\.json.*{problem}"):
        read(content)


def test_a_value_that_only_some_rows_have_wrong_costs_these_rows(read: Read) -> None:
    content = b'{"prompt": "a"}\n{"prompt": "\xff"}\n\n{"prompt": \n{"a": ' + b"9" * 5000 + b'}\n{"prompt": "b"}'
    reading = read(content)
    assert reading.workload.table["prompt"].to_pylist() == ["a", "b"]
    assert [reject.where for reject in reading.rejects.first] == ["line 2", "line 4", "line 5"]
    assert str(reading.rejects).endswith("3 rows were not read; for example line 2: is not UTF-8: invalid start byte")


@settings(max_examples=300)
@given(
    name=st.sampled_from(sorted(FILES)),
    edits=st.lists(st.tuples(st.integers(0, 500), st.binary(max_size=3), st.integers(0, 3)), max_size=4),
    cut=st.none() | st.integers(0, 500),
    named=st.booleans(),
)
def test_a_damaged_file_is_read_or_refused_with_a_dataset_error(
    read: Read, name: str, edits: list[tuple[int, bytes, int]], cut: int | None, named: bool
) -> None:
    content = bytearray(FILES[name])
    for place, inserted, removed in edits:
        content[place % len(content) : place % len(content) + removed] = inserted
    _read_or_refuse(read, bytes(content[:cut]), name if named else None)


@given(st.binary(max_size=60), st.sampled_from([None, *FORMATS]))
def test_any_bytes_are_read_or_refused_with_a_dataset_error(read: Read, content: bytes, name: str | None) -> None:
    _read_or_refuse(read, content, name)


@settings(max_examples=200)
@given(place=st.integers(0, 5_000), flip=st.integers(1, 255))
def test_a_damaged_workload_is_read_or_refused_with_a_dataset_error(
    read: Read, place: int, flip: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "whole.parquet"
    if not path.exists():
        read(FILES["mooncake"]).workload.write(path)
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= flip
    _read_or_refuse(read, bytes(content), None)


# Arbitrary JSON, pulled towards the known keys so that the readers themselves see it and not only the choice of one.
_WORDS = st.sampled_from(["human", "gpt", "user", "assistant", "system", "Hi"])
_KEYS = st.sampled_from(
    ["input", "instruction", "output", "conversations", "from", "value", "role", "content", "id", "messages", "prompt", "turns"]
)
_NUMBER_KEYS = (
    "timestamp",
    "input_length",
    "output_length",
    "chat_id",
    "parent_chat_id",
    "output_tokens",
    "max_tokens",
    "delay",
    "session_id",
)
_TEXT = st.text(alphabet=st.characters(), max_size=5)
_NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -1, 2**63])
_JSON = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXT | _WORDS,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(_KEYS | _TEXT, children, max_size=4),
    max_leaves=20,
)
_ROW = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(_NUMBER_KEYS, _NUMBERS | _JSON)
    | {"hash_ids": st.lists(_NUMBERS, max_size=3) | _JSON}
    | dict.fromkeys(("conversations", "messages", "turns"), st.lists(_JSON, max_size=4) | _JSON)
    | dict.fromkeys(("prompt", "text_input", "input", "instruction", "output", "id", "type"), _TEXT | _JSON),
)


@settings(max_examples=200)
@given(st.lists(_ROW | _JSON, min_size=1, max_size=4), st.sampled_from([None, *FORMATS]))
@example(_UPSTREAM, None)
def test_any_json_is_read_or_refused_with_a_dataset_error(read: Read, document: list[Any], name: str | None) -> None:
    _read_or_refuse(read, json.dumps(document).encode(), name)
    _read_or_refuse(read, _lines(document), name)


def _read_or_refuse(read: Read, content: bytes, name: str | None) -> None:
    """What is read is a workload by its own rules."""
    try:
        table = read(content, format_name=name).workload.table
    except DatasetError:
        return
    table.validate(full=True)
    assert table.num_rows > 0
    parents = table["parent"].to_pylist()
    assert all(parent is None or 0 <= parent < number for number, parent in enumerate(parents))
    arrivals = [arrival for arrival in table["arrival_ns"].to_pylist() if arrival is not None]
    assert arrivals == sorted(arrivals)
    lengths = [*table["input_tokens"].to_pylist(), *table["output_tokens"].to_pylist()]
    assert all(length is None or length >= 0 for length in lengths)


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1, max_size=4))
def test_upstream_rows_are_read_back_as_they_were_written(read: Read, texts: list[tuple[str, str, str]]) -> None:
    content = json.dumps([{"input": f"<{a}", "instruction": f"{b}>", "output": c} for a, b, c in texts]).encode()
    table = read(content, strict=True).workload.table
    assert table["prompt"].to_pylist() == [f"<{a} {b}>" for a, b, _ in texts]
    assert table["answer"].to_pylist() == [c for _, _, c in texts]
