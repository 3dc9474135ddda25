"""The pictures of a sweep: latency over throughput with the Pareto front, and both over a varied setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from reports.metrics.catalogue import OUTPUT_TOKEN_THROUGHPUT
from reports.render.counts import counted
from reports.render.picture import Axis, Colour, Dots, Line, Mark, Picture, Shape, Spans, Stroke, Trail, Whiskers
from reports.render.plain_text import printable
from reports.render.tables import cell_text
from reports.statistics.arrays import FloatArray
from reports.statistics.estimate import Estimate
from reports.statistics.percentiles import percentile_key
from reports.sweep.curves import curve_axis, curves, setting_number
from reports.sweep.points import Sweep, SweepPoint
from reports.sweep.tables import FRONT_NOTE

_COLOURS = (Colour.BLUE, Colour.ORANGE, Colour.PURPLE, Colour.SKY)
_STROKES = (Stroke.SOLID, Stroke.DASHED, Stroke.DOTTED)
_LOG_FROM = 10.0  # values that spread further are drawn on a logarithmic axis

Read = Callable[[SweepPoint], Estimate]


def sweep_pictures(sweep: Sweep) -> tuple[Picture, ...]:
    """Latency (p99, p50) over throughput; and both over a numeric setting, where one was varied."""
    return (
        *_throughput_latency(sweep, "p99", _p99),
        *_throughput_latency(sweep, "p50", _p50),
        *_by_setting(sweep),
    )


def _throughput_latency(sweep: Sweep, percentile: str, latency: Read) -> Iterator[Picture]:
    marks = [*_marks(sweep, _tokens, latency)]
    if not marks:
        return
    marks += _limit_lines(sweep, marks, percentile)
    front, note = [sweep.points[k] for k in sweep.front], ""
    if front and percentile == "p99":
        x, y = _values(front, _tokens), _values(front, latency)
        note = f" A ring marks the {FRONT_NOTE}."
        marks += [
            Trail("Pareto front", x, y, Colour.GREEN, Stroke.DASHED),
            Dots("Pareto front", x, y, Colour.GREEN, Shape.RING),
        ]
    yield Picture(
        f"throughput-latency-{percentile}",
        f"{sweep.latency} {percentile} against output token throughput",
        f"Bars are 95 % intervals of both. Best is to the right and low.{note}{_left_out(sweep, _tokens, latency)}",
        Axis("output tokens", "tokens/s", from_zero=True),
        _latency_axis(sweep, percentile, latency),
        tuple(marks),
    )


def _by_setting(sweep: Sweep) -> Iterator[Picture]:
    axis = curve_axis(sweep)
    if axis is None or len({setting_number(point, axis) for point in sweep.points if _placed(point, axis)}) < 2:
        return

    def setting(point: SweepPoint) -> Estimate:
        return Estimate(setting_number(point, axis) if _placed(point, axis) else None)

    shown = printable(axis)
    for name, title, read, y in (
        ("latency", f"{sweep.latency} p99", _p99, _latency_axis(sweep, "p99", _p99)),
        ("throughput", "Output token throughput", _tokens, Axis("output tokens", "tokens/s", from_zero=True)),
    ):
        marks = [*_marks(sweep, setting, read)]
        if marks:
            marks += _limit_lines(sweep, marks, "p99" if read is _p99 else None)
            caption = f"Bars are 95 % intervals.{_left_out(sweep, setting, read)}"
            yield Picture(f"{name}-by-setting", f"{title} by {shown}", caption, Axis(shown, from_zero=True), y, tuple(marks))


def _marks(sweep: Sweep, across: Read, up: Read) -> Iterator[Mark]:
    """The curves with the intervals of their points, and the invalid points, which are on no curve."""
    for number, curve in enumerate(curves(sweep)):
        points = [sweep.points[k] for k in curve.positions if sweep.points[k].valid]
        points = [point for point in points if _known(point, across, up)]
        if not points:
            continue
        name, colour = printable(curve.name), _COLOURS[number % len(_COLOURS)]
        stroke = _STROKES[number // len(_COLOURS) % len(_STROKES)]
        x, y = _values(points, across), _values(points, up)
        yield Trail(name, x, y, colour, stroke)
        tall = [point for point in points if up(point).interval is not None]
        if tall:
            yield Whiskers(name, _values(tall, across), *_limits(tall, up), colour)
        wide = [point for point in points if across(point).interval is not None]
        if wide:
            yield Spans(name, _values(wide, up), *_limits(wide, across), colour)
        yield Dots(name, x, y, colour, Shape.POINT, tuple(_note(point, across) for point in points))
    invalid = [point for point in sweep.points if not point.valid and _known(point, across, up)]
    if invalid:
        notes = tuple(printable(f"{point.name}: {', '.join(point.findings)}") for point in invalid)
        yield Dots("not valid", _values(invalid, across), _values(invalid, up), Colour.RED, Shape.CROSS, notes)


def _limit_lines(sweep: Sweep, marks: Sequence[Mark], percentile: str | None) -> list[Line]:
    """A level for each limit of --slo and --fail_if on the numbers of the vertical axis: the latency of the sweep at
    ``percentile``, or output tokens/s (None). The limit of each request is drawn at every percentile.
    """
    ends = np.array([0.0, max(float(mark.x.max()) for mark in marks if isinstance(mark, Dots))])
    limits: dict[str, tuple[float, Stroke]] = {}
    for point in sweep.points:
        for objective in point.objectives:
            if percentile is not None and objective.metric.label == sweep.latency:
                limits[f"limit of each request: {objective}"] = objective.limit_ms, Stroke.DOTTED
        for gate in point.gates:
            metric, q = gate.requirement.metric, gate.requirement.q
            of_axis = (
                metric is OUTPUT_TOKEN_THROUGHPUT
                if percentile is None
                else metric.label == sweep.latency and q is not None and percentile_key(q) == percentile
            )
            if of_axis:
                limits[f"limit: {gate.requirement}"] = gate.requirement.limit, Stroke.DASHED
    return [Line(name, ends, np.full(2, limit), Colour.GREY, stroke) for name, (limit, stroke) in limits.items() if limit > 0]


def _note(point: SweepPoint, across: Read) -> str:
    """Name of the point and its interval of tokens/s; the other interval is in the whiskers."""
    wide = across(point)
    beside = "" if wide.interval is None else f"; 95 % of tokens/s: {wide.limits_text(cell_text)}"
    return printable(f"{point.name}{beside}")


def _tokens(point: SweepPoint) -> Estimate:
    return point.output_token_throughput


def _p99(point: SweepPoint) -> Estimate:
    return point.latency_p99_ms


def _p50(point: SweepPoint) -> Estimate:
    return point.latency_p50_ms


def _latency_axis(sweep: Sweep, percentile: str, latency: Read) -> Axis:
    drawn = [
        number
        for point in sweep.points
        for e in (latency(point),)
        for number in (e.value, *(e.interval or ()))
        if number is not None
    ]
    log = bool(drawn) and min(drawn) > 0 and max(drawn) > _LOG_FROM * min(drawn)
    return Axis(f"{sweep.latency} {percentile}", "ms", log=log, from_zero=not log)


def _known(point: SweepPoint, *reads: Read) -> bool:
    return all(read(point).value is not None for read in reads)


def _placed(point: SweepPoint, axis: str) -> bool:
    """Whether the point has a place on the axis; all requests at once (a rate of -1) has none."""
    number = setting_number(point, axis)
    return number is not None and number > 0


def _values(points: Sequence[SweepPoint], read: Read) -> FloatArray:
    return np.array([read(point).value for point in points], dtype=np.float64)


def _limits(points: Sequence[SweepPoint], read: Read) -> tuple[FloatArray, FloatArray]:
    intervals = [interval for point in points if (interval := read(point).interval) is not None]
    return np.array([low for low, _ in intervals]), np.array([high for _, high in intervals])


def _left_out(sweep: Sweep, across: Read, up: Read) -> str:
    count = sum(not _known(point, across, up) for point in sweep.points)
    lack = "lacks one of the numbers and is" if count == 1 else "lack one of the numbers and are"
    return f" {count} of {counted(len(sweep.points), 'point')} {lack} left out." if count else ""
