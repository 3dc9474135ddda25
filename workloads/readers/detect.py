"""The reader of a file, chosen by the shape of its head: by the names of its columns or keys, never by their position."""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from workloads.elements.errors import DatasetError, Field, WorkloadError
from workloads.readers.csv_columns import header_of
from workloads.readers.fields import Row
from workloads.readers.formats import (
    azure,
    burstgpt,
    custom_prompts,
    dynamo_requests,
    mooncake,
    openai_messages,
    question_turns,
    qwen_bailian,
    sharegpt,
    text_corpus,
    upstream_json,
)
from workloads.readers.hugging_face import hugging_face_rows, is_hugging_face
from workloads.readers.json_rows import BYTE_ORDER_MARK, LocatedRow, first_object, is_array, json_rows
from workloads.readers.named_columns import NAME as FIELDS
from workloads.readers.named_columns import NamedColumns
from workloads.readers.parquet_rows import PARQUET_MAGIC
from workloads.readers.rejects import RejectCounter, Rejects
from workloads.readers.servegen import is_client_profile
from workloads.readers.source import Source, name_of, open_source
from workloads.table.workload import Workload, parse_workload

_PARQUET = "parquet"
_OTHERS = (Field("field"), " prompt=COLUMN reads any other JSON, CSV or Parquet")
_COMPRESSED_SUFFIXES = (".gz", ".zst")


class JsonReader(Protocol):
    """A reader of rows of JSON."""

    NAME: str
    SHAPE: str

    def recognises(self, first_row: Row, /) -> bool: ...

    def read(self, rows: Iterator[LocatedRow], rejects: RejectCounter, /) -> Workload: ...


class CsvReader(Protocol):
    """A reader of CSV with a header."""

    NAME: str
    SHAPE: str

    def recognises(self, header: Sequence[str], /) -> bool: ...

    def read(self, source: Source, rejects: RejectCounter, /) -> Workload: ...


# In the order in which a row's keys are looked at: a conversation may have an "output" too, upstream's rows have no turns.
JSON_READERS: tuple[JsonReader, ...] = (
    dynamo_requests, mooncake, qwen_bailian, sharegpt, openai_messages, question_turns, custom_prompts, upstream_json,
)  # fmt: skip
_CSV_READERS: tuple[CsvReader, ...] = (azure, burstgpt)
FORMATS = tuple(sorted([*(r.NAME for r in JSON_READERS), *(r.NAME for r in _CSV_READERS), text_corpus.NAME, _PARQUET, FIELDS]))


@dataclass(frozen=True)
class Reading:
    """A file as a workload, and the rows that are not in it."""

    workload: Workload
    rejects: Rejects


def read_workload_file(
    path: Path,
    format: str | None = None,  # noqa: A002
    strict: bool = False,
    columns: NamedColumns | None = None,
) -> Reading:
    """Read a file of any known format, standard input where ``path`` is ``-``, or a dataset of Hugging Face (a folder, or
    ``hf:NAME``); ``format`` is one of ``FORMATS``. With ``columns`` it is a file of any rows that have these.

    A row that cannot be read is counted; with ``strict`` the first malformed one is an error. Raises DatasetError.
    """
    rejects = RejectCounter(name_of(path), strict)
    if is_client_profile(path):
        raise DatasetError(path, "has clients of ServeGen, not requests; `bench workload synthesize` draws requests from them")
    if columns is not None and format not in (None, FIELDS):
        raise WorkloadError(Field("format"), f" {format} cannot be combined with ", Field("field"), ", which names the columns")
    if is_hugging_face(path):
        workload = columns.workload(hugging_face_rows(path), rejects) if columns else _read_hugging_face(path, format, rejects)
    else:
        with open_source(path) as source:
            workload = columns.read(source, rejects) if columns else _read(source, format or _format_of(source), rejects)
    if rejects.count:
        workload = replace(workload, facts=replace(workload.facts, rejected_rows=rejects.count))
    return Reading(workload, rejects.total())


def _read_hugging_face(path: Path, name: str | None, rejects: RejectCounter) -> Workload:
    rows = hugging_face_rows(path)
    first = next(rows, None)
    if first is None:
        raise DatasetError(path, "holds no rows")
    first_row = first[1] if isinstance(first[1], dict) else {}
    reader = _json_reader(path, name) if name is not None else _recognising(first_row)
    if reader is None:
        columns = ", ".join(map(repr, first_row))
        shapes = "; ".join(reader.SHAPE for reader in JSON_READERS)
        raise DatasetError(path, (f"unknown shape with the columns {columns}; known are: {shapes}; ", *_OTHERS))
    return reader.read(itertools.chain([first], rows), rejects)


def _read(source: Source, name: str, rejects: RejectCounter) -> Workload:
    if name == _PARQUET or source.head.startswith(PARQUET_MAGIC):  # an imported file may be named by its origin's format
        return parse_workload(source.path, source.read())
    if name == text_corpus.NAME:
        return text_corpus.read(source, rejects)
    csv_reader = {reader.NAME: reader for reader in _CSV_READERS}.get(name)
    if csv_reader is not None:
        return csv_reader.read(source, rejects)
    return _json_reader(source.path, name).read(json_rows(source, rejects), rejects)


def _json_reader(path: Path, name: str) -> JsonReader:
    reader = {reader.NAME: reader for reader in JSON_READERS}.get(name)
    if name == FIELDS:
        raise DatasetError(path, (Field("format"), f" {FIELDS} needs ", Field("field"), ", which names the columns"))
    if reader is None:
        raise WorkloadError(Field("format"), f" {name}: is none of {', '.join(FORMATS)}")
    return reader


def _recognising(first_row: Row) -> JsonReader | None:
    return next((reader for reader in JSON_READERS if reader.recognises(first_row)), None)


def _format_of(source: Source) -> str:
    if source.head.startswith(PARQUET_MAGIC):
        return _PARQUET
    first_row = first_object(source.head)
    if first_row is not None:
        reader = _recognising(first_row)
        found = None if reader is None else reader.NAME
    else:
        header = header_of(source.head)
        found = next((reader.NAME for reader in _CSV_READERS if reader.recognises(header)), None)
    if found is None and _is_named_as_text(source.path):
        found = text_corpus.NAME
    if found is None:
        raise _unknown(source, first_row)
    return found


def _is_named_as_text(path: Path) -> bool:
    name = path.name.lower()
    for suffix in _COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    return name.endswith(text_corpus.SUFFIXES)


def _unknown(source: Source, first_row: Row | None) -> DatasetError:
    """The error of a head that no reader recognises. Raises DatasetError, too, for an array that is not JSON."""
    if not source.head.removeprefix(BYTE_ORDER_MARK).strip():
        return DatasetError(source.path, "is empty")
    if first_row is None and is_array(source.head):  # a fault of its syntax comes first
        if next(json_rows(source, RejectCounter(source.path)), None) is None:
            return DatasetError(source.path, "holds no rows")
    elif b"\x00" in source.head or not _is_utf_8(source.head):
        return DatasetError(source.path, "is binary, or text that is not UTF-8; no format of workloads begins so")
    shapes = "; ".join([*(r.SHAPE for r in JSON_READERS), *(r.SHAPE for r in _CSV_READERS), text_corpus.SHAPE])
    has = f" with {', '.join(map(repr, first_row))}" if first_row else ""
    problem = (f"unknown shape{has}; known are: {shapes}; and workload.parquet; ", *_OTHERS)
    return DatasetError(source.path, problem, "row 1")


def _is_utf_8(head: bytes) -> bool:
    """Whether ``head``, which may end within a character, is UTF-8."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
