"""Pictures as PNG and SVG files, by matplotlib: sized and lettered for a column of a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from reports.render.picture import (
    ON_WHITE,
    RAMP_ON_WHITE,
    Axis,
    Band,
    Dots,
    HeatMap,
    Line,
    Mark,
    Picture,
    Shape,
    Spans,
    Stroke,
    Trail,
    Whiskers,
)
from reports.render.plain_text import printable

_WIDTH_IN, _HEIGHT_IN = 5.0, 3.0
_DPI = 300
_MOST_LEGEND_COLUMNS = 2
_DASHES = {Stroke.SOLID: "-", Stroke.DASHED: "--", Stroke.DOTTED: ":"}
_SHAPES: Mapping[Shape, Mapping[str, Any]] = MappingProxyType(
    {
        Shape.SPECK: {"marker": ".", "markersize": 5.0, "alpha": 0.55, "markeredgewidth": 0.0},
        Shape.POINT: {"marker": ".", "markersize": 7.0, "markeredgewidth": 0.0},
        Shape.CROSS: {"marker": "x", "markersize": 4.0, "markeredgewidth": 1.0},
        Shape.RING: {"marker": "o", "markersize": 8.0, "markeredgewidth": 1.0, "fillstyle": "none"},
    }
)
_RASTERISE_ABOVE = 1_000  # dots or cells beyond this are one bitmap inside the SVG
_STYLE = {
    "font.family": ["sans-serif", "DejaVu Sans"],  # what the first has no sign for, the other may
    "font.sans-serif": ["Helvetica", "Arial", "Liberation Sans", "DejaVu Sans"],
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.4,
    "lines.linewidth": 1.2,
    "text.parse_math": False,  # names come from outside
    "svg.fonttype": "none",  # text stays text: searchable, and in the paper's own font where the reader has it
}


def write_plots(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    """Write NAME.png and NAME.svg of each picture into ``folder``, which is made if need be. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    limits = _shared_limits(pictures)
    written: list[Path] = []
    for picture in pictures:
        with rc_context(_STYLE | {"svg.hashsalt": picture.name}):  # the same file at every rendering
            drawn = figure_of(picture, limits.get(picture.x.group))
            for path in (folder / f"{picture.name}.png", folder / f"{picture.name}.svg"):
                drawn.savefig(path, dpi=_DPI, metadata=_metadata(path.suffix))
                drawn.set_layout_engine(None)  # the next file has the same layout, which takes as long as drawing it
                written.append(path)
    return written


def figure_of(picture: Picture, x_limits: tuple[float, float] | None = None) -> Figure:
    """The picture without its title and caption, which belong to the text around it."""
    figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), layout="constrained")
    axes = figure.add_subplot()
    named: set[str] = set()
    for mark in picture.marks:
        _draw(figure, axes, mark, label="_" if mark.name in named else _label(mark.name))
        named.add(mark.name)
    _set_axis(axes, "x", picture.x)
    _set_axis(axes, "y", picture.y)
    if x_limits is not None:
        axes.set(xlim=x_limits)
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) > 1 or (handles and any(isinstance(mark, HeatMap) for mark in picture.marks)):
        figure.legend(handles, labels, loc="outside upper left", ncols=_MOST_LEGEND_COLUMNS, frameon=False)
    return figure


def _label(name: str) -> str:
    """A series' name for a legend, from which matplotlib leaves out what begins with "_"."""
    shown = printable(name)
    return f" {shown}" if shown.startswith("_") else shown


def _shared_limits(pictures: Sequence[Picture]) -> dict[str | None, tuple[float, float]]:
    """From where to where x reaches in the pictures of each group, which are read below each other."""
    limits: dict[str | None, tuple[float, float]] = {}
    for picture in pictures:
        for mark in picture.marks:
            x = _across(mark)
            if picture.x.group is not None and x.size:
                low, high = limits.get(picture.x.group, (float("inf"), -float("inf")))
                limits[picture.x.group] = (min(low, float(x.min())), max(high, float(x.max())))
    return {group: (low, high) for group, (low, high) in limits.items() if low < high}


def _across(mark: Mark) -> NDArray[Any]:
    """Where a mark lies along x."""
    match mark:
        case HeatMap():
            return mark.x_edges
        case Spans():
            return np.concatenate([mark.low, mark.high])
        case Band():
            return np.array([mark.low, mark.high])
        case _:
            return mark.x


def _draw(figure: Figure, axes: Axes, mark: Mark, label: str) -> None:
    match mark:
        case Line():
            axes.plot(
                mark.x,
                mark.y,
                drawstyle="steps-post" if mark.steps else "default",
                color=ON_WHITE[mark.colour],
                linestyle=_DASHES[mark.stroke],
                label=label,
            )
            if mark.alone.any():
                at, colour = mark.alone, ON_WHITE[mark.colour]
                axes.plot(mark.x[at], mark.y[at], linestyle="", **_SHAPES[Shape.POINT], color=colour, label="_")
        case Trail():
            axes.plot(mark.x, mark.y, color=ON_WHITE[mark.colour], linestyle=_DASHES[mark.stroke], label=label)
        case Dots():
            axes.plot(
                mark.x,
                mark.y,
                linestyle="",
                **_SHAPES[mark.shape],
                color=ON_WHITE[mark.colour],
                label=label,
                rasterized=mark.x.size > _RASTERISE_ABOVE,
            )
        case Whiskers():
            axes.vlines(mark.x, mark.low, mark.high, colors=ON_WHITE[mark.colour], linewidth=3.0, alpha=0.4)
        case Spans():
            axes.hlines(mark.y, mark.low, mark.high, colors=ON_WHITE[mark.colour], linewidth=3.0, alpha=0.4)
        case Band():
            axes.axvspan(mark.low, mark.high, color=ON_WHITE[mark.colour], alpha=0.12, linewidth=0.0, label=label)
        case HeatMap():
            _draw_heat_map(figure, axes, mark)


def _draw_heat_map(figure: Figure, axes: Axes, mark: HeatMap) -> None:
    most = max(2, int(mark.counts.max(initial=1)))
    mesh = axes.pcolormesh(
        mark.x_edges,
        mark.y_edges,
        np.where(mark.counts > 0, mark.counts, np.nan),
        cmap=LinearSegmentedColormap.from_list("counts", RAMP_ON_WHITE),
        norm=PowerNorm(0.5, vmin=1, vmax=most),  # a few crowded cells must not make all others look empty
        rasterized=mark.counts.size > _RASTERISE_ABOVE,
    )
    bar = figure.colorbar(mesh, ax=axes, pad=0.01, aspect=30)
    bar.set_label(printable(mark.name))
    bar.ax.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    bar.minorticks_off()
    bar.outline.set_visible(False)


def _set_axis(axes: Axes, which: str, axis: Axis) -> None:
    axes.set(**{f"{which}label": printable(axis.text)})
    drawn = getattr(axes, f"{which}axis")
    if axis.log:
        axes.set(**{f"{which}scale": "log"})
        drawn.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        drawn.set_minor_locator(NullLocator())
    if axis.from_zero:
        axes.set(**{f"{which}lim": (0, None)})
    if axis.ticks:
        drawn.set_ticks([at for at, _ in axis.ticks], [printable(text) for _, text in axis.ticks])
    else:
        drawn.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _metadata(suffix: str) -> dict[str, str | None]:
    """Without dates and versions, which would make each rendering another file."""
    return {"Software": None} if suffix == ".png" else dict.fromkeys(("Creator", "Date", "Format", "Type"))
