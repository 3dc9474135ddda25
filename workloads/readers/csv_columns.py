"""Columns of a CSV file by the names in its header, in blocks, and their texts as numbers and times.

Files have millions of rows, so whole columns are parsed at once, by pyarrow.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from workloads.elements.errors import DatasetError
from workloads.elements.request import LONGEST_TOKENS
from workloads.readers.arrivals_of_origin import Times
from workloads.readers.fields import LATEST_S, shown
from workloads.readers.rejects import RejectCounter
from workloads.readers.source import Source

_BLOCK_BYTES = 4 << 20
_MOST_SKIPPED = 100_000  # lines of another number of columns: then the file is not what its header announces
_SECOND_NS = 1_000_000_000
_DAMAGED = "\ufffd"
_WHOLE = r"^[0-9]{1,8}$"
_SECONDS = r"^(?P<whole>[0-9]{1,10})(?:\.(?P<fraction>[0-9]{0,9})[0-9]*)?$"
_DATE = r"(?P<date>(?:19[7-9]|20[0-9])[0-9]-[0-9]{2}-[0-9]{2})[ T](?P<time>[0-9]{2}:[0-9]{2}:[0-9]{2})"
_TIMESTAMP = rf"^{_DATE}(?:\.(?P<fraction>[0-9]{{0,9}}))?(?:Z|(?P<sign>[+-])(?P<hours>[0-9]{{2}}):?(?P<minutes>[0-9]{{2}}))?$"


@dataclass(frozen=True)
class Column:
    """A column parsed: ``values`` are int64, 0 where not ``is_valid``; ``expected`` describes what a valid text is."""

    name: str
    texts: pa.StringArray
    values: Times
    is_valid: NDArray[np.bool_]
    expected: str


@dataclass(frozen=True)
class Block:
    """Neighbouring rows of a file, without those with too few or too many columns.

    ``first_row`` counts such rows before them, from 0; ``skipped_lines`` are the lines of the file that are no such rows.
    """

    texts: dict[str, pa.StringArray]
    first_row: int
    skipped_lines: Sequence[int]

    def where(self, row: int) -> str:
        """The place of a row of this block."""
        line = self.first_row + row + 2  # lines count from 1, and the first is the header
        for skipped in self.skipped_lines:
            line += skipped <= line
        return f"line {line}"


def header_of(head: bytes) -> tuple[str, ...]:
    """The names in the first line of content that begins with ``head``."""
    lines = head.decode("utf-8", "replace").removeprefix("\ufeff").splitlines()
    try:
        return tuple(name.strip() for name in next(csv.reader(lines[:1]), ()))
    except csv.Error:
        return ()


def csv_blocks(source: Source, names: Sequence[str], rejects: RejectCounter) -> Iterator[Block]:
    """The columns ``names`` of the file. Raises DatasetError for a column that is missing or occurs twice."""
    header = header_of(source.head)
    for name in names:
        if header.count(name) != 1:
            problem = "is missing" if name not in header else "occurs twice"
            raise DatasetError(source.path, f"the column {name!r} {problem}", "line 1")
    if len(source.head.splitlines()) < 2:
        return  # pyarrow does not skip a header with nothing after it
    skipped = _SkippedLines()
    first_row = 0
    try:
        for batch in _reader(source, len(header), skipped):
            texts = {name: pc.utf8_trim_whitespace(batch.column(header.index(name))) for name in names}
            skipped.count_in(rejects)
            yield Block(texts, first_row, skipped.lines)
            first_row += batch.num_rows
    except pa.ArrowException as error:
        raise DatasetError(source.path, f"is not CSV: {error}") from error
    skipped.count_in(rejects)


class _SkippedLines:
    """The lines with too few or too many columns, as pyarrow finds them while it reads ahead; an error must not leave it."""

    def __init__(self) -> None:
        self.lines: list[int] = []
        self._uncounted: list[tuple[int, str]] = []

    def skip(self, row: pa_csv.InvalidRow) -> str:
        """The handler of such a line."""
        self.lines.append(row.number)
        if row.text.strip():
            self._uncounted.append((row.number, f"has {row.actual_columns} columns, not {row.expected_columns}"))
        return "skip" if len(self.lines) < _MOST_SKIPPED else "error"

    def count_in(self, rejects: RejectCounter) -> None:
        """Count the lines that were found since the last call. Raises DatasetError if malformed rows are errors."""
        found, self._uncounted = self._uncounted, []
        for line, reason in found:
            rejects.malformed(f"line {line}", reason)


class _Readable(io.RawIOBase):
    """Content with U+FFFD, which no number has, for what pyarrow does not confine to a row: each byte that is not UTF-8, at
    which it stops, and the quotes of a line with one that is not closed, which would take the lines after it into the row.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._decoder = stream, codecs.getincrementaldecoder("utf-8")("replace")
        self._pending = b""
        self._begun = b""  # the line with quotes of which the end is not read yet

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        while not self._pending:
            data = self._stream.read(len(view))
            self._pending = self._whole_lines(self._decoder.decode(data, final=not data).encode(), is_last=not data)
            if not data:
                break
        part, self._pending = self._pending[: len(view)], self._pending[len(view) :]
        view[: len(part)] = part
        return len(part)

    def _whole_lines(self, data: bytes, is_last: bool) -> bytes:
        """``data`` after what was kept back of the content before it, without a last line that goes on."""
        data, self._begun = self._begun + data, b""
        if b'"' not in data:
            return data
        lines = data.splitlines(keepends=True)
        if not is_last and len(lines[-1]) < _BLOCK_BYTES and not lines[-1].endswith((b"\n", b"\r")):
            self._begun = lines.pop()
        return b"".join(line.replace(b'"', _DAMAGED.encode()) if line.count(b'"') % 2 else line for line in lines)


def _reader(source: Source, columns: int, skipped: _SkippedLines) -> pa_csv.CSVStreamingReader:
    names = [str(number) for number in range(columns)]
    return pa_csv.open_csv(
        io.BufferedReader(_Readable(source.stream), _BLOCK_BYTES),
        pa_csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES, column_names=names, skip_rows=1),
        pa_csv.ParseOptions(invalid_row_handler=skipped.skip, ignore_empty_lines=False),
        pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )


def tokens(block: Block, name: str) -> Column:
    """A column of numbers of tokens, also as 5.0, which pandas writes in a column with gaps."""
    texts = block.texts[name]
    digits, matches = texts, _mask(pc.match_substring_regex(texts, _WHOLE))
    if not matches.all():
        digits = pc.replace_substring_regex(texts, r"^([0-9]+)\.0+$", r"\1")
        matches = _mask(pc.match_substring_regex(digits, _WHOLE))
    values = pc.if_else(pa.array(matches), digits, "0").cast(pa.int64()).to_numpy(zero_copy_only=False)
    return Column(name, texts, values, matches & (values <= LONGEST_TOKENS), f"a whole number from 0 to {LONGEST_TOKENS:,}")


def seconds_ns(block: Block, name: str) -> Column:
    """A column of seconds, whole or with a fraction, in ns."""
    texts = block.texts[name]
    parts = pc.extract_regex(texts, _SECONDS)
    whole_s = _whole(parts, "whole")
    values = np.minimum(whole_s, LATEST_S) * _SECOND_NS + _fraction_ns(parts)
    return Column(name, texts, values, _mask(parts.is_valid()) & (whole_s <= LATEST_S), "a number of seconds")


def timestamps_ns(block: Block, name: str) -> Column:
    """A column of dates with times, up to nine digits of a fraction and an optional offset from UTC, in ns since 1970."""
    texts = block.texts[name]
    parts = pc.extract_regex(texts, _TIMESTAMP)
    moments = pc.binary_join_element_wise(_part(parts, "date"), _part(parts, "time"), " ")
    seconds = pc.strptime(moments, format="%Y-%m-%d %H:%M:%S", unit="s", error_is_null=True)
    is_valid = _mask(parts.is_valid()) & _mask(seconds.is_valid()) & _is_same_date(seconds, moments)
    offset_s = (_whole(parts, "hours") * 60 + _whole(parts, "minutes")) * 60
    offset_s = np.where(_mask(pc.equal(_part(parts, "sign"), "-")), -offset_s, offset_s)
    seconds_s = pc.fill_null(seconds.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    values = np.where(is_valid, (seconds_s - offset_s) * _SECOND_NS + _fraction_ns(parts), 0)
    return Column(name, texts, values, is_valid, "a time like 2023-11-16 18:15:46.6805900")


def accepted_rows(block: Block, columns: Sequence[Column], rejects: RejectCounter) -> NDArray[np.bool_]:
    """Which rows have a valid value in each of ``columns``, and readable texts in the others of the block; the rest are counted
    as malformed, except blank lines.
    """
    is_blank = np.logical_and.reduce([_mask(pc.equal(column.texts, "")) for column in columns])
    is_damaged = np.logical_or.reduce([_mask(pc.match_substring(texts, _DAMAGED)) for texts in block.texts.values()])
    is_accepted: NDArray[np.bool_] = np.logical_and.reduce([~is_damaged, *(column.is_valid for column in columns)])

    def describe(row: int) -> tuple[str, str]:
        if is_damaged[row]:
            return block.where(row), "is not UTF-8, or has a quote that is not closed"
        column = next(column for column in columns if not column.is_valid[row])
        return block.where(row), f'"{column.name}" must be {column.expected}, found {shown(column.texts[row].as_py())}'

    rejects.malformed_lines(np.flatnonzero(~is_accepted & ~is_blank).tolist(), describe)
    return is_accepted


def _mask(values: pa.BooleanArray) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return mask


def _part(parts: pa.StructArray, name: str) -> pa.StringArray:
    return pc.fill_null(parts.field(name), "")


def _whole(parts: pa.StructArray, name: str) -> Times:
    """A part of digits as int64, 0 where it is absent."""
    texts = _part(parts, name)
    digits = pc.if_else(pc.equal(texts, ""), "0", texts)
    values: Times = digits.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values


def _fraction_ns(parts: pa.StructArray) -> Times:
    values: Times = pc.utf8_rpad(_part(parts, "fraction"), 9, "0").cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values


def _is_same_date(seconds: pa.TimestampArray, moments: pa.StringArray) -> NDArray[np.bool_]:
    """Whether a date exists: 30 February is parsed as 1 March."""
    return _mask(pc.equal(pc.strftime(seconds, format="%Y-%m-%d %H:%M:%S"), moments))
