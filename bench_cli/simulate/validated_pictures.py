"""The pictures of a validation: predicted with its range beside measured, a row for each run and figure; and the errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench_cli.simulate.validated import inside_and_beyond, number_text, range_text, unit_of
from reports.render.picture import Axis, Colour, Dots, Mark, Picture, Shape, Spans, Stroke, Trail
from reports.render.plain_text import printable
from reports.statistics.arrays import FloatArray
from simulator.latencies import LATENCIES
from simulator.validation import GOOD, KEYS, Prediction, Validation, words

_TITLES = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "E2E latency"}
_LONGEST = 18  # characters of a run's name beside a row
_WIDE = 8.0  # times the smallest value: figures that spread further are drawn on a logarithmic axis


@dataclass(frozen=True)
class _Row:
    """A figure of a run at its place in a picture; ``label`` is shown beside it."""

    y: float
    label: str
    run: Validation
    prediction: Prediction

    @property
    def note(self) -> str:
        """The run's whole name, and all numbers of the figure."""
        each, unit = self.prediction, unit_of(self.prediction)
        beyond = ", beyond what was fitted" if self.run.beyond else ""
        return printable(
            f"{self.run.name}{beyond}, {words(each.key)}: measured {number_text(each.measured)} {unit}, predicted (simulated) "
            f"{number_text(each.predicted)} {unit}, range {range_text(each)} {unit}, error {each.error:+.1%}"
        )


def latency_pictures(validations: Sequence[Validation]) -> tuple[Picture, ...]:
    """A picture for each latency that some run has."""
    found = ((metric, _rows(validations, metric)) for metric in LATENCIES)
    return tuple(_latency_picture(metric, rows) for metric, rows in found if rows)


def _rows(validations: Sequence[Validation], metric: str) -> list[_Row]:
    """The figures of one latency, the first run at the top."""
    shown = [(run, each) for run in validations for each in run.predictions if each.key[0] == metric]
    return [
        _Row(float(len(shown) - k), f"{_short(run.name)}{'*' if run.beyond else ''}, {each.key[1]}", run, each)
        for k, (run, each) in enumerate(shown)
    ]


def _short(name: str) -> str:
    shown = printable(name)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _latency_picture(metric: str, rows: Sequence[_Row]) -> Picture:
    ends = [value for row in rows for value in (row.prediction.low, row.prediction.high, row.prediction.measured) if value > 0]
    return Picture(
        metric,
        f"{_TITLES[metric]}: predicted and measured",
        "A dot is the prediction, the mean of simulations, and its bar the range of 5 to 95 %. A ring is what was measured, a "
        "cross where that lies outside the range. The tables have the same numbers."
        + (" *: beyond what was fitted." if any(row.run.beyond for row in rows) else ""),
        Axis(_TITLES[metric], "ms", log=max(ends, default=1.0) > _WIDE * min(ends, default=1.0)),
        _row_axis(rows),
        (*_predicted(rows), *_measured(rows)),
    )


def _row_axis(rows: Sequence[_Row]) -> Axis:
    return Axis("run and figure", ticks=tuple((row.y, row.label) for row in reversed(rows)))


def _predicted(rows: Sequence[_Row]) -> Iterator[Mark]:
    for name, colour, is_beyond in (
        ("predicted (simulated), 5 to 95 %", Colour.BLUE, False),
        ("predicted (simulated) beyond what was fitted, 5 to 95 %", Colour.PURPLE, True),
    ):
        shown = [row for row in rows if bool(row.run.beyond) is is_beyond]
        if shown:
            low = np.array([row.prediction.low for row in shown])
            high = np.array([row.prediction.high for row in shown])
            yield Spans(name, _y(shown), low, high, colour)
            predicted = np.array([row.prediction.predicted for row in shown])
            yield Dots(name, predicted, _y(shown), colour, Shape.POINT, _notes(shown))


def _measured(rows: Sequence[_Row]) -> Iterator[Mark]:
    for name, colour, shape, is_covered in (
        ("measured, within the range", Colour.GREEN, Shape.RING, True),
        ("measured, outside the range", Colour.RED, Shape.CROSS, False),
    ):
        shown = [row for row in rows if row.prediction.is_covered is is_covered]
        if shown:
            yield Dots(name, np.array([row.prediction.measured for row in shown]), _y(shown), colour, shape, _notes(shown))


def _y(rows: Sequence[_Row]) -> FloatArray:
    return np.array([row.y for row in rows])


def _notes(rows: Sequence[_Row]) -> tuple[str, ...]:
    return tuple(row.note for row in rows)


def error_picture(validations: Sequence[Validation]) -> Picture:
    """The error of each figure that the model is judged by, a dot for each run, beside the limit of a good prediction."""
    keys = [key for key in KEYS if key in GOOD and any(each.key == key for run in validations for each in run.predictions)]
    y = {key: float(len(keys) - k) for k, key in enumerate(keys)}
    limits = np.array([100.0 * GOOD[key] for key in keys])
    marks: list[Mark] = [
        Spans("limit of a good prediction", np.array([y[key] for key in keys]), -limits, limits, Colour.GREY),
        Trail("no error", np.zeros(2), np.array([0.5, len(keys) + 0.5]), Colour.GREY, Stroke.DASHED),
    ]
    inside, beyond = inside_and_beyond(validations)
    for name, runs, colour, shape in (
        ("run within what was fitted", inside, Colour.BLUE, Shape.POINT),
        ("run beyond what was fitted", beyond, Colour.PURPLE, Shape.CROSS),
    ):
        rows = [_Row(y[each.key], words(each.key), run, each) for run in runs for each in run.predictions if each.key in y]
        if rows:
            errors = np.array([100.0 * row.prediction.error for row in rows])
            marks.append(Dots(name, errors, _y(rows), colour, shape, _notes(rows)))
    return Picture(
        "errors",
        "Errors of the predictions",
        "Predicted against measured, relative to measured: a dot or a cross is one run. The grey bar is how far the "
        "median over the runs within what was fitted may be off where the model counts as good for a figure.",
        Axis("error", "%"),
        Axis("figure", ticks=tuple((y[key], words(key)) for key in reversed(keys))),
        tuple(marks),
    )
