"""The client's health through the run (``client.parquet``): loop lag and CPU of each worker."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from reports.metrics.columns import floats
from reports.render.picture import Axis, Colour, Line, Picture, Stroke
from reports.run.pictures.over_time import TIME
from reports.statistics.arrays import FloatArray

_PARTS = 600
_COLOURS = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.PURPLE, Colour.SKY, Colour.RED)
_MOST_WORKERS = 2 * len(_COLOURS)


def client_pictures(table: pa.Table | None) -> list[Picture]:
    """Loop lag and CPU of each worker. ``table`` has time_ns, worker (null: the parent), lag_ns and cpu_ns, as increments."""
    if table is None or not table.num_rows:
        return []
    times_ns, worker, lag_ns, cpu_ns = (floats(table[name]) for name in ("time_ns", "worker", "lag_ns", "cpu_ns"))
    workers = np.unique(worker[~np.isnan(worker)])
    many = f" The first {_MOST_WORKERS} of {workers.size} workers." if workers.size > _MOST_WORKERS else ""
    edges_ns = np.linspace(min(0.0, float(times_ns.min())), float(times_ns.max()) + 1.0, _PARTS + 1)
    lag: list[Line] = []
    cpu: list[Line] = []
    for number, worker_id in enumerate(workers[:_MOST_WORKERS].tolist()):
        colour, stroke = _COLOURS[number % len(_COLOURS)], Stroke.SOLID if number < len(_COLOURS) else Stroke.DASHED
        mine, name = worker == worker_id, f"worker {worker_id:.0f}"
        lag += _line(name, *_largest(times_ns[mine], lag_ns[mine] / 1e6, edges_ns), colour, stroke)
        cpu += _line(name, *_share(times_ns[mine], cpu_ns[mine], edges_ns), colour, stroke)
    pictures = (
        Picture(
            "client-lag",
            "Loop lag of the client",
            "Delay of a worker's event loop wake-ups, the largest of each part of the run: the most that a send may have been "
            "delayed." + many,
            TIME,
            Axis("loop lag", "ms", from_zero=True),
            tuple(lag),
        ),
        Picture(
            "client-cpu",
            "CPU of the client",
            "The share of a core that each worker's process used, all of its threads together." + many,
            TIME,
            Axis("of one core", "%", from_zero=True),
            tuple(cpu),
        ),
    )
    return [picture for picture in pictures if picture.marks]


def _line(name: str, x: FloatArray, y: FloatArray, colour: Colour, stroke: Stroke) -> list[Line]:
    return [Line(name, x, y, colour, stroke)] if x.size else []


def _largest(times_ns: FloatArray, values: FloatArray, edges_ns: FloatArray) -> tuple[FloatArray, FloatArray]:
    known = ~np.isnan(values)
    part = np.searchsorted(edges_ns, times_ns[known], side="right") - 1
    largest = np.full(edges_ns.size - 1, -np.inf)
    np.maximum.at(largest, part, values[known])
    filled = np.isfinite(largest)
    return _middles_s(edges_ns)[filled], largest[filled]


def _share(times_ns: FloatArray, cpu_ns: FloatArray, edges_ns: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Increments divided by the time between them, in per cent; averaged over each part."""
    known = ~np.isnan(cpu_ns)
    times_ns, cpu_ns = times_ns[known], cpu_ns[known]
    if times_ns.size < 2:
        return np.array([]), np.array([])
    part = np.searchsorted(edges_ns, times_ns[1:], side="right") - 1
    spent = np.bincount(part, weights=cpu_ns[1:], minlength=edges_ns.size - 1)
    passed = np.bincount(part, weights=np.diff(times_ns), minlength=edges_ns.size - 1)
    filled = passed > 0
    return _middles_s(edges_ns)[filled], 100.0 * spent[filled] / passed[filled]


def _middles_s(edges_ns: FloatArray) -> FloatArray:
    middles: FloatArray = (edges_ns[:-1] + edges_ns[1:]) / 2e9
    return middles
