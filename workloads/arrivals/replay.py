"""The arrival times of a trace, replayed: cut, made faster, stretched to a rate, or spread within the trace's ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from workloads.elements.errors import Field, WorkloadError
from workloads.elements.random_streams import Stream, generator
from workloads.table.workload import SCHEMA, Workload

_SECOND_NS = 1_000_000_000
_LATEST_NS = 9e18  # what 64 bits hold


@dataclass(frozen=True, slots=True)
class Replay:
    """Replays the window of ``duration_s`` (None: all the rest) of a trace from ``start_s`` on, with its times divided by
    ``speed``.

    The window counts in the file's own time, which begins with its first request: windows that follow each other have each
    request once, and a window begins with the silence before its first request.

    With ``spread_ticks`` requests that the trace has rounded to one instant are spread evenly at random until the next instant,
    at most for the length of its tick, in the order of the rows.
    """

    start_s: float = 0.0
    speed: float = 1.0
    spread_ticks: bool = False
    duration_s: float | None = None

    def timed(self, workload: Workload, seed: int) -> Workload:
        """The whole workload with its ticks spread, if they are to be. Raises WorkloadError for one without arrival times."""
        arrivals, name = workload.table["arrival_ns"], workload.facts.source
        if arrivals.null_count:
            raise WorkloadError(f"{name} has no arrival times to replay; bench dataset sends it at ", Field("request_rate"))
        if not self.spread_ticks:
            return workload
        if workload.facts.tick_ns is None:
            raise WorkloadError(Field("spread_ticks"), f": the arrivals of {name} are not rounded to a tick")
        spread = _spread(arrivals.to_numpy(), workload.facts.tick_ns, seed)
        return _with(workload, workload.table, "arrival_ns", pa.array(spread))

    def window(self, timed: Workload) -> range:
        """The rows of a workload that arrive in the window. Raises WorkloadError where there is none."""
        times_ns, name = timed.table["arrival_ns"].to_numpy(), timed.facts.source
        first = int(np.searchsorted(times_ns, self._start_ns))
        if first == len(timed):
            raise WorkloadError(Field("start"), f" {self.start_s:g}: the last request of {name} arrives before it")
        if self.duration_s is None:
            return range(first, len(timed))
        end = int(np.searchsorted(times_ns, self._start_ns + round(self.duration_s * _SECOND_NS)))
        if first == end:
            raise WorkloadError(
                Field("start"),
                f" {self.start_s:g} ",
                Field("duration"),
                f" {self.duration_s:g}: {name} has no request in that time; the next one arrives "
                f"{times_ns[first] / _SECOND_NS:g} s after its beginning",
            )
        return range(first, end)

    def on_clock(self, rows: Workload) -> Workload:
        """Rows of the window with the times at which they are sent, from its start on, and think times divided by ``speed``.

        Raises WorkloadError.
        """
        timed = _on_clock(rows, rows.table["arrival_ns"].to_numpy() - self._start_ns, 1.0 / self.speed, ("speed", self.speed))
        if self.duration_s is None:
            return timed
        last_ns = max(0, round(self.duration_s / self.speed * _SECOND_NS) - 1)  # rounding moves no request out of the window
        arrivals = np.minimum(timed.table["arrival_ns"].to_numpy(), last_ns)
        return _with(timed, timed.table, "arrival_ns", pa.array(arrivals))

    @property
    def _start_ns(self) -> int:
        return round(self.start_s * _SECOND_NS)


def at_rate(workload: Workload, rate_per_s: float) -> Workload:
    """The workload with all times scaled by one factor to a mean rate of ``rate_per_s``, the first arrival at 0. A single
    request has no rate. Raises WorkloadError.
    """
    times_ns = workload.table["arrival_ns"].to_numpy()
    since_first_ns = times_ns - times_ns[0]
    length_ns = int(since_first_ns[-1])
    if times_ns.size == 1:
        return _with(workload, workload.table, "arrival_ns", pa.array(since_first_ns))
    if not length_ns:
        raise WorkloadError(Field("request_rate"), f" {rate_per_s:g}: all requests of the trace arrive at once")
    factor = (times_ns.size - 1) * _SECOND_NS / rate_per_s / length_ns
    return _on_clock(workload, since_first_ns, factor, ("request_rate", rate_per_s))


def rows_of(workload: Workload, rows: Sequence[int] | NDArray[np.int64]) -> Workload:
    """The workload of these rows alone, in their rising order; a parent or a join that is not among them is none."""
    numbers = np.asarray(rows, np.int64)
    table = pc.take(workload.table, pa.array(numbers))
    place = np.full(len(workload) + 1, -1, np.int64)  # the last is for rows without a parent
    place[numbers] = np.arange(numbers.size)
    parents = place[pc.fill_null(table["parent"], len(workload)).to_numpy()]
    if table["joins"].null_count < len(table):
        parents, joins = _waited_for(parents, table["joins"].to_pylist(), place)
        table = table.set_column(
            SCHEMA.get_field_index("joins"), SCHEMA.field("joins"), pa.array(joins, SCHEMA.field("joins").type)
        )
    return _with(workload, table, "parent", pa.array(parents, mask=parents < 0))


def _waited_for(
    parents: NDArray[np.int64], joins: Sequence[Sequence[int] | None], place: NDArray[np.int64]
) -> tuple[NDArray[np.int64], list[list[int] | None]]:
    """Parents, -1 for none, and joins by their new places. A row that has lost its parent alone waits for its last join."""
    parents = parents.copy()
    kept: list[list[int] | None] = []
    for row, joined in enumerate(joins):
        left = sorted(int(place[other]) for other in joined or () if place[other] >= 0)
        if left and parents[row] < 0:
            parents[row] = left.pop()
        kept.append(left or None)
    return parents, kept


def _on_clock(workload: Workload, times_ns: NDArray[np.int64], factor: float, field: tuple[str, float]) -> Workload:
    """The workload with the arrivals ``times_ns``, and its think times, all of them times ``factor``.

    Raises WorkloadError for the value of a ``field`` that makes them longer than can be counted.
    """
    longest_ns = max(int(times_ns[-1]), pc.max(workload.table["think_time_ns"]).as_py() or 0)
    if longest_ns * factor > _LATEST_NS:
        raise WorkloadError(Field(field[0]), f" {field[1]:g} is so low that the last request would come centuries from now")
    arrivals = np.round(times_ns * factor).astype(np.int64)
    timed = _with(workload, workload.table, "arrival_ns", pa.array(arrivals))
    if factor == 1.0:
        return timed
    think = workload.table["think_time_ns"]
    scaled = pc.cast(pc.round(pc.multiply(pc.cast(think, pa.float64(), safe=False), factor)), pa.int64())
    return _with(timed, timed.table, "think_time_ns", scaled)


def _with(workload: Workload, table: pa.Table, column: str, values: pa.Array | pa.ChunkedArray) -> Workload:
    return replace(workload, table=table.set_column(SCHEMA.get_field_index(column), SCHEMA.field(column), values))


def _spread(times_ns: NDArray[np.int64], tick_ns: int, seed: int) -> NDArray[np.int64]:
    instants, instant_of = np.unique(times_ns, return_inverse=True)
    width_ns = np.minimum(np.append(np.diff(instants), tick_ns), tick_ns)
    shares = generator(seed, Stream.TICKS).random(times_ns.size)
    in_order = shares[np.lexsort((shares, instant_of))]  # sorted within each instant, whose rows are neighbours
    spread: NDArray[np.int64] = times_ns + np.floor(in_order * width_ns[instant_of]).astype(np.int64)
    return spread
