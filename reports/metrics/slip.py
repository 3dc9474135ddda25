"""Schedule slip of the client by worker and over time, without the wait at the ceiling on requests in flight."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reports.metrics.latency import client_slip_by_request_ms
from reports.metrics.requests import Requests
from reports.statistics.percentiles import nearest_rank

PARTS = 10


@dataclass(frozen=True, slots=True)
class Slip:
    """The slip of ``sends`` sends, in ms; None where there are none."""

    sends: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


@dataclass(frozen=True, slots=True)
class PartOfRun:
    """The slip of the requests that were due from ``start_s`` to ``end_s``."""

    start_s: float
    end_s: float
    slip: Slip


def slip_by_worker(requests: Requests) -> dict[int, Slip]:
    """The slip of each worker's sends, by the worker's number; empty where no worker is known."""
    slip_ms = client_slip_by_request_ms(requests)
    known = ~np.isnan(slip_ms) & ~np.isnan(requests.worker)
    workers = requests.worker[known]
    return {int(worker): _slip_of(slip_ms[known][workers == worker]) for worker in np.unique(workers)}


def slip_over_time(requests: Requests) -> tuple[PartOfRun, ...]:
    """The slip in PARTS equal parts of the time over which requests were due; one part where all were due at once."""
    slip_ms = client_slip_by_request_ms(requests)
    known = ~np.isnan(slip_ms)
    if not known.any():
        return ()
    due_ns = requests.scheduled_ns[known]
    edges = np.linspace(due_ns.min(), due_ns.max(), (PARTS if due_ns.max() > due_ns.min() else 1) + 1)
    part = np.minimum(np.searchsorted(edges, due_ns, side="right") - 1, edges.size - 2)
    return tuple(
        PartOfRun(float(edges[k]) / 1e9, float(edges[k + 1]) / 1e9, _slip_of(slip_ms[known][part == k]))
        for k in range(edges.size - 1)
    )


def _slip_of(slip_ms: NDArray[np.float64]) -> Slip:
    if slip_ms.size == 0:
        return Slip(0, None, None, None)
    ordered = np.sort(slip_ms)
    return Slip(ordered.size, nearest_rank(ordered, 0.50), nearest_rank(ordered, 0.99), float(ordered[-1]))
