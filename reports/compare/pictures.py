"""The pictures of a comparison: quantiles of both sides, their differences, and changes with their intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from reports.compare.comparison import Arm, ArmComparison, Comparison
from reports.compare.difference import Difference, Verdict
from reports.compare.tables import LARGEST_SHARE, change_text, interval_text
from reports.render.picture import Axis, Colour, Dots, Line, Mark, Picture, Shape, Spans, Stroke, Trail, Whiskers
from reports.run.pictures.latency import Series, distribution_picture, percentile_axis, percentile_picture, quantile_positions
from reports.statistics.arrays import FloatArray
from reports.statistics.percentiles import summarise

_COLOURS = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.PURPLE, Colour.SKY, Colour.RED)
_VERDICT_COLOURS = {
    Verdict.BETTER: Colour.GREEN,
    Verdict.WORSE: Colour.RED,
    Verdict.STARTS_BETTER: Colour.GREEN,
    Verdict.STARTS_WORSE: Colour.RED,
    Verdict.NONE: Colour.GREY,
}


def latency_pictures(comparison: Comparison) -> tuple[Picture, ...]:
    """The latencies of all arms, by percentile and as ECDF."""
    series = [_series(arm, number) for number, arm in enumerate(comparison.arms)]
    known = [line for line in series if line.curve is not None]
    if not known:
        return ()
    title = f"{comparison.arms[0].latency.label} from schedule"
    return (
        percentile_picture("percentiles", f"{title}, by percentile", known),
        distribution_picture(known, "distribution"),
    )


def change_picture(comparison: ArmComparison, name: str) -> Picture | None:
    """The relative change of each measure with its 95 % interval, a row each; None where no change is known."""
    known = [d for d in comparison.differences if d.measure.relative and d.interval is not None and d.change is not None]
    if not known:
        return None
    rows = {d.measure.name: float(len(known) - k) for k, d in enumerate(known)}
    marks: list[Mark] = [Trail("no change", np.zeros(2), np.array([0.5, len(known) + 0.5]), Colour.GREY, Stroke.DASHED)]
    for verdict, colour in _VERDICT_COLOURS.items():
        marks += _changes(verdict, [d for d in known if d.verdict is verdict], rows, colour)
    beyond = any(d.interval is not None and d.interval[1] > LARGEST_SHARE for d in known)
    return Picture(
        f"{name}-changes",
        f"What changed in {comparison.arm.name}",
        "The change from A to B with its 95 % interval, for each measure alone; the colour is the verdict."
        + (f" What lies above {LARGEST_SHARE:+,.0%} is drawn there." if beyond else ""),
        Axis("change", "%"),
        Axis("measure", ticks=tuple((rows[d.measure.name], d.measure.title) for d in reversed(known))),
        tuple(marks),
    )


def _changes(verdict: Verdict, differences: list[Difference], rows: Mapping[str, float], colour: Colour) -> Iterator[Mark]:
    """The marks of the measures with that verdict, each in its row."""
    if not differences:
        return
    y = np.array([rows[d.measure.name] for d in differences])
    low, high = (_drawn([d.interval[k] for d in differences if d.interval is not None]) for k in (0, 1))
    yield Spans(verdict.value, y, low, high, colour)
    x = _drawn([d.change or 0.0 for d in differences])
    yield Dots(verdict.value, x, y, colour, Shape.POINT, tuple(map(_note, differences)))


def _drawn(changes: Sequence[float]) -> FloatArray:
    """The changes in per cent, at most the largest that is drawn: a further one would leave no room for the others."""
    return 100.0 * np.minimum(np.array(changes), LARGEST_SHARE)


def _note(d: Difference) -> str:
    """The interval; after the change where the dot is not at it."""
    beyond = f"{change_text(d.measure, d.change)}, " if (d.change or 0.0) > LARGEST_SHARE else ""
    return f"{beyond}95 %: {interval_text(d)}"


def quantile_difference_picture(comparison: ArmComparison, name: str) -> Picture | None:
    """B − A at each quantile; None where no quantile is known on both sides."""
    if not comparison.curve:
        return None
    at = quantile_positions([point.q for point in comparison.curve])
    difference = np.array([point.b_ms - point.a_ms for point in comparison.curve])
    known = [point for point in comparison.curve if point.interval_ms is not None]
    marks: list[Mark] = [
        Line("no difference", np.array([0.0, at[-1]]), np.zeros(2), Colour.GREY, Stroke.DASHED),
        Line("B − A", at, difference, Colour.BLUE),
    ]
    if known:
        low, high = (np.array([point.interval_ms[k] for point in known if point.interval_ms]) for k in (0, 1))
        marks.append(Whiskers("B − A", quantile_positions([point.q for point in known]), low, high, Colour.SKY))
    title = comparison.baseline.latency.label
    return Picture(
        f"{name}-quantiles",
        f"{title}: difference by percentile",
        "How much longer (above 0) or shorter B's percentile is than A's. A bar is the 95 % interval of that point alone, "
        "where it has an end. Each further nine takes the same space.",
        percentile_axis(float(at[-1])),
        Axis(f"{title}, B − A", "ms"),
        tuple(marks),
    )


def _series(arm: Arm, number: int) -> Series:
    runs = [latencies.counted for latencies in arm.latencies]
    distribution = summarise(
        np.concatenate([run.values_ms for run in runs]), is_bound=np.concatenate([run.is_bound for run in runs])
    )
    return Series(
        arm.name, distribution, _COLOURS[number % len(_COLOURS)], Stroke.SOLID if number < len(_COLOURS) else Stroke.DASHED
    )
