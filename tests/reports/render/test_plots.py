"""Pictures as files: every kind of mark can be drawn, twice the same, with text that is text."""

from __future__ import annotations

import warnings
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from matplotlib.image import imread

from reports.render.picture import Axis, Colour, Dots, HeatMap, Line, Picture, Shape, Spans, Stroke, Trail, Whiskers
from reports.render.plots import figure_of, write_plots


def _picture(name: str = "all-marks", title: str = "All marks") -> Picture:
    x = np.array([1.0, 2.0, 3.0])
    return Picture(
        name,
        title,
        "A caption.",
        Axis("time", "s", group="time"),
        Axis("latency", "ms", log=True),
        (
            HeatMap("requests", np.array([0.0, 2.0, 4.0]), np.array([1.0, 10.0, 100.0]), np.array([[3, 0], [0, 1]])),
            Line("a $x$ <b>", x, np.array([1.0, np.nan, 100.0]), Colour.BLUE, Stroke.DASHED, steps=True),
            Dots("dots", x, x, Colour.RED, Shape.CROSS),
            Trail("back and forth", x[[1, 0, 2]], x, Colour.GREEN),
            Spans("back and forth", x, x / 2, x, Colour.GREEN),
            Dots("back and forth", x, x, Colour.GREEN, Shape.RING),
            Whiskers("a $x$ <b>", x, x, x * 2, Colour.BLUE),
        ),
    )


def test_each_picture_becomes_a_png_and_an_svg(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = write_plots([_picture()], tmp_path / "new" / "folder")
    assert [path.name for path in written] == ["all-marks.png", "all-marks.svg"]
    pixels = imread(written[0])
    assert pixels.shape[:2] == (900, 1500)  # 5 × 3 inches at 300 dots
    assert pixels[..., :3].std() > 0.01
    texts = {"".join(element.itertext()) for element in ElementTree.parse(written[1]).iter("{http://www.w3.org/2000/svg}text")}
    assert {"time (s)", "latency (ms)", "a $x$ <b>"} <= texts


def test_a_point_between_gaps_is_a_dot() -> None:
    """A stroke shows nothing of it: one part of a run alone had requests, or a server was read once."""
    nan, x = np.nan, np.arange(6.0)
    ys = ([5.0, nan, 3.0, 4.0, nan, 2.0], [nan, 7.0, nan, nan, nan, nan], [1.0, 2.0, nan, nan, 5.0, 6.0], [nan] * 6)
    lines = [Line(f"line {k}", x, np.array(y), Colour.BLUE) for k, y in enumerate(ys)]
    assert [np.flatnonzero(line.alone).tolist() for line in lines] == [[0, 5], [1], [], []]
    axes = figure_of(Picture("p", "P", "", Axis("time", "s"), Axis("latency", "ms"), tuple(lines))).axes[0]
    dots = [(drawn.get_xdata().tolist(), drawn.get_ydata().tolist()) for drawn in axes.lines if drawn.get_marker() == "."]
    assert dots == [([0, 5], [5, 2]), ([1], [7])]
    assert axes.get_legend_handles_labels()[1] == [line.name for line in lines]
    assert not Line("none", x[:0], x[:0], Colour.BLUE).alone.size


def test_the_same_picture_is_the_same_file(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_plots([_picture()], tmp_path / folder)
    for name in ("all-marks.png", "all-marks.svg"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_pictures_over_time_share_their_axis(tmp_path: Path) -> None:
    axes = figure_of(_picture(), x_limits=(0.0, 9.0)).axes[0]
    assert axes.get_xlim() == (0.0, 9.0)


def test_ticks_of_percentiles_are_named() -> None:
    axis = Axis("percentile", ticks=((0.0, "0"), (1.0, "90")))
    line = Line("x", np.array([0.0, 1.5]), np.array([1.0, 2.0]), Colour.BLUE)
    axes = figure_of(Picture("p", "P", "", axis, Axis("latency", "ms", from_zero=True), (line,))).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "90"]
    assert axes.get_ylim()[0] == 0
