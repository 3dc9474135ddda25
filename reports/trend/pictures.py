"""The pictures of a trend: each measure over the runs, with its intervals and verdicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from reports.compare.difference import Difference, Verdict
from reports.compare.measures import Measure
from reports.compare.tables import change_text, interval_text
from reports.render.picture import Axis, Colour, Dots, Line, Mark, Picture, Shape, Stroke, Trail, Whiskers
from reports.render.plain_text import printable
from reports.statistics.arrays import FloatArray
from reports.statistics.estimate import UNKNOWN, Estimate
from reports.trend.history import Standing, Trend, TrendRun
from reports.trend.tables import in_unit, refusal, start_text, unit_of

_JOINED = "valid, comparable runs"
_VERDICTS = {
    Verdict.BETTER: Colour.GREEN,
    Verdict.WORSE: Colour.RED,
    Verdict.STARTS_BETTER: Colour.GREEN,
    Verdict.STARTS_WORSE: Colour.RED,
    Verdict.NONE: Colour.BLUE,
    Verdict.UNKNOWN: Colour.GREY,
}
_MOST_TICKS = 8
_LOG_FROM = 10.0  # values that spread further are drawn on a logarithmic axis

Placed = tuple[int, TrendRun]  # a run with its number, from 1


def trend_pictures(trend: Trend) -> tuple[Picture, ...]:
    """One picture for each measure of the trend."""
    return tuple(_picture(trend, measure) for measure in trend.measures)


def _picture(trend: Trend, measure: Measure) -> Picture:
    placed = [numbered for numbered in enumerate(trend.runs, start=1) if _estimate(numbered[1], measure).value is not None]
    of_trend = [numbered for numbered in placed if numbered[1].standing in (Standing.BASELINE, Standing.COMPARED)]
    marks = [*_joined(of_trend, measure, len(trend.runs)), *_baseline(of_trend, measure, len(trend.runs))]
    marks += _judged(of_trend, measure)
    marks += _apart(placed, measure)
    better = "higher" if measure.higher_is_better else "lower"
    return Picture(
        f"trend-{measure.name}",
        measure.title,
        f"Runs in the order of time; bars are 95 % intervals, {better} is better. A dot's colour is the verdict against "
        "the baseline (dashed).",
        Axis("run", ticks=_ticks(len(trend.runs))),
        Axis(measure.title, unit_of(measure), log=_spreads(placed, measure)),
        tuple(marks),
    )


def _joined(placed: Sequence[Placed], measure: Measure, runs: int) -> Iterator[Mark]:
    """The line from run to run. The values under the pointer have a gap where a run is not compared; the axis extends half a
    run to both sides, so that no dot is cut off.
    """
    x, y = _values(placed, measure)
    shown = np.full(runs + 2, np.nan)
    shown[x.astype(np.int64)] = y
    yield Line(_JOINED, np.array([0.5, *range(1, runs + 1), runs + 0.5]), shown, Colour.BLUE)
    yield Trail(_JOINED, x, y, Colour.BLUE)
    yield from _whiskers(_JOINED, placed, measure, Colour.BLUE)


def _baseline(placed: Sequence[Placed], measure: Measure, runs: int) -> Iterator[Mark]:
    value = next((d.a for _, run in placed if (d := _difference(run, measure)) is not None and d.a is not None), None)
    if value is not None:
        y = np.full(2, in_unit(measure, value))
        yield Trail("baseline", np.array([0.5, runs + 0.5]), y, Colour.PURPLE, Stroke.DASHED)


def _judged(placed: Sequence[Placed], measure: Measure) -> Iterator[Mark]:
    """The runs of the trend, by the verdict on this measure."""
    baseline_runs = [numbered for numbered in placed if numbered[1].standing is Standing.BASELINE]
    if baseline_runs:
        yield _dots("baseline", baseline_runs, measure, Colour.PURPLE, Shape.POINT, lambda run: "the baseline")
    for verdict, colour in _VERDICTS.items():
        here = [
            numbered for numbered in placed if (d := _difference(numbered[1], measure)) is not None and d.verdict is verdict
        ]
        if here:
            yield _dots(verdict.value, here, measure, colour, Shape.POINT, lambda run: _change(run, measure))


def _apart(placed: Sequence[Placed], measure: Measure) -> Iterator[Mark]:
    """The runs that are not compared."""
    different = [numbered for numbered in placed if numbered[1].standing is Standing.DIFFERENT]
    if different:
        yield _dots(
            Standing.DIFFERENT.value, different, measure, Colour.ORANGE, Shape.RING, lambda run: f"differs in {refusal(run)}"
        )
        yield from _whiskers(Standing.DIFFERENT.value, different, measure, Colour.ORANGE)
    invalid = [numbered for numbered in placed if numbered[1].standing is Standing.INVALID]
    if invalid:
        yield _dots(Standing.INVALID.value, invalid, measure, Colour.RED, Shape.CROSS, lambda run: ", ".join(run.faults))


def _dots(
    name: str, placed: Sequence[Placed], measure: Measure, colour: Colour, shape: Shape, note: Callable[[TrendRun], str]
) -> Dots:
    notes = tuple(printable(f"{run.name}, {start_text(run)}: {note(run)}") for _, run in placed)
    return Dots(name, *_values(placed, measure), colour, shape, notes)


def _whiskers(name: str, placed: Sequence[Placed], measure: Measure, colour: Colour) -> Iterator[Mark]:
    known = [(n, interval) for n, run in placed if (interval := _estimate(run, measure).interval) is not None]
    if known:
        low, high = (np.array([in_unit(measure, interval[end]) for _, interval in known]) for end in (0, 1))
        yield Whiskers(name, np.array([float(n) for n, _ in known]), low, high, colour)


def _change(run: TrendRun, measure: Measure) -> str:
    d = _difference(run, measure)
    return "" if d is None else f"{change_text(measure, d.change)} ({interval_text(d)})"


def _values(placed: Sequence[Placed], measure: Measure) -> tuple[FloatArray, FloatArray]:
    values = [_estimate(run, measure).value for _, run in placed]
    return np.array([float(n) for n, _ in placed]), np.array([in_unit(measure, v) for v in values if v is not None])


def _estimate(run: TrendRun, measure: Measure) -> Estimate:
    return run.estimates.get(measure.name, UNKNOWN)


def _difference(run: TrendRun, measure: Measure) -> Difference | None:
    return next((d for d in run.differences if d.measure == measure), None)


def _spreads(placed: Sequence[Placed], measure: Measure) -> bool:
    drawn = [
        v for _, run in placed for e in (_estimate(run, measure),) for v in (e.value, *(e.interval or ())) if v is not None
    ]
    return min(drawn, default=0.0) > 0 and max(drawn) > _LOG_FROM * min(drawn)


def _ticks(runs: int) -> tuple[tuple[float, str], ...]:
    step = -(-runs // _MOST_TICKS)
    return tuple((float(number), str(number)) for number in range(1, runs + 1, step))
