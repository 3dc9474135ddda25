"""Rows of CSV with a header, as texts by the names of its columns: for files of texts, whose cells may hold line ends.

``csv_columns.py`` reads the columns of traces, which have millions of rows of numbers.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator

from workloads.elements.errors import DatasetError
from workloads.readers.json_rows import MOST_LINE_BYTES, LocatedRow
from workloads.readers.rejects import RejectCounter
from workloads.readers.source import Source

_DELIMITERS = ",;\t"
_END = "\x03\x04"  # a last line, which is a row of its own unless a quote before it is never closed


def csv_rows(source: Source, rejects: RejectCounter) -> Iterator[LocatedRow]:
    """Each row with the line at which it begins; an empty cell is None. Raises DatasetError.

    Commas, semicolons or tabs separate columns, whichever the header has the most of.
    """
    if b"\x00" in source.head:
        raise DatasetError(source.path, "is binary: neither JSON, nor CSV, nor Parquet")
    text = io.TextIOWrapper(source.stream, "utf-8-sig", "surrogateescape", newline="")
    csv.field_size_limit(MOST_LINE_BYTES)
    reader = csv.reader(itertools.chain(text, (_END,)), delimiter=_delimiter_of(_first_line(source.head)))
    try:
        header = [name.strip() for name in next(reader, [])]
        _check(source, header)
        line = reader.line_num + 1
        for cells in reader:
            where, lines, line = f"line {line}", reader.line_num - line, reader.line_num + 1
            if not any(cells) or cells == [_END]:
                continue
            problem = _problem(cells, header) if not cells[-1].endswith(_END) else _unclosed(lines)
            if problem is None:
                yield where, {name: cell or None for name, cell in zip(header, cells, strict=True)}
            else:
                rejects.malformed(where, problem)
    except csv.Error as error:
        raise DatasetError(source.path, f"is not CSV: {error}", f"line {reader.line_num}") from error


def csv_header(head: bytes) -> tuple[str, ...]:
    """The names in the first line of content that begins with ``head``, as ``csv_rows`` reads them; none where it is no CSV."""
    line = _first_line(head)
    try:
        return tuple(name.strip() for name in next(csv.reader([line], delimiter=_delimiter_of(line)), ()))
    except csv.Error:
        return ()


def _first_line(head: bytes) -> str:
    return head.partition(b"\n")[0].decode("utf-8", "replace").removeprefix("\ufeff")


def _delimiter_of(header: str) -> str:
    return max(_DELIMITERS, key=header.count)


def _check(source: Source, header: list[str]) -> None:
    if not any(header) or header == [_END]:
        raise DatasetError(source.path, "is empty")
    if header[-1].endswith(_END):
        raise DatasetError(source.path, "has a quote that is not closed", "line 1")
    twice = next((name for number, name in enumerate(header) if name in header[:number]), None)
    if twice is not None:
        raise DatasetError(source.path, f"the column {twice!r} occurs twice", "line 1")


def _unclosed(lines: int) -> str:
    return "has a quote that is not closed" + (f", so the {lines:,} lines from it to the end are one row" if lines > 1 else "")


def _problem(cells: list[str], header: list[str]) -> str | None:
    if len(cells) != len(header):
        return f"has {len(cells)} columns, not {len(header)}"
    if any("\udc80" <= character <= "\udcff" for cell in cells if not cell.isascii() for character in cell):
        return "is not UTF-8"
    return None
