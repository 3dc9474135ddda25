"""Pictures as the JSON that `pictures.js` draws, and JSON that is safe inside a page."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reports.render.picture import (
    ON_BLACK,
    ON_WHITE,
    RAMP_ON_BLACK,
    RAMP_ON_WHITE,
    Axis,
    Band,
    Dots,
    HeatMap,
    Line,
    Mark,
    Picture,
    Spans,
    Trail,
    Whiskers,
)
from reports.render.plain_text import printable

_DIGITS = 7  # significant digits of a number, which the page shows under the pointer
# Characters that end a script element or a line, or begin a comment; in JSON they occur only within strings.
_ESCAPED = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def script_json(value: Any) -> str:
    """JSON that stays data inside ``<script type="application/json">``, whatever text it holds."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_ESCAPED)


def encode(pictures: Sequence[Picture]) -> dict[str, object]:
    """The document that ``pictures.js`` reads: the pictures by name, and the colours of both themes."""
    return {
        "pictures": {picture.name: _picture(picture) for picture in pictures},
        "themes": {
            "light": {"colours": dict(ON_WHITE), "ramp": RAMP_ON_WHITE},
            "dark": {"colours": dict(ON_BLACK), "ramp": RAMP_ON_BLACK},
        },
    }


def _picture(picture: Picture) -> dict[str, object]:
    return {
        "title": printable(picture.title),
        "x": _axis(picture.x),
        "y": _axis(picture.y),
        "marks": [_mark(mark) for mark in picture.marks],
    }


def _axis(axis: Axis) -> dict[str, object]:
    return {
        "label": printable(axis.label),
        "unit": axis.unit,
        "text": printable(axis.text),
        "log": axis.log,
        "fromZero": axis.from_zero,
        "ticks": [(at, printable(text)) for at, text in axis.ticks],
        "group": axis.group,
        "nines": axis.nines,
    }


def _mark(mark: Mark) -> dict[str, object]:
    name = printable(mark.name)
    match mark:
        case Line():
            look = {"colour": mark.colour, "stroke": mark.stroke, "steps": mark.steps}
            return {"kind": "line", "name": name} | look | _at(mark) | {"alone": np.flatnonzero(mark.alone).tolist()}
        case Trail():
            return {"kind": "trail", "name": name, "colour": mark.colour, "stroke": mark.stroke} | _at(mark)
        case Dots():
            notes = tuple(map(printable, mark.notes))
            return {"kind": "dots", "name": name, "colour": mark.colour, "shape": mark.shape} | _at(mark) | {"notes": notes}
        case Whiskers():
            return {"kind": "whiskers", "name": name, "colour": mark.colour, "x": _numbers(mark.x)} | _limits(mark)
        case Spans():
            return {"kind": "spans", "name": name, "colour": mark.colour, "y": _numbers(mark.y)} | _limits(mark)
        case Band():
            return {"kind": "band", "name": name, "colour": mark.colour, "low": _short(mark.low), "high": _short(mark.high)}
        case HeatMap():
            edges = {"x": _numbers(mark.x_edges), "y": _numbers(mark.y_edges)}
            return {"kind": "heat", "name": name} | edges | {"counts": mark.counts.tolist()}


def _at(mark: Line | Trail | Dots) -> dict[str, object]:
    return {"x": _numbers(mark.x), "y": _numbers(mark.y)}


def _limits(mark: Whiskers | Spans) -> dict[str, object]:
    return {"low": _numbers(mark.low), "high": _numbers(mark.high)}


def _numbers(values: NDArray[Any]) -> list[float | None]:
    """Values of seven significant digits; null for those that are not finite."""
    return [_short(value) for value in values.tolist()]


def _short(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
