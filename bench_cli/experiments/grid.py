"""Options with several values each, as --over lists them, and every combination of these."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from bench_records.experiment import PlannedArm

_PARTED_BY = ";"
_PART_OF_A_LAW = re.compile(r"\w+\s*=[^=]")  # of uniform:min=1,max=9, what comes after the comma


def combinations(axes: Sequence[str], most: int, instead: str) -> list[PlannedArm]:
    """Every combination of the values of the ``axes``, each named by its options, for example "isl=9 osl=4".

    Raises UsageError for more than ``most``, and for an axis that cannot be read; ``instead`` says what to do where a value is
    given twice.
    """
    from bench_records.experiment import PlannedArm

    points = [
        PlannedArm(" ".join(f"{name}={value}" for name, value in point), _options(point))
        for point in itertools.product(*(axis(text, instead) for text in axes))
    ]
    if len(points) > most:
        raise click.UsageError(f"--over: {len(points)} combinations are too many; at most {most}")
    return points


def axis(text: str, instead: str) -> list[tuple[str, str]]:
    """The option and each of its values, from "isl=9,12". Raises BadParameter."""
    name, _, listed = text.partition("=")
    name = name.strip().lstrip("-")
    values = [value.strip() for value in listed.split(_PARTED_BY if _PARTED_BY in listed else ",")]
    if not name or not all(values):
        raise click.BadParameter(f"{text!r}: write OPTION=V1,V2, such as request_rate=2,4,8", param_hint="--over")
    if len(set(values)) < len(values):
        raise click.BadParameter(f"{text!r}: a value is given twice; {instead}", param_hint="--over")
    torn = next((value for value in values if _PART_OF_A_LAW.match(value)), None)
    if torn is not None:
        raise click.BadParameter(
            f"{text!r}: {torn!r} is a part of a value; separate values that have commas by ';', as in "
            f"'{name}={values[0]},{torn};…'",
            param_hint="--over",
        )
    return [(name, value) for value in values]


def _options(point: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(itertools.chain.from_iterable((f"--{name}", value) for name, value in point))
