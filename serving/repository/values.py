"""Configuration parameters by kind of value: parsing, validation and canonical text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from serving.errors import RepositoryError

_TRUE = ("true", "1", "yes")
_FALSE = ("false", "0", "no")
_TREE = re.compile(r"\{\d+(,\d+)*\}(,\{\d+(,\d+)*\})*")

Value = int | float | bool | str | Path


class Kind(Enum):
    """Kind of a parameter's value. The enum value is its metavar in ``--help``."""

    INTEGER = "INTEGER"
    NUMBER = "NUMBER"
    BOOLEAN = "true|false"
    CHOICE = "CHOICE"
    INTEGERS = "N,N,…"
    GROUPS = "N,N;N,N"
    TREE = "{N,…},{N,…}"
    FOLDER = "DIRECTORY"
    FILE = "FILE"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: ``option`` is upstream's template variable, ``key`` its name in the ``parameters`` block.

    ``low`` and ``high`` are inclusive, and apply to every number of a list; ``key`` "" means that it has no entry there.
    """

    option: str
    kind: Kind
    help: str
    key: str = ""
    low: float = 0
    high: float = 2**31 - 1
    choices: tuple[str, ...] = ()

    @property
    def metavar(self) -> str:
        return "|".join(self.choices) if self.kind is Kind.CHOICE else self.kind.value

    def parse(self, text: str) -> Value:
        """Parse user input. Raises RepositoryError with the option and its allowed values."""
        return _PARSERS[self.kind](self, text.strip())


def _integer(parameter: Parameter, text: str) -> int:
    if not re.fullmatch(r"[-+]?\d{1,20}", text, re.ASCII):
        raise _wrong(parameter, "a whole number", text)
    value = int(text)
    if not parameter.low <= value <= parameter.high:
        raise _wrong(parameter, f"a whole number {_range(parameter)}", text)
    return value


def _number(parameter: Parameter, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise _wrong(parameter, "a number", text) from None
    if not parameter.low <= value <= parameter.high:  # false for NaN too
        raise _wrong(parameter, f"a number {_range(parameter)}", text)
    return value


def _boolean(parameter: Parameter, text: str) -> bool:
    if text.lower() not in _TRUE + _FALSE:
        raise _wrong(parameter, "true or false", text)
    return text.lower() in _TRUE


def _choice(parameter: Parameter, text: str) -> str:
    for choice in parameter.choices:
        if choice.lower() == text.lower():
            return choice
    raise _wrong(parameter, f"one of {', '.join(parameter.choices)}", text)


def _integers(parameter: Parameter, text: str) -> str:
    return ",".join(str(_integer(parameter, part.strip())) for part in text.split(","))


def _groups(parameter: Parameter, text: str) -> str:
    return ";".join(_integers(parameter, group) for group in text.split(";"))


def _tree(parameter: Parameter, text: str) -> str:
    packed = "".join(text.split())
    if not _TREE.fullmatch(packed):
        raise _wrong(parameter, "paths of a tree such as {0},{0,0},{1}", text)
    return packed


def _path(parameter: Parameter, text: str) -> Path:
    if not text or "\0" in text:
        raise _wrong(parameter, f"a {'folder' if parameter.kind is Kind.FOLDER else 'file'}", text)
    return Path(text)


def _range(parameter: Parameter) -> str:
    return f"of at least {parameter.low:g}" if parameter.high >= 2**31 - 1 else f"in [{parameter.low:g}, {parameter.high:g}]"


def _wrong(parameter: Parameter, expected: str, text: str) -> RepositoryError:
    return RepositoryError(f"--{parameter.option} must be {expected}, not {text!r}")


_PARSERS: dict[Kind, Callable[[Parameter, str], Value]] = {
    Kind.INTEGER: _integer,
    Kind.NUMBER: _number,
    Kind.BOOLEAN: _boolean,
    Kind.CHOICE: _choice,
    Kind.INTEGERS: _integers,
    Kind.GROUPS: _groups,
    Kind.TREE: _tree,
    Kind.FOLDER: _path,
    Kind.FILE: _path,
}
