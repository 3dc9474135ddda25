"""Rows of a JSON array or of JSON lines, each with its place in the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from workloads.elements.errors import DatasetError
from workloads.readers.fields import RepeatedKey, object_of
from workloads.readers.rejects import RejectCounter, RowError
from workloads.readers.source import Source

MOST_DOCUMENT_BYTES = 1 << 30  # of an array, which is held as a whole
MOST_LINE_BYTES = 64 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

LocatedRow = tuple[str, object]  # the place, for example "line 7", and the parsed JSON
_Parsed = TypeVar("_Parsed")


def first_object(head: bytes) -> Mapping[str, object] | None:
    """The first row that is an object, of an array or of lines that begin with ``head``; None where there is none in it."""
    text = head.decode("utf-8", "replace").removeprefix("\ufeff").lstrip()
    if text.startswith("["):
        return _object_at(text[1:].lstrip())
    rows = (_object_at(line) for line in text.split("\n")[:100])  # a string may hold what else Unicode ends a line with
    return next((row for row in rows if row is not None), None)


def is_array(head: bytes) -> bool:
    """Whether content that begins with ``head`` is a JSON array, and not JSON lines."""
    return head.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"[")


def json_rows(source: Source, rejects: RejectCounter) -> Iterator[LocatedRow]:
    """The rows of an array or of lines. Raises DatasetError."""
    return _array_rows(source) if is_array(source.head) else _line_rows(source, rejects)


def accepted(
    rows: Iterator[LocatedRow], parse: Callable[[Mapping[str, object]], _Parsed], rejects: RejectCounter
) -> Iterator[tuple[str, _Parsed]]:
    """Each row as ``parse`` returns it, with its place; rows for which it raises RowError are counted."""
    for where, value in rows:
        try:
            parsed = parse(object_of(value))
        except RowError as error:
            rejects.malformed(where, str(error))
        else:
            yield where, parsed


def json_document(source: Source) -> object:
    """The whole content as one document. Raises DatasetError."""
    content = source.read(MOST_DOCUMENT_BYTES + 1)
    if len(content) > MOST_DOCUMENT_BYTES:
        raise DatasetError(
            source.path, f"is one JSON document of more than {MOST_DOCUMENT_BYTES >> 20:,} MiB; make JSON lines of it"
        )
    try:
        return _loads(content.decode("utf-8").removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        raise DatasetError(source.path, f"is not UTF-8: {error.reason}", f"byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise DatasetError(source.path, f"is not JSON: {error.msg}", f"line {error.lineno}, column {error.colno}") from error
    except ValueError as error:  # a number with more digits than Python reads
        raise DatasetError(source.path, f"holds a value that cannot be read: {error}") from error
    except RecursionError as error:
        raise DatasetError(source.path, "is nested too deeply to be a dataset") from error


def _array_rows(source: Source) -> Iterator[LocatedRow]:
    document = json_document(source)
    assert isinstance(document, list)
    for number, value in enumerate(document, start=1):
        yield f"row {number}", value


def _line_rows(source: Source, rejects: RejectCounter) -> Iterator[LocatedRow]:
    number = 0
    while line := source.stream.readline(MOST_LINE_BYTES + 1):
        number += 1
        where = f"line {number}"
        if len(line) > MOST_LINE_BYTES:
            raise DatasetError(source.path, f"is longer than {MOST_LINE_BYTES >> 20} MiB", where)
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        if not line.strip():
            continue
        try:
            value = _loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            rejects.malformed(where, f"is not UTF-8: {error.reason}")
        except json.JSONDecodeError as error:
            rejects.malformed(where, f"is not JSON: {error.msg} at column {error.colno}")
        except (ValueError, RecursionError) as error:
            rejects.malformed(where, f"holds a value that cannot be read: {error}")
        else:
            yield where, value


def _loads(text: str) -> object:
    value: object = json.loads(text, object_pairs_hook=_object)
    return value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object] | RepeatedKey:
    values = dict(pairs)
    if len(values) == len(pairs):
        return values
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return RepeatedKey(key)
        seen.add(key)
    raise AssertionError("unreachable")


def _object_at(text: str) -> Mapping[str, object] | None:
    """The object at the beginning of ``text``; where it is cut, the members that are whole."""
    if not text.startswith("{"):
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return _members(text)
    return value if isinstance(value, dict) else None


def _members(text: str) -> Mapping[str, object] | None:
    """The leading members of an object that is cut off: a value that is cut is None."""
    decoder, members, position = json.JSONDecoder(), dict[str, object](), 1
    try:
        while True:
            position = _past_space(text, position)
            key, position = decoder.raw_decode(text, position)
            position = _past_space(text, position)
            if not isinstance(key, str) or text[position] != ":":
                break
            members[key] = None
            members[key], position = decoder.raw_decode(text, _past_space(text, position + 1))
            position = _past_space(text, position)
            if text[position] != ",":
                break
            position += 1
    except (ValueError, RecursionError, IndexError):
        pass
    return members or None


def _past_space(text: str, position: int) -> int:
    while text[position] in " \t\r\n":
        position += 1
    return position
