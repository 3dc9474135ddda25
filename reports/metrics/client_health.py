"""Health of the client during a run: a summary of the samples in ``client.parquet``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from reports.metrics.columns import floats
from reports.metrics.requests import Requests
from reports.statistics.arrays import FloatArray
from reports.statistics.percentiles import nearest_rank

_NS_PER_MS = 1e6
# What samples have since the one before of the same process.
_INCREMENTS = (
    *("cpu_ns", "run_queue_wait_ns", "gc_pause_ns", "gc_longest_ns", "gc_count"),
    *("voluntary_switches", "involuntary_switches", "busy_ns", "steal_ns"),
)


@dataclass(frozen=True)
class LoopLag:
    """Delay of event loop wake-ups while requests were in flight, in ms, over ``samples`` wake-ups of all workers."""

    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    samples: int


@dataclass(frozen=True, eq=False)
class WakeUps:
    """When event loops of all workers should have woken, and did, from the run's start on; shape [wake-ups] each."""

    due_ns: FloatArray
    woke_ns: FloatArray

    def longest_delay_ms(self, begin_ns: float, end_ns: float) -> float:
        """The longest part of the time from ``begin_ns`` to ``end_ns`` for which a loop that was due did not wake."""
        overlaps_ns = np.minimum(self.woke_ns, end_ns) - np.maximum(self.due_ns, begin_ns)
        return float(overlaps_ns.max(initial=0.0)) / _NS_PER_MS


@dataclass(frozen=True)
class ThreadLoad:
    """Load of one worker, or of the parent process. Shares are parts of the time observed from its last sample before the run
    on; None is unknown. ``cpu_share`` is that of the whole process, the rest of a worker is that of its sending thread.

    ``wait_ms`` is the mean wait on a run queue before each time that it ran.
    """

    worker: int | None
    cpu_share: float
    run_queue_wait_share: float | None
    wait_ms: float | None
    involuntary_switches: int
    gc_pause_share: float | None
    gc_longest_ms: float | None
    gc_count: int | None


@dataclass(frozen=True)
class ClientHealth:
    """``workers`` are in the order of their numbers; ``busy_cores`` and ``steal_cores`` are sums over the client's cores."""

    lag: LoopLag | None
    workers: tuple[ThreadLoad, ...]
    parent: ThreadLoad | None
    busy_cores: float | None
    steal_cores: float | None

    @property
    def busiest(self) -> ThreadLoad | None:
        """The worker with the highest CPU use."""
        return max(self.workers, key=lambda worker: worker.cpu_share, default=None)

    @property
    def cpu_cores(self) -> float | None:
        """CPU use of the whole client, in cores; None where a part is unknown."""
        return None if self.parent is None or not self.workers else sum(t.cpu_share for t in (*self.workers, self.parent))

    @property
    def run_queue_wait_share(self) -> float | None:
        """The largest share of any worker."""
        return max((w.run_queue_wait_share for w in self.workers if w.run_queue_wait_share is not None), default=None)

    @property
    def wait_ms(self) -> float | None:
        """The largest mean wait of any worker."""
        return max((worker.wait_ms for worker in self.workers if worker.wait_ms is not None), default=None)

    @property
    def gc_longest_ms(self) -> float | None:
        return max((worker.gc_longest_ms for worker in self.workers if worker.gc_longest_ms is not None), default=None)


def client_health(table: pa.Table | None, requests: Requests, *, machine_is_its_own: bool = True) -> ClientHealth | None:
    """Summarise ``client.parquet`` (columns of ClientSample); None without the file or samples.

    The parent samples the cores of its own machine: where that is not also the workers' (``machine_is_its_own`` False), they
    say nothing of the client, and ``busy_cores`` and ``steal_cores`` are None.
    """
    if table is None or not len(table):
        return None
    columns = {name: floats(table[name]) for name in table.column_names}
    of_parent = np.isnan(columns["worker"])
    workers = sorted(set(columns["worker"][~of_parent].astype(int).tolist()))
    machine = _during_run(columns, of_parent)
    span_ns = _span_ns(machine)
    return ClientHealth(
        lag=_lag(columns, requests),
        workers=tuple(load for worker in workers if (load := _load(columns, columns["worker"] == worker, worker)) is not None),
        parent=_load(columns, of_parent, None),
        busy_cores=_share(machine["busy_ns"], span_ns) if machine_is_its_own else None,
        steal_cores=_share(machine["steal_ns"], span_ns) if machine_is_its_own else None,
    )


def _during_run(columns: dict[str, FloatArray], rows: NDArray[np.bool_]) -> dict[str, FloatArray]:
    """The samples of one process without those before the run, in which a worker waits: in a distributed run 2 s.

    The last one before the run stays without its increments, since the next one counts from it, perhaps over a time that is
    longer than the run: the parent takes a sample every 0.5 s.
    """
    samples = {name: values[rows] for name, values in columns.items()}
    before = np.flatnonzero((samples["time_ns"] <= 0) & ~np.isnan(samples["cpu_ns"]))
    if not before.size:
        return samples
    samples = {name: values[before[-1] :] for name, values in samples.items()}
    first = np.arange(samples["time_ns"].size) == 0
    return samples | {name: np.where(first, np.nan, samples[name]) for name in _INCREMENTS}


def wake_ups(table: pa.Table | None) -> WakeUps | None:
    """All that ``client.parquet`` has; None without the file or wake-ups."""
    if table is None:
        return None
    woke_ns, lag_ns = floats(table["time_ns"]), floats(table["lag_ns"])
    known = ~np.isnan(lag_ns)
    return WakeUps((woke_ns - lag_ns)[known], woke_ns[known]) if known.any() else None


def _lag(columns: dict[str, FloatArray], requests: Requests) -> LoopLag | None:
    """Lag of the wake-ups with a request in flight: a late wake-up of an idle loop delays no time stamp, and would hide the lag
    of a busy one.
    """
    known = ~np.isnan(columns["lag_ns"])
    lag_ns = columns["lag_ns"][known]
    woke_ns = columns["time_ns"][known]
    during_requests = _in_flight(requests, woke_ns) | _in_flight(requests, woke_ns - lag_ns)
    ordered = np.sort(lag_ns[during_requests]) / _NS_PER_MS
    if not ordered.size:
        return None
    return LoopLag(
        mean_ms=float(ordered.mean()),
        p50_ms=nearest_rank(ordered, 0.50),
        p99_ms=nearest_rank(ordered, 0.99),
        max_ms=float(ordered[-1]),
        samples=int(ordered.size),
    )


def _in_flight(requests: Requests, at_ns: FloatArray) -> NDArray[np.bool_]:
    """Whether any request was in flight: due, and not yet ended."""
    sent = ~np.isnan(requests.sent_ns)
    ends_ns = np.where(np.isnan(requests.done_ns), requests.sent_ns, requests.done_ns)[sent]
    due = np.searchsorted(np.sort(requests.scheduled_ns[sent]), at_ns, side="right")
    return due > np.searchsorted(np.sort(ends_ns), at_ns)


def _load(columns: dict[str, FloatArray], rows: NDArray[np.bool_], worker: int | None) -> ThreadLoad | None:
    samples = _during_run(columns, rows)
    span_ns = _span_ns(samples)
    cpu_share = _share(samples["cpu_ns"], span_ns)
    if cpu_share is None:
        return None
    switches = np.nansum(samples["voluntary_switches"]) + np.nansum(samples["involuntary_switches"])
    waited_ns = _sum(samples["run_queue_wait_ns"])
    collections, longest_ns = _sum(samples["gc_count"]), samples["gc_longest_ns"]
    return ThreadLoad(
        worker=worker,
        cpu_share=cpu_share,
        run_queue_wait_share=_share(samples["run_queue_wait_ns"], span_ns),
        wait_ms=None if waited_ns is None or not switches else waited_ns / float(switches) / _NS_PER_MS,
        involuntary_switches=int(np.nansum(samples["involuntary_switches"])),
        gc_pause_share=_share(samples["gc_pause_ns"], span_ns),
        gc_longest_ms=None if np.isnan(longest_ns).all() else float(np.nanmax(longest_ns)) / _NS_PER_MS,
        gc_count=None if collections is None else int(collections),
    )


def _span_ns(samples: dict[str, FloatArray]) -> float:
    return float(np.ptp(samples["time_ns"])) if samples["time_ns"].size else 0.0


def _share(increments_ns: FloatArray, span_ns: float) -> float | None:
    total_ns = _sum(increments_ns)
    return None if total_ns is None or not span_ns else total_ns / span_ns


def _sum(increments: FloatArray) -> float | None:
    """None where nothing is known."""
    known = increments[~np.isnan(increments)]
    return float(known.sum()) if known.size else None
