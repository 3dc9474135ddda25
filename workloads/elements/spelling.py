"""Values spelt as ``name:key=value,key=value``: laws of arrivals and lengths, profiles of rates, classes of traffic."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workloads.elements.errors import Field, WorkloadError

_UNIT_S = {"": 1.0, "s": 1.0, "ms": 1e-3, "min": 60.0, "m": 60.0, "h": 3600.0}
_NUMBER = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(ms|min|s|m|h|)")


@dataclass(frozen=True, slots=True)
class Spelt:
    """A name with its numbers; times are in seconds. ``field`` and ``forms``, what may be written, are for messages."""

    text: str
    field: str
    forms: str
    name: str
    numbers: Mapping[str, float]

    def error(self, *problem: str) -> WorkloadError:
        """The error of this text; ``problem`` has the parts of the sentence."""
        return _error(self.field, self.text, *problem, f"; write {self.forms}")

    def check_names(self, expected: Sequence[str]) -> None:
        """Raise WorkloadError unless the numbers are exactly those that are expected."""
        for name in self.numbers:
            if name not in expected:
                raise self.error(f"{self.name} has no {name!r}")
        for name in expected:
            if name not in self.numbers:
                raise self.error(f"{self.name} needs its {name!r}")

    def check_one_of(self, *names: str) -> None:
        """Raise WorkloadError unless there is one number, with one of these names."""
        if len(self.numbers) != 1 or not set(self.numbers) <= set(names):
            raise self.error(f"{self.name} takes one number, {' or '.join(names)}")


class MisspeltError(ValueError):
    """A ``part`` of a text that is not ``key=value`` with a key of its own."""

    def __init__(self, part: str) -> None:
        super().__init__(part)
        self.part = part


def spelt_parts(text: str) -> tuple[str, dict[str, str]]:
    """The name, and the values as text by their keys. Raises MisspeltError."""
    name, colon, rest = text.strip().partition(":")
    values: dict[str, str] = {}
    for part in rest.split(",") if colon else ():
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not key.isidentifier() or key in values:
            raise MisspeltError(part)
        values[key] = value
    return name.strip(), values


def parse_spelt(text: str, field: str, forms: str, plain: Sequence[str]) -> Spelt:
    """The name and numbers of ``text``, in any letter case; those named ``plain`` are no times. Raises WorkloadError."""
    try:
        name, values = spelt_parts(text.lower())
        numbers = {key: _number(f"{key}={value}", value, key not in plain) for key, value in values.items()}
    except MisspeltError as error:
        raise _error(field, text, f"{error.part!r} is not a name and a number; write {forms}") from error
    return Spelt(text, field, forms, name, numbers)


def _number(part: str, value: str, may_have_unit: bool) -> float:
    number = number_of(value) if may_have_unit or value[-1:].isdigit() else None
    if number is None:
        raise MisspeltError(part)
    return number


@dataclass(frozen=True, slots=True)
class SpeltTexts:
    """A name with its texts, in their order and letter case. ``field`` and ``forms`` are as in ``Spelt``."""

    text: str
    field: str
    forms: str
    name: str
    texts: tuple[tuple[str, str], ...]

    def error(self, *problem: str) -> WorkloadError:
        """The error of this text; ``problem`` has the parts of the sentence."""
        return _error(self.field, self.text, *problem, f"; write {self.forms}")

    def one(self, key: str) -> str | None:
        """The text of ``key``; None where it is not given. Raises WorkloadError where it is given twice."""
        found = self.every(key)
        if len(found) > 1:
            raise self.error(f"{key!r} is given twice")
        return found[0] if found else None

    def every(self, key: str) -> tuple[str, ...]:
        """The texts of ``key``, which may be repeated."""
        return tuple(text for name, text in self.texts if name == key)

    def check_names(self, known: Sequence[str]) -> None:
        """Raise WorkloadError unless every key is one of ``known``."""
        for name, _ in self.texts:
            if name not in known:
                raise self.error(f"there is no {name!r}")


def parse_texts(text: str, field: str, forms: str) -> SpeltTexts:
    """The name and texts of ``text``, of which none is empty or has a comma. Raises WorkloadError."""
    name, colon, rest = text.strip().partition(":")
    texts: list[tuple[str, str]] = []
    for part in rest.split(",") if colon else ():
        key, _, value = (piece.strip() for piece in part.partition("="))
        if not key or not value:
            raise _error(field, text, f"{part!r} is not a name and a value; write {forms}")
        texts.append((key.lower(), value))
    return SpeltTexts(text, field, forms, name.strip(), tuple(texts))


def _error(field: str, text: str, *problem: str) -> WorkloadError:
    return WorkloadError(Field(field), f" {text}: ", *problem)


def number_of(text: str) -> float | None:
    """A number of at least 0, perhaps with a unit of time, in seconds then; None for any other text."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    value = float(match[1]) * _UNIT_S[match[2]]
    return value if math.isfinite(value) else None


def number_text(value: float) -> str:
    """The shortest text that is read as this number again."""
    return str(int(value)) if abs(value) < 1e15 and value == int(value) else repr(float(value))
