"""A picture as data: what is drawn over which axes. `plots.py` draws it with matplotlib, `reports/page` in a browser."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from reports.statistics.arrays import FloatArray


class Colour(StrEnum):
    """A colour's role. Each is told apart by the colour-blind on white and on black (after Okabe and Ito 2008)."""

    BLUE = "blue"
    ORANGE = "orange"
    GREEN = "green"
    PURPLE = "purple"
    SKY = "sky"
    RED = "red"
    GREY = "grey"


class Stroke(StrEnum):
    SOLID = "solid"
    DASHED = "dashed"
    DOTTED = "dotted"


@dataclass(frozen=True)
class Axis:
    """``unit`` is "" for plain counts. ``ticks`` are (position, text) where the scale's own would not be understood.

    ``from_zero`` begins the axis at 0 (a linear axis alone). Axes of one ``group`` zoom together, as all of time do.
    Of an axis of ``nines`` the position of a percentile q is −log10(1 − q).
    """

    label: str
    unit: str = ""
    log: bool = False
    from_zero: bool = False
    ticks: tuple[tuple[float, str], ...] = ()
    group: str | None = None
    nines: bool = False

    @property
    def text(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True, eq=False)
class Line:
    """Points joined in their order; x rises. In ``steps`` a value holds until the next x. Shape [n] each; NaN is a gap."""

    name: str
    x: FloatArray
    y: FloatArray
    colour: Colour
    stroke: Stroke = Stroke.SOLID
    steps: bool = False


@dataclass(frozen=True, eq=False)
class Trail:
    """Points joined in their order, wherever x goes: a curve through the dots of the same name, which tell the values."""

    name: str
    x: FloatArray
    y: FloatArray
    colour: Colour
    stroke: Stroke = Stroke.SOLID


class Shape(StrEnum):
    """What a dot looks like."""

    SPECK = "speck"  # one of very many, which may lie over each other
    POINT = "point"  # one of few
    CROSS = "cross"  # a failure
    RING = "ring"  # around a point that stands out


@dataclass(frozen=True, eq=False)
class Dots:
    """Single points, shape [n] each. ``notes`` tell of each in words."""

    name: str
    x: FloatArray
    y: FloatArray
    colour: Colour
    shape: Shape = Shape.SPECK
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Whiskers:
    """95 % intervals [low, high] of y at x, shape [n] each, of the line with the same name."""

    name: str
    x: FloatArray
    low: FloatArray
    high: FloatArray
    colour: Colour


@dataclass(frozen=True, eq=False)
class Spans:
    """95 % intervals [low, high] of x at y, shape [n] each, of the dots with the same name, whose notes tell them."""

    name: str
    y: FloatArray
    low: FloatArray
    high: FloatArray
    colour: Colour


@dataclass(frozen=True, eq=False)
class HeatMap:
    """How many fell in each cell: ``counts`` has shape [y_edges − 1, x_edges − 1]; an empty cell is not drawn."""

    name: str
    x_edges: FloatArray
    y_edges: FloatArray
    counts: NDArray[np.int64]


Mark = Line | Trail | Dots | Whiskers | Spans | HeatMap


@dataclass(frozen=True, eq=False)
class Picture:
    """``name`` is a file's name without its ending; ``caption`` says how to read it, and what is binned or left out."""

    name: str
    title: str
    caption: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
