"""The fields of a row of JSON, checked: what a row lacks or has wrong is a ``RowError`` that names the field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workloads.elements.request import LONGEST_TOKENS
from workloads.readers.rejects import RowError

LATEST_S = 9 * 10**9  # times since 1970, too; more does not fit 64 bits of ns
_SHOWN = 40

Row = Mapping[str, object]


@dataclass(frozen=True)
class RepeatedKey:
    """In place of an object that has the same key twice, of which no reader could know the right one."""

    key: str


def object_of(value: object) -> Row:
    """``value`` as an object. Raises RowError."""
    if isinstance(value, RepeatedKey):
        raise RowError(f"the key {shown(value.key)} occurs twice in an object")
    if not isinstance(value, dict):
        raise RowError(f"expected an object, found {type(value).__name__}")
    return value


def list_of(row: Row, field: str) -> list[object]:
    """The list ``field``. Raises RowError."""
    value = _present(row, field)
    if not isinstance(value, list):
        raise RowError(f'"{field}" must be a list, found {type(value).__name__}')
    return value


def text_of(row: Row, field: str) -> str:
    """The string ``field``. Raises RowError, also for half a surrogate pair, which JSON can express and UTF-8 cannot."""
    value = _present(row, field)
    if not isinstance(value, str):
        raise RowError(f'"{field}" must be a string, found {type(value).__name__}')
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RowError(f'character {error.start} of "{field}" is half a surrogate pair') from error
    return value


def prompt_of(row: Row, field: str) -> str:
    """The string ``field``, which holds more than white space. Raises RowError."""
    return checked_prompt(text_of(row, field))


def checked_prompt(text: str) -> str:
    """``text``, which holds more than white space. Raises RowError."""
    if not text.strip():
        raise RowError("the prompt is empty")
    return text


def tokens_of(row: Row, field: str) -> int:
    """The number of tokens ``field``. Raises RowError."""
    return checked_tokens(_present(row, field), field)


def first_tokens_of(row: Row, names: Sequence[str]) -> int | None:
    """The number of tokens in the first of the fields ``names`` that is not null; None where none is. Raises RowError."""
    field = next((name for name in names if row.get(name) is not None), None)
    return None if field is None else tokens_of(row, field)


def checked_tokens(value: object, field: str) -> int:
    """A number of tokens, also as 5.0, which pandas writes in a column with gaps. Raises RowError for another type, a negative
    number, or one that is absurdly large.
    """
    value = whole_number(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LONGEST_TOKENS:
        raise RowError(f'"{field}" must be a whole number from 0 to {LONGEST_TOKENS:,}, found {shown(value)}')
    return value


def whole_number(value: object) -> object:
    """A float that is a whole number as an integer; any other value as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def time_ns_of(row: Row, field: str, unit_ns: int) -> int:
    """The time ``field`` in units of ``unit_ns``, integer or float. Raises RowError."""
    value = _present(row, field)
    latest = LATEST_S * 10**9 // unit_ns
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= latest:  # nan is in no range
        raise RowError(f'"{field}" must be a time from 0 to {latest:,}, found {shown(value)}')
    whole = int(value)
    return whole * unit_ns + round((value - whole) * unit_ns)


def optional_ms_of(row: Row, field: str) -> int | None:
    """The time ``field``, in ms, as ns; None where the row has none. Raises RowError."""
    return None if row.get(field) is None else time_ns_of(row, field, 1_000_000)


def shown(value: object) -> str:
    """A value for a message, cut."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more digits than Python writes
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _present(row: Row, field: str) -> object:
    if field not in row:
        raise RowError(f'the field "{field}" is missing')
    return row[field]
