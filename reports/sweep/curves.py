"""Which points of a sweep make a curve: those that differ in the load alone, in the order of the load."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reports.sweep.points import Sweep, SweepPoint

_LOAD = ("request_rate", "concurrency", "max_concurrency")  # the first that was swept is what a curve goes along


@dataclass(frozen=True, slots=True)
class Curve:
    """``positions`` of its points in the sweep, by rising load; ``name`` says what they have in common."""

    name: str
    positions: tuple[int, ...]


def curve_axis(sweep: Sweep) -> str | None:
    """The setting along which curves go: a load, else the first whose values are all numbers; None where there is none."""
    by_name = {name.replace("-", "_"): name for name in sweep.axes}
    loads = [by_name[name] for name in _LOAD if name in by_name]
    numeric = [name for name in sweep.axes if all(setting_number(point, name) is not None for point in sweep.points)]
    return next(iter([*loads, *numeric]), None)


def curves(sweep: Sweep) -> tuple[Curve, ...]:
    """Every point is in one curve; without an axis to go along, each is alone."""
    axis = curve_axis(sweep)
    together: dict[str, list[int]] = {}
    for position, point in enumerate(sweep.points):
        rest = " ".join(f"{name}={value}" for name, value in point.settings if name != axis)
        together.setdefault(rest, []).append(position)
    if axis is None:
        return tuple(Curve(name, tuple(positions)) for name, positions in together.items())
    return tuple(
        Curve(name or f"over {axis}", tuple(sorted(positions, key=lambda k: _load(sweep.points[k], axis))))
        for name, positions in together.items()
    )


def setting_number(point: SweepPoint, axis: str) -> float | None:
    """What ``axis`` was set to, where that is a number."""
    value = dict(point.settings).get(axis)
    try:
        number = math.nan if value is None else float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _load(point: SweepPoint, axis: str) -> float:
    """For order: everything at once (a rate of -1) is more than any rate."""
    number = setting_number(point, axis)
    return math.inf if number is None or number <= 0 else number
