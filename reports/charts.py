"""The pictures of a report, as matplotlib figures."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from reports.events import Events
from reports.load import mean_in_system
from reports.requests import FloatArray, Requests
from reports.run_report import RunReport

_INK = "#222222"
_BLUE = "#2a6fbb"
_ORANGE = "#d9772b"
_RED = "#c0392b"
_GREY = "#8a8f98"
_RASTERISE_ABOVE = 2_000  # dots beyond this are one bitmap inside the SVG
_MOST_DOTS = 20_000  # more cover each other
_MOST_STEPS = 2_000  # more are finer than a picture shows


@dataclass(frozen=True)
class Chart:
    """A picture with the sentence that says how to read it."""

    title: str
    caption: str
    svg: str


def charts(report: RunReport) -> list[Chart]:
    """All pictures for which the run has data."""
    if not report.requests.done.any():
        return []
    drawn = [_latency_over_time(report), _distribution(report), _load_over_time(report)]
    return [chart for chart in drawn if chart is not None]


def _latency_over_time(report: RunReport) -> Chart:
    requests = report.requests

    def draw(axes: Axes) -> None:
        arrival_s = requests.scheduled_ns / 1e9
        rasterise = len(arrival_s) > _RASTERISE_ABOVE
        for label, ends_ns, colour in _latency_series(report):
            latency_ms = np.where(requests.done, (ends_ns - requests.scheduled_ns) / 1e6, np.nan)
            shown = telling(latency_ms)
            axes.plot(
                arrival_s[shown], latency_ms[shown], ".", ms=4, alpha=0.6, color=colour, label=label, rasterized=rasterise
            )
        failed_s = _thinned(arrival_s[~requests.done], _MOST_DOTS)
        if failed_s.size:
            axes.plot(failed_s, np.zeros(failed_s.size), "x", color=_RED, label="failed", clip_on=False, rasterized=rasterise)
        axes.set(xlabel="scheduled arrival (s)", ylabel="latency (ms)", ylim=(0, None))
        axes.legend(loc="upper right")

    return _chart(
        "Latency over time",
        "Each dot is one request at its scheduled arrival; latency counts from the schedule. Of more than 20,000 "
        "requests some are left out, never the slowest of their neighbours.",
        draw,
    )


def _distribution(report: RunReport) -> Chart:
    requests = report.requests

    def draw(axes: Axes) -> None:
        for label, ends_ns, colour in _latency_series(report):
            latency_ms = ((ends_ns - requests.scheduled_ns) / 1e6)[requests.done]
            ordered = np.sort(latency_ms[~np.isnan(latency_ms)])
            if ordered.size:
                ranks = _thinned(np.arange(ordered.size), _MOST_STEPS)
                axes.step(ordered[ranks], (ranks + 1) / ordered.size, where="post", color=colour, label=label)
        for percent in (50, 90, 99):
            axes.axhline(percent / 100, color=_GREY, lw=0.6, ls=":")
            axes.annotate(f"p{percent}", (1.005, percent / 100), xycoords=("axes fraction", "data"), va="center", color=_GREY)
        axes.set(xlabel="latency from the schedule (ms)", ylabel="share of successful requests", ylim=(0, 1.01), xlim=(0, None))
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="lower right")

    return _chart("Latency distribution", "The share of requests at or below each latency (ECDF).", draw)


def _load_over_time(report: RunReport) -> Chart | None:
    requests = report.requests
    sent = ~np.isnan(requests.sent_ns) & ~np.isnan(requests.done_ns)
    end_s = float(requests.done_ns[sent].max() / 1e9)
    if end_s <= 0:
        return None

    def draw(axes: Axes) -> None:
        axes.step(*_in_flight(requests, end_s), where="post", color=_BLUE, label="requests in flight")
        axes.set(xlabel="time since the start (s)", ylabel="requests in flight", ylim=(0, None), xlim=(0, None))
        axes.yaxis.label.set_color(_BLUE)
        counts = _token_weights(requests)
        if counts is not None:
            width_s = max(end_s / 120, 0.1)
            bins = int(np.ceil(end_s / width_s))
            rate = Events(requests.token_times_ns, counts).per_bin(0.0, bins * width_s * 1e9, bins)
            right = axes.twinx()
            right.step(np.arange(bins) * width_s, rate / width_s, where="post", color=_ORANGE)
            right.set(ylabel="output tokens/s", ylim=(0, None))
            right.yaxis.label.set_color(_ORANGE)
            right.spines["top"].set_visible(False)

    return _chart("Load over time", "Requests in flight, and output tokens per second as they arrived at the client.", draw)


def _latency_series(report: RunReport) -> list[tuple[str, FloatArray, str]]:
    series = [("E2E latency", report.requests.last_token_ns, _BLUE)]
    if report.metrics.ttft_ms is not None:
        series.append(("TTFT", report.requests.first_token_ns, _ORANGE))
    return series


def _in_flight(requests: Requests, end_s: float) -> tuple[FloatArray, FloatArray]:
    """Times (s), and how many requests are in flight from each: every change, or averages where those are too many."""
    sent = ~np.isnan(requests.sent_ns) & ~np.isnan(requests.done_ns)
    sent_ns, done_ns = requests.sent_ns[sent], requests.done_ns[sent]
    if sent_ns.size > _MOST_STEPS:
        edges_ns = np.linspace(0.0, end_s * 1e9, _MOST_STEPS + 1)
        return edges_ns[:-1] / 1e9, mean_in_system(sent_ns, done_ns, edges_ns)
    times = np.concatenate([sent_ns, done_ns]) / 1e9
    steps = np.concatenate([np.ones_like(sent_ns), -np.ones_like(done_ns)])
    order = np.argsort(times, kind="stable")
    return times[order], np.cumsum(steps[order])


def telling(latency_ms: FloatArray) -> NDArray[np.int64]:
    """Which requests to draw: all, or of each stretch of neighbours the slowest and the one in the middle."""
    known: NDArray[np.int64] = np.flatnonzero(~np.isnan(latency_ms))
    if known.size <= _MOST_DOTS:
        return known
    stretch = -(-2 * known.size // _MOST_DOTS)
    starts = np.arange(0, known.size, stretch)
    full = known[: known.size // stretch * stretch].reshape(-1, stretch)
    slowest = full[np.arange(len(full)), np.argmax(latency_ms[full], axis=1)]
    chosen: NDArray[np.int64] = np.unique(np.concatenate([slowest, known[np.minimum(starts + stretch // 2, known.size - 1)]]))
    return chosen


def _thinned(values: NDArray[Any], most: int) -> NDArray[Any]:
    """Evenly chosen ones of more than ``most`` values, the first and the last among them."""
    if values.size <= most:
        return values
    thinned: NDArray[Any] = values[np.round(np.linspace(0, values.size - 1, most)).astype(np.int64)]
    return thinned


def _token_weights(requests: Requests) -> FloatArray | None:
    """Tokens of each token response; where only whole answers could be counted there is no such curve."""
    return None if not requests.token_counts.size or np.isnan(requests.token_counts).any() else requests.token_counts


def _chart(title: str, caption: str, draw: Callable[[Axes], None]) -> Chart:
    with rc_context({"svg.hashsalt": title}):  # ids that are the same at every rendering, and differ between pictures
        return Chart(title, caption, _svg(draw))


def _svg(draw: Callable[[Axes], None]) -> str:
    figure = Figure(figsize=(8.2, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=_INK)
    axes.grid(axis="y", lw=0.4, color="#dddddd")
    axes.set_axisbelow(True)
    draw(axes)
    out = io.StringIO()
    figure.savefig(out, format="svg", dpi=150, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = out.getvalue()
    return svg[svg.index("<svg") :]
