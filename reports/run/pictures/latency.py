"""Pictures of latency: by percentile, as a distribution, and over the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.metrics.catalogue import E2E, ICL, ITL, TPOT, TTFT
from reports.metrics.metric import FROM_SCHEDULE, FROM_SEND
from reports.metrics.requests import Requests
from reports.render.picture import Axis, Colour, Dots, HeatMap, Line, Mark, Picture, Shape, Stroke, Whiskers
from reports.run.pictures.over_time import TIME, drawn_positions, edges_of, log_edges, part_text, percentile_per_part, seconds
from reports.run_report import RunReport
from reports.statistics.arrays import FloatArray
from reports.statistics.percentiles import Distribution
from reports.statistics.quantile_curve import Curve

_MOST_DOTS = 2_000
_CELLS = 40
_FEWEST_FOR_HEAT = 50
_MEDIAN_AT = 0.30103  # on the axis of percentiles: −log10(1 − 0.5)
_LOG_ABOVE = 30.0  # largest / median: beyond, a linear axis shows the tail alone


def latency_pictures(report: RunReport) -> list[Picture]:
    """Every picture of latency for which the run has data."""
    series = [named for named in _series(report) if named.curve is not None]
    if not series:
        return []
    pictures = [percentile_picture("latency-by-percentile", "Latency by percentile", series), distribution_picture(series)]
    tokens = _token_series(report)
    if tokens:
        pictures.append(percentile_picture("token-latency-by-percentile", "Token latency by percentile", tokens))
    pictures.append(_over_time(report))
    return [*pictures, *_heat_maps(report)]


@dataclass(frozen=True)
class Series:
    """A distribution of latencies in ms, with the look of its curve."""

    name: str
    distribution: Distribution | None
    colour: Colour
    stroke: Stroke = Stroke.SOLID
    intervals: bool = False

    @property
    def curve(self) -> Curve | None:
        return None if self.distribution is None else self.distribution.curve


def percentile_axis(reach: float) -> Axis:
    """1 − q on a log scale: each nine of the percentile takes the same space, as far as ``reach``, a position on it.

    Where curves end below the median, at failures or cuts, its tenths are named, since 0 alone is no scale.
    """
    tails = ((float(k), f"{100 - 100 * 10.0**-k:.10g}") for k in range(1, 9))
    percents = (0, 50, 75) if reach + 0.01 >= _MEDIAN_AT else range(0, 50, 10)
    marks = ((float(quantile_positions([percent / 100])[0]), str(percent)) for percent in percents)
    return Axis("percentile", ticks=tuple((at, text) for at, text in (*marks, *tails) if at <= reach + 0.01), nines=True)


def nines(curve: Curve) -> FloatArray:
    """The position of each value on the percentile axis: −log10(1 − q); the largest of n at q = 1 − 1/2n."""
    return quantile_positions(np.minimum(curve.shares, 1.0 - 0.5 / curve.n))


def quantile_positions(q: Sequence[float] | FloatArray) -> FloatArray:
    """The positions of quantiles below 1 on the percentile axis: −log10(1 − q)."""
    at: FloatArray = -np.log10(1.0 - np.asarray(q))
    return at


def percentile_picture(name: str, title: str, series: list[Series]) -> Picture:
    """The quantile function of each series; ``series`` have curves."""
    curves = [(line, line.curve) for line in series if line.curve is not None]
    marks: list[Mark] = [Line(line.name, nines(curve), curve.values, line.colour, line.stroke) for line, curve in curves]
    marks += [whiskers for line in series if line.intervals for whiskers in _whiskers(line)]
    return Picture(
        name,
        title,
        "The latency that this share of requests did not exceed (nearest rank). Each further nine takes the same space; the "
        "last point is the slowest request."
        + (" A bar is the 95 % interval of p50 or p99." if any(isinstance(mark, Whiskers) for mark in marks) else "")
        + _cut_short([curve for _, curve in curves])
        + _thinned([curve for _, curve in curves]),
        percentile_axis(max(float(nines(curve)[-1]) for _, curve in curves)),
        latency_axis([curve for _, curve in curves]),
        tuple(marks),
    )


def distribution_picture(series: list[Series], name: str = "latency-distribution") -> Picture:
    """The ECDF of each series."""
    curves = [(line, line.curve) for line in series if line.curve is not None]
    axis = latency_axis([curve for _, curve in curves])
    begin = min(float(curve.values[0]) for _, curve in curves) if axis.log else 0.0
    marks = tuple(
        Line(
            line.name,
            np.concatenate([[min(begin, float(curve.values[0]))], curve.values]),
            np.concatenate([[0.0], curve.shares]),
            line.colour,
            line.stroke,
            steps=True,
        )
        for line, curve in curves
    )
    return Picture(
        name,
        "Latency distribution",
        "The share of requests at or below each latency (ECDF)." + _thinned([curve for _, curve in curves]),
        axis,
        Axis("share of requests", from_zero=True),
        marks,
    )


def latency_axis(curves: list[Curve]) -> Axis:
    """Linear from 0, or logarithmic where the slowest values would flatten the rest."""
    log = all(curve.values[0] > 0 for curve in curves) and any(
        curve.values[-1] > _LOG_ABOVE * curve.values[curve.values.size // 2] for curve in curves
    )
    return Axis("latency", "ms", log=bool(log), from_zero=not log)


def _series(report: RunReport) -> Iterator[Series]:
    ttft, e2e = report.metrics.ttft_ms, report.metrics.e2e_ms
    yield Series(f"{E2E.label}, {FROM_SCHEDULE}", e2e.scheduled, Colour.BLUE, intervals=True)
    yield Series(f"{E2E.label}, {FROM_SEND}", e2e.sent, Colour.SKY, Stroke.DASHED)
    if ttft is not None:
        yield Series(f"{TTFT.label}, {FROM_SCHEDULE}", ttft.scheduled, Colour.ORANGE, intervals=True)
        yield Series(f"{TTFT.label}, {FROM_SEND}", ttft.sent, Colour.PURPLE, Stroke.DASHED)


def _token_series(report: RunReport) -> list[Series]:
    metrics = report.metrics
    every = [Series(TPOT.label, metrics.tpot_ms, Colour.GREEN), Series(ITL.label, metrics.itl_ms, Colour.BLUE)]
    if metrics.icl_ms is not metrics.itl_ms:
        every.append(Series(ICL.label, metrics.icl_ms, Colour.ORANGE, Stroke.DASHED))
    return [series for series in every if series.curve is not None]


def _whiskers(series: Series) -> Iterator[Whiskers]:
    d = series.distribution
    assert d is not None
    intervals = ((q, d.percentile(q).interval) for q in (0.50, 0.99))
    at = [(-np.log10(1.0 - q), *interval) for q, interval in intervals if interval is not None]
    if at:
        x, low, high = (np.array(column) for column in zip(*at, strict=True))
        yield Whiskers(series.name, x, low, high, series.colour)


def _thinned(curves: list[Curve]) -> str:
    if not any(curve.thinned for curve in curves):
        return ""
    return " With more than 1,000 values the curve goes through about 900, each exact, among them the 300 largest."


def _cut_short(curves: list[Curve]) -> str:
    if not any(curve.ranks.size and curve.ranks[-1] < curve.n for curve in curves):
        return ""
    return " A curve ends where the failed requests begin, which count as slower than all, or at the first cut of a request."


def _over_time(report: RunReport) -> Picture:
    requests = report.requests
    arrival_s = seconds(requests.scheduled_ns)
    marks: list[Mark] = []
    left_out = False
    for name, ends_ns, colour in _ends(report):
        latency_ms = np.where(requests.done | requests.withdrawn, (ends_ns - requests.scheduled_ns) / 1e6, np.nan)
        shown = drawn_positions(latency_ms, _MOST_DOTS)
        left_out = left_out or shown.size < np.count_nonzero(~np.isnan(latency_ms))
        notes = tuple(f"request {index}" for index in requests.index[shown].tolist())
        marks.append(Dots(name, arrival_s[shown], latency_ms[shown], colour, notes=notes))
    failed = requests.failed_by_target
    marks += _ends_without_answer(requests, "failed", failed, Colour.RED)
    marks += _ends_without_answer(requests, "cut off", requests.cut_off & ~failed, Colour.GREY)
    sampled = (
        f" With more than {_MOST_DOTS:,} requests, each stretch of neighbours shows its slowest and its middle one."
        if left_out
        else ""
    )
    caption = "Each dot is one request at its scheduled arrival; latency counts from the schedule. × is a failure."
    if any(mark.name == "cut off" for mark in marks):
        caption += " A grey × is where a request was cut off, whose answer would have ended later."
    values = np.concatenate([mark.y for mark in marks if isinstance(mark, Dots)])
    return Picture("latency-over-time", "Latency over time", caption + sampled, TIME, _axis_of(values), tuple(marks))


def _ends_without_answer(requests: Requests, name: str, chosen: NDArray[np.bool_], colour: Colour) -> Iterator[Mark]:
    ends_ms = np.where(chosen, (requests.done_ns - requests.scheduled_ns) / 1e6, np.nan)
    shown = drawn_positions(ends_ms, _MOST_DOTS)
    if shown.size:
        notes = tuple(f"request {requests.index[k]}: {requests.outcome[k]}" for k in shown.tolist())
        yield Dots(name, seconds(requests.scheduled_ns)[shown], ends_ms[shown], colour, Shape.CROSS, notes=notes)


def _axis_of(values_ms: FloatArray) -> Axis:
    log = bool(values_ms.size and values_ms.min() > 0 and values_ms.max() > _LOG_ABOVE * np.median(values_ms))
    return Axis("latency", "ms", log=log, from_zero=not log)


def _heat_maps(report: RunReport) -> Iterator[Picture]:
    requests = report.requests
    edges_ns = edges_of(requests)
    for name, ends_ns, _ in _ends(report):
        latency_ms = np.where(requests.done | requests.withdrawn, (ends_ns - requests.scheduled_ns) / 1e6, np.nan)
        known = latency_ms > 0
        if np.count_nonzero(known) < _FEWEST_FOR_HEAT:
            continue
        yield _heat_map(name, requests.scheduled_ns[known], latency_ms[known], edges_ns)


def _heat_map(name: str, arrivals_ns: FloatArray, latency_ms: FloatArray, edges_ns: FloatArray) -> Picture:
    y_edges = log_edges(latency_ms, _CELLS)
    counts = _counts(latency_ms, arrivals_ns, y_edges, edges_ns)
    middles = seconds((edges_ns[:-1] + edges_ns[1:]) / 2)
    median = percentile_per_part(arrivals_ns, latency_ms, edges_ns, 0.5)
    return Picture(
        f"{name.split()[0].lower()}-heat-map",
        f"{name} over time, how often",
        f"The number of requests scheduled in each part of the run ({part_text(edges_ns)}) with a known latency in each range; "
        "the line is the median of each part.",
        TIME,
        Axis("latency", "ms", log=True),
        (
            HeatMap("requests", seconds(edges_ns), y_edges, counts),
            Line(f"median {name}", middles, median, Colour.ORANGE),
        ),
    )


def _counts(y: FloatArray, x: FloatArray, y_edges: FloatArray, x_edges: FloatArray) -> NDArray[np.int64]:
    """The number of points in each cell, shape [y_edges − 1, x_edges − 1]; all lie within the edges."""
    rows, columns = y_edges.size - 1, x_edges.size - 1
    row = np.clip(np.searchsorted(y_edges, y, side="right") - 1, 0, rows - 1)
    column = np.clip(np.searchsorted(x_edges, x, side="right") - 1, 0, columns - 1)
    return np.bincount(row * columns + column, minlength=rows * columns).reshape(rows, columns).astype(np.int64)


def _ends(report: RunReport) -> list[tuple[str, FloatArray, Colour]]:
    ends = [(E2E.label, report.requests.last_token_ns, Colour.BLUE)]
    if report.metrics.streamed:
        ends.append((TTFT.label, report.requests.first_token_ns, Colour.ORANGE))
    return ends
