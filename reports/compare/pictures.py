"""The pictures of a comparison: quantiles against each other, what differs at each, and changes with their intervals."""

from __future__ import annotations

import numpy as np

from reports.compare.comparison import Arm, ArmComparison, Comparison
from reports.compare.difference import Verdict
from reports.pictures.latency import Series, distribution_picture, percentile_picture
from reports.pictures.picture import Axis, Colour, Dots, Line, Mark, Picture, Stroke, Whiskers
from reports.statistics import summarise

_COLOURS = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.PURPLE, Colour.SKY, Colour.RED)
_VERDICT_COLOURS = {Verdict.BETTER: Colour.GREEN, Verdict.WORSE: Colour.RED, Verdict.NONE: Colour.GREY}


def latency_pictures(comparison: Comparison) -> tuple[Picture, ...]:
    """Every arm's latencies over each other: by percentile, and as ECDF."""
    series = [_series(arm, number) for number, arm in enumerate(comparison.arms)]
    known = [one for one in series if one.curve is not None]
    if not known:
        return ()
    title = f"{comparison.arms[0].latency_title} from schedule"
    return (
        percentile_picture("percentiles", f"{title}, by percentile", known),
        distribution_picture(known, "distribution"),
    )


def change_picture(comparison: ArmComparison, name: str) -> Picture | None:
    """The change of each measure with its 95 % interval, in per cent of A; None where none can be told."""
    told = [d for d in comparison.differences if d.measure.relative and d.interval is not None and d.change is not None]
    if not told:
        return None
    positions = {d.measure.name: float(len(told) - k) for k, d in enumerate(told)}
    marks: list[Mark] = [Line("no change", np.array([0.5, len(told) + 0.5]), np.zeros(2), Colour.GREY, Stroke.DASHED)]
    for verdict, colour in _VERDICT_COLOURS.items():
        here = [d for d in told if d.verdict is verdict]
        if not here:
            continue
        x = np.array([positions[d.measure.name] for d in here])
        low, high = (np.array([100.0 * d.interval[k] for d in here if d.interval is not None]) for k in (0, 1))
        notes = tuple(f"{d.measure.title}: {d.change:+.1%}" for d in here)
        marks.append(Whiskers(f"{verdict.value}: 95 % interval", x, low, high, colour))
        marks.append(Dots(verdict.value, x, np.array([100.0 * (d.change or 0.0) for d in here]), colour, notes=notes))
    return Picture(
        f"{name}-changes",
        f"What changed in {comparison.arm.name}",
        "The change from A to B with its 95 % interval, for each measure alone; the colour is what the evidence says.",
        Axis("measure", ticks=tuple((positions[d.measure.name], d.measure.title) for d in told)),
        Axis("change", "%"),
        tuple(marks),
    )


def quantile_difference_picture(comparison: ArmComparison, name: str) -> Picture | None:
    """B − A at each quantile; None where no quantile is known on both sides."""
    if not comparison.curve:
        return None
    q = np.array([100.0 * point.q for point in comparison.curve])
    difference = np.array([point.b_ms - point.a_ms for point in comparison.curve])
    known = [point for point in comparison.curve if point.interval_ms is not None]
    marks: list[Mark] = [
        Line("no difference", np.array([0.0, 100.0]), np.zeros(2), Colour.GREY, Stroke.DASHED),
        Line("B − A", q, difference, Colour.BLUE),
    ]
    if known:
        low, high = (np.array([point.interval_ms[k] for point in known if point.interval_ms]) for k in (0, 1))
        marks.append(Whiskers("95 % interval", np.array([100.0 * point.q for point in known]), low, high, Colour.SKY))
    title = comparison.baseline.latency_title
    return Picture(
        f"{name}-quantiles",
        f"{title}: difference by quantile",
        "How much longer (above 0) or shorter B's quantile is than A's, with a 95 % interval for each point alone.",
        Axis("quantile", "%"),
        Axis(f"{title}, B − A", "ms"),
        tuple(marks),
    )


def _series(arm: Arm, number: int) -> Series:
    latencies_ms = np.concatenate(arm.latencies_ms)
    distribution = summarise(latencies_ms[~np.isnan(latencies_ms)])
    return Series(
        arm.name, distribution, _COLOURS[number % len(_COLOURS)], Stroke.SOLID if number < len(_COLOURS) else Stroke.DASHED
    )
