"""Laws of lengths as text: ``128``, ``128±5``, ``uniform:min=10,max=200``, ``histogram:example``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from workloads.elements.errors import WorkloadError
from workloads.elements.spelling import MisspeltError, spelt_parts
from workloads.lengths.families import Constant, Lognormal, Normal, Uniform, Zipf
from workloads.lengths.law import Lengths, Side
from workloads.lengths.samples import SHIPPED_HISTOGRAMS, Histogram, read_histogram, shipped_histogram

_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_SHORT = re.compile(rf"\s*({_NUMBER})\s*(?:(?:±|:|\+-|\+/-)\s*({_NUMBER})\s*)?", re.ASCII)
_FIELDS = MappingProxyType({"min": "low", "max": "high"})  # by parameter, where the names differ


@dataclass(frozen=True, slots=True)
class _Family:
    """A law by its parameters: numbers, and whole numbers; those in ``optional`` may be left out."""

    make: Callable[..., Lengths]
    numbers: tuple[str, ...]
    integers: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def form(self, name: str) -> str:
        """How it is written."""
        words = [f"{parameter}={parameter.upper()}" for parameter in (*self.numbers, *self.integers)]
        needed = [word for word in words if word.split("=")[0] not in self.optional]
        may_follow = [f"[,{word}]" for word in words if word.split("=")[0] in self.optional]
        return f"{name}:{','.join(needed)}{''.join(may_follow)}"


_FAMILIES: Mapping[str, _Family] = MappingProxyType(
    {
        "normal": _Family(Normal, ("mean", "stdev"), ("min", "max"), ("min", "max")),
        "lognormal": _Family(Lognormal, ("mean", "stdev"), ("min", "max"), ("min", "max")),
        "uniform": _Family(Uniform, (), ("min", "max")),
        "zipf": _Family(Zipf, ("exponent",), ("min", "max")),
        "constant": _Family(Constant, (), ("tokens",)),
    }
)
LAWS = (*_FAMILIES, "histogram", "empirical")


def parse(text: str, side: Side) -> Lengths:
    """The law that ``text`` spells; empirical ones are the caller's to read. Raises WorkloadError without the field's name.

    Out of range parameters are not refused here (``law.check``).
    """
    short = _SHORT.fullmatch(text)
    if short is not None:
        return Normal(float(short[1]), float(short[2] or 0.0))
    name, colon, rest = text.strip().partition(":")
    if not colon or not name.isalpha():
        raise WorkloadError("write a mean, as 128, or 128±5 or 128:5, or a law, as uniform:min=10,max=200")
    if name == "histogram":
        return _histogram(rest, side)
    if name not in _FAMILIES:
        raise WorkloadError(f"{name!r} is none of the laws {', '.join(LAWS)}")
    return _of_family(name, text)


def _of_family(name: str, text: str) -> Lengths:
    family = _FAMILIES[name]
    values: dict[str, float | int] = {}
    try:
        for parameter, value in spelt_parts(text)[1].items():
            if parameter not in (*family.numbers, *family.integers):
                raise MisspeltError(f"{parameter}={value}")
            values[parameter] = _number(parameter, value, parameter in family.integers)
    except MisspeltError as error:
        raise WorkloadError(f"{error.part!r} does not belong there; write {family.form(name)}") from error
    missing = [key for key in (*family.numbers, *family.integers) if key not in values and key not in family.optional]
    if missing:
        raise WorkloadError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; write {family.form(name)}"
        )
    return family.make(**{_FIELDS.get(parameter, parameter): value for parameter, value in values.items()})


def _number(parameter: str, text: str, is_integer: bool) -> float | int:
    pattern = r"\d{1,18}" if is_integer else _NUMBER
    if re.fullmatch(pattern, text, re.ASCII) is None:
        raise WorkloadError(f"{parameter}={text} is no {'whole ' if is_integer else ''}number")
    return int(text) if is_integer else float(text)


def _histogram(source: str, side: Side) -> Histogram:
    if source in SHIPPED_HISTOGRAMS:
        return shipped_histogram(source, side)
    path = Path(source)
    if not source or not path.is_file():
        raise WorkloadError(f"{source!r} is neither a file nor one of the histograms {', '.join(SHIPPED_HISTOGRAMS)}")
    return read_histogram(path, side)
