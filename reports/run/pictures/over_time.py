"""Series over equal parts of a run, and the time axis that most pictures share."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from reports.metrics.requests import Requests
from reports.render.picture import Axis
from reports.statistics.arrays import FloatArray
from reports.statistics.quantile_curve import nearest_rank_of

TIME = Axis("time since the start of the run", "s", group="time")
_MOST_PARTS = 120
_FEWEST_PARTS = 10


def end_ns(requests: Requests) -> float:
    """The time at which the last request ended, or should have been sent; 0 without requests.

    What a run that was stopped did not come to send is no part of it.
    """
    known = np.concatenate([requests.scheduled_ns[requests.offered], requests.done_ns[~np.isnan(requests.done_ns)]])
    return float(known.max()) if known.size else 0.0


def edges_of(requests: Requests, a_part: int = 20) -> FloatArray:
    """Edges (ns, from 0) of equal parts of the run, 10 to 120 of them, with about ``a_part`` requests each where possible."""
    parts = min(_MOST_PARTS, max(_FEWEST_PARTS, len(requests.outcome) // a_part))
    edges: FloatArray = np.linspace(0.0, max(end_ns(requests), 1.0), parts + 1)
    return edges


def seconds(times_ns: FloatArray) -> FloatArray:
    return times_ns / 1e9


def part_text(edges_ns: FloatArray) -> str:
    """The length of equal parts: "0.5 s", "1,250 s"."""
    part_s = float(edges_ns[1] - edges_ns[0]) / 1e9
    return f"{part_s:,.0f} s" if part_s >= 999.5 else f"{part_s:.3g} s"


def per_second(times_ns: FloatArray, edges_ns: FloatArray, amounts: FloatArray | None = None) -> FloatArray:
    """Events a second in each part; shape [parts + 1], the last one twice so that steps reach the last edge."""
    bounds = (float(edges_ns[0]), float(edges_ns[-1]))
    counts = np.histogram(times_ns[~np.isnan(times_ns)], edges_ns.size - 1, bounds, weights=amounts)[0]
    return held(counts / (edges_ns[1] - edges_ns[0]) * 1e9)


def held(values: FloatArray) -> FloatArray:
    """The value of each part, and the last again at the end: y of steps over the parts' edges."""
    return np.append(values, values[-1])


def percentile_per_part(times_ns: FloatArray, values: FloatArray, edges_ns: FloatArray, q: float) -> FloatArray:
    """The nearest-rank q-quantile of the values whose time falls in each part, shape [parts]; NaN where there is none."""
    parts = edges_ns.size - 1
    part = np.clip(np.searchsorted(edges_ns, times_ns, side="right") - 1, 0, parts - 1)
    order = np.lexsort((values, part))
    starts = np.searchsorted(part[order], np.arange(parts + 1))
    percentiles = np.full(parts, np.nan)
    for k, (start, stop) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        if stop > start:
            percentiles[k] = values[order[start + nearest_rank_of(q, stop - start) - 1]]
    return percentiles


def log_edges(values: FloatArray, cells: int) -> FloatArray:
    """``cells`` cells, equal on a log scale, that hold all ``values`` (positive; shape [n], n ≥ 1)."""
    low, high = float(values.min()), float(values.max())
    if high / low < 1.1:
        low, high = low / 1.1, high * 1.1
    edges: FloatArray = np.geomspace(low, math.nextafter(high, math.inf), cells + 1)
    edges[0], edges[-1] = min(edges[0], values.min()), max(edges[-1], values.max())
    return edges


def drawn_positions(values: FloatArray, most: int) -> NDArray[np.int64]:
    """Positions of the values to draw: all known ones, or of each stretch of neighbours the largest and the middle one."""
    known: NDArray[np.int64] = np.flatnonzero(~np.isnan(values))
    if known.size <= most:
        return known
    stretch = -(-2 * known.size // most)
    starts = np.arange(0, known.size, stretch)
    full = known[: known.size // stretch * stretch].reshape(-1, stretch)
    largest = full[np.arange(len(full)), np.argmax(values[full], axis=1)]
    chosen: NDArray[np.int64] = np.unique(np.concatenate([largest, known[np.minimum(starts + stretch // 2, known.size - 1)]]))
    return chosen
