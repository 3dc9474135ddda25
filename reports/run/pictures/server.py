"""The server's metrics through the run (``server.parquet``), on the time axis of all other pictures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.metrics.server_pages.listed import names_of
from reports.metrics.server_series import Series, Telemetry, place_of
from reports.render.picture import Axis, Colour, Line, Picture, Stroke
from reports.render.plain_text import printable
from reports.run.pictures.over_time import TIME, seconds
from reports.statistics.arrays import FloatArray

_MOST_POINTS = 1_000
_COLOURS = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.PURPLE, Colour.SKY, Colour.RED, Colour.GREY)
_MOST_LINES = 2 * len(_COLOURS)


@dataclass(frozen=True)
class Shown:
    """A metric, or those of its series whose ``label`` has ``value``; ``name`` is the line's.

    An ``unusual`` one is left out where it stays at 0. Where ``bench`` read the same of a GPU itself as ``read_itself``, that
    is shown: it was read more often than a page renews its values.
    """

    metric: str
    name: str
    label: str = ""
    value: str = ""
    scale: float = 1.0
    unusual: bool = False
    read_itself: str = ""


@dataclass(frozen=True)
class Panel:
    """A picture of gauges; or of counters, of which the growth of each is divided by that of ``per`` (None: by seconds)."""

    name: str
    title: str
    caption: str
    y: Axis
    shown: tuple[Shown, ...]
    counters: bool = False
    per: str | None = None


_REQUESTS, _REQUEST_TYPE = "nv_trt_llm_request_metrics", "request_type"
_BLOCKS, _BLOCK_TYPE = "nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type"
_BATCHER, _BATCHER_TYPE = "nv_trt_llm_inflight_batcher_metrics", "inflight_batcher_specific_metric"
_PAGE_GPU, _OWN_GPU = "gpu_uuid", "uuid"  # the labels that identify a GPU, of Triton's page and of what bench reads itself
_MEMORY, _MEMORY_TYPE = "nv_trt_llm_runtime_memory_metrics", "memory_type"

_PANELS = (
    Panel(
        "server-requests",
        "Requests in the engine",
        "Active: accepted and not ended. Scheduled: computed in the engine's newest step. Waiting: the rest.",
        Axis("requests", from_zero=True),
        (
            Shown(_REQUESTS, "active", _REQUEST_TYPE, "active"),
            Shown(_REQUESTS, "scheduled", _REQUEST_TYPE, "scheduled"),
            Shown(_REQUESTS, "waiting", _REQUEST_TYPE, "waiting"),
            Shown(_BATCHER, "paused", _BATCHER_TYPE, "paused_requests", unusual=True),
            *(Shown(name, "active") for name in names_of("active")),
            *(Shown(name, "running") for name in names_of("running")),
            *(Shown(name, "waiting") for name in names_of("waiting")),
        ),
    ),
    Panel(
        "server-kv-cache",
        "KV cache",
        "The share of KV cache blocks in use. A full cache makes requests wait, or pauses them.",
        Axis("KV cache in use", "%", from_zero=True),
        (
            Shown(_BLOCKS, "in use", _BLOCK_TYPE, "fraction", 100.0),
            *(Shown(name, "in use", scale=100.0) for name in names_of("cache_used")),
        ),
    ),
    Panel(
        "server-preemptions",
        "Preemptions",
        "Requests a second whose KV cache the engine took for others; their tokens are computed again.",
        Axis("requests", "1/s", from_zero=True),
        tuple(Shown(name, "preempted", unusual=True) for name in names_of("preemptions")),
        counters=True,
    ),
    Panel(
        "server-queue",
        "Requests waiting in Triton",
        "Requests that Triton holds for each model before its backend takes them.",
        Axis("requests", from_zero=True),
        (Shown("nv_inference_pending_request_count", "pending"),),
    ),
    Panel(
        "server-queue-time",
        "Time in Triton's queue",
        "The mean time that the requests which ended between two readings had waited in Triton's queue.",
        Axis("mean time in the queue", "ms", from_zero=True),
        (Shown("nv_inference_queue_duration_us", "queue", scale=1e-3),),
        counters=True,
        per="nv_inference_request_success",
    ),
    Panel(
        "server-requests-ended",
        "Requests that each model ended",
        "Requests a second that each model answered, between two readings.",
        Axis("requests", "1/s", from_zero=True),
        (Shown("nv_inference_request_success", "answered"), Shown("nv_inference_request_failure", "failed", unusual=True)),
        counters=True,
    ),
    Panel(
        "server-memory",
        "Memory of the engine",
        "Memory in use, as the engine reports it.",
        Axis("memory", "GB", from_zero=True),
        (
            Shown(_MEMORY, "CPU", _MEMORY_TYPE, "cpu", 1e-9),
            Shown(_MEMORY, "GPU", _MEMORY_TYPE, "gpu", 1e-9, unusual=True),
            Shown("nv_gpu_memory_used_bytes", "GPU, used", scale=1e-9, read_itself="gpu_memory_used_bytes"),
            Shown("gpu_memory_used_bytes", "GPU, used", scale=1e-9),
        ),
    ),
    Panel(
        "gpu-utilization",
        "GPU",
        "The share of time in which the GPU computed, as its driver reports it.",
        Axis("GPU utilization", "%", from_zero=True),
        (
            Shown("nv_gpu_utilization", "utilization", scale=100.0, read_itself="gpu_utilization_ratio"),
            Shown("gpu_utilization_ratio", "utilization", scale=100.0),
        ),
    ),
    Panel(
        "gpu-power",
        "GPU power",
        "Power draw of the GPU.",
        Axis("power", "W", from_zero=True),
        (Shown("nv_gpu_power_usage", "power", read_itself="gpu_power_watts"), Shown("gpu_power_watts", "power")),
    ),
    Panel(
        "host-power",
        "CPU and DRAM power",
        "Power of each CPU package and its DRAM: what the energy counters of this machine grew by, the client's part included.",
        Axis("power", "W", from_zero=True),
        (Shown("host_cpu_energy_joules_total", "CPU"), Shown("host_dram_energy_joules_total", "DRAM")),
        counters=True,
    ),
    Panel(
        "gpu-clock",
        "GPU clock",
        "The clock of the GPU's streaming multiprocessors. A power cap or heat lowers it.",
        Axis("SM clock", "MHz", from_zero=True),
        (Shown("gpu_sm_clock_hertz", "SM clock", scale=1e-6),),
    ),
)


def server_pictures(telemetry: Telemetry | None) -> list[Picture]:
    """A picture of each known group of metrics that the server exports."""
    if telemetry is None:
        return []
    return [picture for panel in _PANELS if (picture := _picture(panel, telemetry)) is not None]


def _picture(panel: Panel, telemetry: Telemetry) -> Picture | None:
    selected = [
        (shown, series)
        for shown in panel.shown
        for series in telemetry.select(shown.metric, **({shown.label: shown.value} if shown.label else {}))
        if series.labels.get(_PAGE_GPU) not in _read_itself(shown, telemetry)
    ]
    lines: list[Line] = []
    averaged = False
    for shown, series in selected:
        times_ns, values = _values(panel, shown, series, telemetry)
        idle = not np.nan_to_num(values).any()
        if not np.isfinite(values).any() or (idle and (shown.unusual or len(selected) > len(panel.shown))):
            continue  # of many series, those that stay at 0 are left out
        averaged = averaged or times_ns.size > _MOST_POINTS
        times_ns, values = _averaged(times_ns, values)
        colour, stroke = _COLOURS[len(lines) % len(_COLOURS)], Stroke.SOLID if len(lines) < len(_COLOURS) else Stroke.DASHED
        lines.append(Line(_name(shown, series, selected), seconds(times_ns), values, colour, stroke))
    if not lines:
        return None
    caption = panel.caption + (f" Means of {_MOST_POINTS:,} equal parts of the run." if averaged else "")
    caption += f" The first {_MOST_LINES} of {len(lines)} series." if len(lines) > _MOST_LINES else ""
    return Picture(panel.name, panel.title, caption, TIME, panel.y, tuple(lines[:_MOST_LINES]))


def _read_itself(shown: Shown, telemetry: Telemetry) -> frozenset[str]:
    """The UUIDs of the GPUs of which ``bench`` read the same during the run."""
    return frozenset(
        series.labels[_OWN_GPU]
        for series in telemetry.select(shown.read_itself)
        if _OWN_GPU in series.labels and np.isfinite(series.values[series.times_ns >= 0]).any()
    )


def _values(panel: Panel, shown: Shown, series: Series, telemetry: Telemetry) -> tuple[FloatArray, FloatArray]:
    """Times in ns from the run's start, and the values drawn at them; NaN is a gap."""
    times_ns, values = series.times_ns, series.values * shown.scale
    if panel.counters:
        values = _growth(series.values) * shown.scale / _per(panel, series, telemetry)
        times_ns = times_ns[1:]
    during = times_ns >= 0
    return times_ns[during], np.where(np.isfinite(values), values, np.nan)[during]


def _per(panel: Panel, series: Series, telemetry: Telemetry) -> FloatArray:
    """The divisor of each increment of ``series``; NaN where it is 0 or unknown."""
    if panel.per is None:
        per: FloatArray = np.diff(series.times_ns) / 1e9
    else:
        same = [
            other for other in telemetry.select(panel.per) if (other.labels, other.server) == (series.labels, series.server)
        ]
        if not same or not np.array_equal(same[0].times_ns, series.times_ns):
            return np.full(max(0, series.times_ns.size - 1), np.nan)
        per = _growth(same[0].values)
    return np.where(per > 0, per, np.nan)


def _growth(values: FloatArray) -> FloatArray:
    """Increments of a counter; where it fell, the server restarted, and the increment is unknown."""
    grown: FloatArray = np.diff(values)
    grown[grown < 0] = np.nan
    return grown


def _averaged(times_ns: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    known = ~np.isnan(values)
    times_ns, values = times_ns[known], values[known]
    if times_ns.size <= _MOST_POINTS:
        return times_ns, values
    edges = np.linspace(times_ns[0], times_ns[-1], _MOST_POINTS + 1)
    counts = np.histogram(times_ns, edges)[0]
    filled = counts > 0
    sums = np.histogram(times_ns, edges, weights=values)[0]
    middles: FloatArray = (edges[:-1] + edges[1:]) / 2
    return middles[filled], sums[filled] / counts[filled]


def _name(shown: Shown, series: Series, selected: list[tuple[Shown, Series]]) -> str:
    """The line's name, with the labels that distinguish it from its neighbours."""
    others = [other for drawn, other in selected if drawn.name == shown.name]
    distinct = [
        value
        for key, value in series.labels.items()
        if key != shown.label and any(other.labels.get(key) != value for other in others)
    ]
    if any(other.server != series.server for other in others):
        distinct.append(place_of(series.server))
    alone = len({series.name for series, _ in selected}) == 1
    return printable(", ".join(distinct if alone and distinct else [shown.name, *distinct]))
