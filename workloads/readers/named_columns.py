"""Reader of any file of rows whose columns the user names, as ``prompt=question``: JSON, JSON lines, CSV and Parquet.

The fields of a row are those of ``custom_prompts.py``, and ``answer``; or, of a file without prompts, both lengths in tokens.
A column is a key of JSON or a name in a header, or within nested values a path of keys and of places in lists, with dots:
``messages.0.content``. In CSV an empty cell is none.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workloads.elements.errors import DatasetError, Field
from workloads.readers.csv_rows import csv_header, csv_rows
from workloads.readers.fields import Row, optional_ms_of, prompt_of, shown, text_of, tokens_of, whole_number
from workloads.readers.json_rows import LocatedRow, accepted, first_object, is_array, json_rows
from workloads.readers.parquet_rows import PARQUET_MAGIC, parquet_rows
from workloads.readers.rejects import RejectCounter, RowError
from workloads.readers.source import Source
from workloads.readers.text_rows import TextRow, text_workload, timed_rows
from workloads.table.workload import Workload

NAME = "fields"
NAMES = ("prompt", "answer", "input_tokens", "output_tokens", "timestamp", "session_id", "delay")
_NUMBERS = ("input_tokens", "output_tokens", "timestamp", "delay")
_LENGTHS = ("input_tokens", "output_tokens")
_LOOKED_AT = 100  # rows in which a column must occur
_MOST_NAMED = 40  # columns in a message


@dataclass(frozen=True)
class NamedColumns:
    """The column of each field that a file has."""

    columns: Mapping[str, str]

    @classmethod
    def of(cls, spelled: Sequence[str]) -> NamedColumns:
        """From texts like ``prompt=question``. Raises ValueError."""
        columns: dict[str, str] = {}
        for text in spelled:
            name, separator, column = (part.strip() for part in text.partition("="))
            if not separator or not column:
                raise ValueError(f"{text!r} is not NAME=COLUMN, as prompt=question; NAME is one of {', '.join(NAMES)}")
            if name not in NAMES:
                raise ValueError(f"{text!r}: {name!r} is no field; fields are {', '.join(NAMES)}")
            if name in columns:
                raise ValueError(f"{text!r}: the field {name} is given twice")
            columns[name] = column
        if "prompt" in columns and "input_tokens" in columns:
            raise ValueError("input_tokens belongs to files without prompts, and prompt is given, too")
        if "prompt" not in columns and not set(_LENGTHS) <= columns.keys():
            raise ValueError("prompt=COLUMN is missing, or else input_tokens=COLUMN with output_tokens=COLUMN")
        return cls(columns)

    def read(self, source: Source, rejects: RejectCounter) -> Workload:
        """The workload of a file. Raises DatasetError, also for a column that it does not have."""
        return self.workload(self._rows(source, rejects), rejects)

    def workload(self, rows: Iterator[LocatedRow], rejects: RejectCounter) -> Workload:
        """The workload of rows. Raises DatasetError."""
        first = list(itertools.islice(rows, _LOOKED_AT))
        self._check(rejects.path, first)
        located = accepted(itertools.chain(first, rows), self._row, rejects)
        return text_workload(NAME, timed_rows(_requests(located, rejects), rejects), rejects)

    def _rows(self, source: Source, rejects: RejectCounter) -> Iterator[LocatedRow]:
        if source.head.startswith(PARQUET_MAGIC):
            return parquet_rows(source)
        is_header = not set(self.columns.values()).isdisjoint(csv_header(source.head))  # a text below may have lines of JSON
        if not is_header and (is_array(source.head) or first_object(source.head) is not None):
            return json_rows(source, rejects)
        return csv_rows(source, rejects)

    def _check(self, path: Path, rows: Sequence[LocatedRow]) -> None:
        objects = [(where, row) for where, row in rows if isinstance(row, dict)]
        there = list(dict.fromkeys(name for _, row in objects for name in row))
        for name, column in self.columns.items():
            if objects and not any(_has(row, column) for _, row in objects):
                listed = ", ".join(map(shown, there[:_MOST_NAMED])) + (" …" if len(there) > _MOST_NAMED else "")
                problem = (f"has no column {column!r} (", Field("field"), f" {name}={column}); it has {listed}")
                raise DatasetError(path, problem, objects[0][0])

    def _row(self, row: Row) -> TextRow:
        values = {column: _value(row, column) for column in self.columns.values() if _has(row, column)}
        for name in _NUMBERS:
            column = self.columns.get(name)
            if column is not None and isinstance(values.get(column), str):
                values[column] = _number(values[column])
        return TextRow(
            prompt=None if "prompt" not in self.columns else prompt_of(values, self.columns["prompt"]),
            answer=None if self._lacks(values, "answer") else text_of(values, self.columns["answer"]),
            session=None if self._lacks(values, "session_id") else _session(values, self.columns["session_id"]),
            output_tokens=self._tokens(values, "output_tokens"),
            arrival_ns=None if self._lacks(values, "timestamp") else optional_ms_of(values, self.columns["timestamp"]),
            think_time_ns=None if self._lacks(values, "delay") else optional_ms_of(values, self.columns["delay"]),
            input_tokens=self._tokens(values, "input_tokens"),
        )

    def _lacks(self, values: Row, name: str) -> bool:
        return name not in self.columns or values.get(self.columns[name]) is None

    def _tokens(self, values: Row, name: str) -> int | None:
        """None where the file has none; where it has no prompts, each row needs one."""
        if name not in self.columns or ("prompt" in self.columns and self._lacks(values, name)):
            return None
        return tokens_of(values, self.columns[name])


def _requests(located: Iterator[tuple[str, TextRow]], rejects: RejectCounter) -> Iterator[tuple[str, TextRow]]:
    """The rows that hold a request; of a file without prompts, those of failed ones have a length of 0, and are counted."""
    for where, row in located:
        if row.prompt is None and not (row.input_tokens and row.output_tokens):
            rejects.left_out(where, "the request failed: it has no tokens")
        else:
            yield where, row


def _has(row: Row, column: str) -> bool:
    return column in row or _nested(row, column) is not _ABSENT


def _value(row: Row, column: str) -> object:
    return row[column] if column in row else _nested(row, column)


class _Absent:
    """What is at no place of a row."""


_ABSENT = _Absent()


def _nested(row: Row, column: str) -> object:
    """The value at a path of keys and of places in lists."""
    value: object = row
    for part in column.split("."):
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return _ABSENT
    return _ABSENT if value is row else value


def _number(text: object) -> object:
    """A text of CSV as the number that it writes; any other text as it is."""
    try:
        value = json.loads(str(text))
    except ValueError:
        return text
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if is_number else text


def _session(values: Row, column: str) -> str:
    value = whole_number(values[column])
    if isinstance(value, int) and not isinstance(value, bool):
        return shown(value)
    if not isinstance(value, str):
        raise RowError(f'"{column}" must be a string or a whole number, found {shown(value)}')
    return text_of({column: value}, column)
