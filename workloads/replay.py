"""The arrival times of a trace, replayed: cut, made faster, stretched to a rate, or spread within the trace's ticks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from workloads.errors import WorkloadError
from workloads.random_streams import Stream, generator
from workloads.workload import SCHEMA, Workload

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Replay:
    """Of a trace the rows from ``start_s`` on, their gaps divided by ``speed``.

    With ``spread_ticks`` requests that the trace has rounded to one instant are spread evenly at random until the next instant,
    at most for the length of its tick, in the order of the rows.
    """

    start_s: float = 0.0
    speed: float = 1.0
    spread_ticks: bool = False

    def replayed(self, workload: Workload, seed: int) -> Workload:
        """The workload with these arrivals, the first at 0, without its conversations. Raises WorkloadError."""
        arrivals = workload.table["arrival_ns"]
        name = workload.facts.source
        if arrivals.null_count:
            raise WorkloadError(f"{name} has no arrival times to replay; bench dataset sends it at --request_rate")
        first = int(np.searchsorted(arrivals.to_numpy(), round(self.start_s * _SECOND_NS)))
        if first == len(workload):
            raise WorkloadError(f"--start {self.start_s:g}: the last request of {name} arrives before it")
        times_ns = arrivals.to_numpy()[first:]
        if self.spread_ticks:
            if workload.facts.tick_ns is None:
                raise WorkloadError(f"--spread_ticks: the arrivals of {name} are not rounded to a tick")
            times_ns = _spread(times_ns, workload.facts.tick_ns, seed)
        since_first = (times_ns - times_ns[0]) / self.speed
        columns = {field.name: workload.table[field.name].slice(first) for field in SCHEMA}
        columns["arrival_ns"] = pa.chunked_array([np.round(since_first).astype(np.int64)])
        for lost in ("parent", "think_time_ns", "session"):  # rows are renumbered, and each is sent at its own time
            columns[lost] = pa.chunked_array([pa.nulls(times_ns.size, SCHEMA.field(lost).type)])
        return Workload(pa.Table.from_arrays([columns[field.name] for field in SCHEMA], schema=SCHEMA), workload.facts)


def stretched(times_ns: NDArray[np.int64], rate_per_s: float) -> NDArray[np.int64]:
    """The arrivals, from 0 on, with all gaps scaled by one factor to a mean rate of ``rate_per_s``. Raises WorkloadError."""
    length_ns = int(times_ns[-1] - times_ns[0])
    if not length_ns:
        raise WorkloadError(f"--request_rate {rate_per_s:g}: all requests of the trace arrive at once")
    factor = (times_ns.size - 1) * _SECOND_NS / rate_per_s / length_ns
    scaled: NDArray[np.int64] = np.round((times_ns - times_ns[0]) * factor).astype(np.int64)
    return scaled


def _spread(times_ns: NDArray[np.int64], tick_ns: int, seed: int) -> NDArray[np.int64]:
    instants, instant_of = np.unique(times_ns, return_inverse=True)
    width_ns = np.minimum(np.append(np.diff(instants), tick_ns), tick_ns)
    shares = generator(seed, Stream.TICKS).random(times_ns.size)
    in_order = shares[np.lexsort((shares, instant_of))]  # sorted within each instant, whose rows are neighbours
    spread: NDArray[np.int64] = times_ns + np.floor(in_order * width_ns[instant_of]).astype(np.int64)
    return spread


def rows_of(workload: Workload, rows: tuple[int, ...]) -> Workload:
    """The workload of these rows alone."""
    return Workload(pc.take(workload.table, pa.array(rows, pa.int64())), workload.facts)
