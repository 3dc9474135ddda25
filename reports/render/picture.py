"""A picture as data: marks over axes, and colours. `plots.py` draws it with matplotlib, `reports/page` in a browser."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from reports.statistics.arrays import FloatArray


class Colour(StrEnum):
    """A colour's role. All can be distinguished on white and on black, with colour blindness too (after Okabe and Ito 2008)."""

    BLUE = "blue"
    ORANGE = "orange"
    GREEN = "green"
    PURPLE = "purple"
    SKY = "sky"
    RED = "red"
    GREY = "grey"


ON_WHITE: Mapping[Colour, str] = MappingProxyType(
    {
        Colour.BLUE: "#0067a8",
        Colour.ORANGE: "#d55e00",
        Colour.GREEN: "#00805f",
        Colour.PURPLE: "#a8478a",
        Colour.SKY: "#3c9dd0",
        Colour.RED: "#c1121f",
        Colour.GREY: "#7a828c",
    }
)
ON_BLACK: Mapping[Colour, str] = MappingProxyType(
    {
        Colour.BLUE: "#5aa9e6",
        Colour.ORANGE: "#ff9a4d",
        Colour.GREEN: "#3fcf9f",
        Colour.PURPLE: "#e39ccb",
        Colour.SKY: "#9ad4f5",
        Colour.RED: "#ff7b7b",
        Colour.GREY: "#9aa4b0",
    }
)

# Few to many, in evenly rising contrast to the page.
RAMP_ON_WHITE = ("#e3eef8", "#b5d3ea", "#7fb1da", "#4a8cc4", "#2367a5", "#0b437c", "#062a52")
RAMP_ON_BLACK = ("#12304a", "#174a70", "#20689a", "#3488bf", "#5aa9dc", "#92ccf0", "#d3ecfb")


class Stroke(StrEnum):
    SOLID = "solid"
    DASHED = "dashed"
    DOTTED = "dotted"


@dataclass(frozen=True)
class Axis:
    """``unit`` is "" for plain counts. ``ticks`` are (position, text) that replace the scale's own.

    ``from_zero`` begins the axis at 0 (a linear axis alone). Axes of one ``group`` zoom together, as all of time do.
    On an axis of ``nines`` the position of a percentile q is −log10(1 − q).
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

    @property
    def alone(self) -> NDArray[np.bool_]:
        """Which points lie between gaps, shape [n]: no stroke leads from or to them, so each is drawn as a dot."""
        known = np.isfinite(self.y)
        around = np.concatenate([[False], known, [False]])
        alone: NDArray[np.bool_] = known & ~around[:-2] & ~around[2:]
        return alone


@dataclass(frozen=True, eq=False)
class Trail:
    """Points joined in their order, in any direction of x: a curve through the dots of the same name, which hold the values."""

    name: str
    x: FloatArray
    y: FloatArray
    colour: Colour
    stroke: Stroke = Stroke.SOLID


class Shape(StrEnum):
    """The look of a dot."""

    SPECK = "speck"  # one of very many, which may lie over each other
    POINT = "point"  # one of few
    CROSS = "cross"  # a failure
    RING = "ring"  # around a point to be noticed


@dataclass(frozen=True, eq=False)
class Dots:
    """Single points, shape [n] each. ``notes`` describe each point."""

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
    """Intervals [low, high] of x at y, shape [n] each, of the dots with the same name, whose notes contain them."""

    name: str
    y: FloatArray
    low: FloatArray
    high: FloatArray
    colour: Colour


@dataclass(frozen=True, eq=False)
class HeatMap:
    """The number of values in each cell: ``counts`` has shape [y_edges − 1, x_edges − 1]; an empty cell is not drawn."""

    name: str
    x_edges: FloatArray
    y_edges: FloatArray
    counts: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Band:
    """A range [low, high] of x over the whole height, below all other marks."""

    name: str
    low: float
    high: float
    colour: Colour


Mark = Line | Trail | Dots | Whiskers | Spans | HeatMap | Band


@dataclass(frozen=True, eq=False)
class Picture:
    """``name`` is a file's name without its ending; ``caption`` explains how to read it, and what is binned or left out."""

    name: str
    title: str
    caption: str
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
