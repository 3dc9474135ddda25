"""The curves of a sweep: points that differ in the load alone, by rising load."""

from __future__ import annotations

import math
from dataclasses import dataclass

from reports.sweep.points import Sweep, SweepPoint

_LOAD = ("request_rate", "concurrency", "max_concurrency")  # the first of these that was swept is the axis of the curves


@dataclass(frozen=True, slots=True)
class Curve:
    """``positions`` of its points in the sweep, by rising load; ``name`` is the settings that they share."""

    name: str
    positions: tuple[int, ...]


def curve_axis(sweep: Sweep) -> str | None:
    """The setting along a curve: a load, else the first one with only numeric values; None where there is none."""
    by_name = {name.replace("-", "_"): name for name in sweep.axes}
    loads = [by_name[name] for name in _LOAD if name in by_name]
    numeric = [name for name in sweep.axes if all(setting_number(point, name) is not None for point in sweep.points)]
    return next(iter([*loads, *numeric]), None)


def curves(sweep: Sweep) -> tuple[Curve, ...]:
    """All curves. Every point is in one of them; without an axis, points of equal settings share one."""
    axis = curve_axis(sweep)
    by_settings: dict[str, list[int]] = {}
    for position, point in enumerate(sweep.points):
        rest = " ".join(f"{name}={value}" for name, value in point.settings if name != axis)
        by_settings.setdefault(rest, []).append(position)
    if axis is None:
        return tuple(Curve(name, tuple(positions)) for name, positions in by_settings.items())
    return tuple(
        Curve(name or f"over {axis}", tuple(sorted(positions, key=lambda k: _load(sweep.points[k], axis))))
        for name, positions in by_settings.items()
    )


def setting_number(point: SweepPoint, axis: str) -> float | None:
    """The value of ``axis`` at a point; None where it is not a finite number."""
    value = dict(point.settings).get(axis)
    try:
        number = math.nan if value is None else float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _load(point: SweepPoint, axis: str) -> float:
    """Sort key: all requests at once (a rate of -1) is more than any rate."""
    number = setting_number(point, axis)
    return math.inf if number is None or number <= 0 else number
