"""The columns of the DataFrames of a run, as data: pandas is not imported."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from bench_records.column import RUN_CLOCK, Column
from bench_records.table import REQUEST_COLUMNS
from reports.metrics.catalogue import E2E, LATENCIES, TTFT
from reports.metrics.metric import Metric
from reports.metrics.request_phases import Phase

_IN_CHUNKS = ("token_times_ns", "token_counts")
_FAILED = "the request failed or was cut off before it, or has no such time"

RECORDED = tuple(column for column in REQUEST_COLUMNS if column.name not in _IN_CHUNKS)
"""The columns of ``requests.parquet`` with one value for each request."""


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column with each request's value of ``metric``, from the send where ``from_send``, else from the schedule."""

    metric: Metric
    from_send: bool

    @property
    def column(self) -> Column:
        name = f"{self.metric.name}_from_sent_ms" if self.from_send else self.metric.key
        text = f"{self.metric.label} from `{'sent_ns' if self.from_send else 'scheduled_ns'}`"
        return Column(name, pa.float64(), "ms", self.metric.column_text or text, self._null)

    @property
    def _null(self) -> str:
        parts = [_FAILED] if self.metric.ends_ns is not None else []
        parts += [self.metric.column_null] if self.metric.column_null else []
        return "; ".join([*parts, "the run was not streamed"] if self.metric.streamed_only else parts)


COMPUTED = tuple(
    ComputedColumn(metric, from_send)
    for metric in LATENCIES
    if metric.ends_ns is not None or metric.each_ms is not None
    for from_send in ((False, True) if metric.ends_ns is not None and metric.has_sent_column else (False,))
)
"""Each request's values of the metrics, by the definitions of docs/reference/metrics.md."""

CHUNKS = (
    Column("index", pa.int64(), "", "number of the request in the schedule"),
    Column("chunk", pa.int64(), "", "number of the response within its answer, from 0, counting those with generated tokens"),
    Column("time_ns", pa.int64(), RUN_CLOCK, "its arrival: an item of `token_times_ns`"),
    Column("tokens", pa.int64(), "tokens", "its generated tokens: an item of `token_counts`", "unknown"),
)


PHASES_OF = (TTFT, E2E)
"""The latencies whose phases ``run.phases`` has."""

_NO_PHASE = "the request has no such latency, or nothing says how long it was there: that time is in `unattributed_ns`"
_PHASE_TEXTS = {  # of those that a run's own files have: a step log alone has the decode beside prefill
    Phase.SLIP: ("from when the request was due to its send, without the wait at the ceiling", None),
    Phase.CEILING: ("wait for room below `--max_concurrency`", "it did not wait there"),
    Phase.CONNECT: (
        "from the send until a connection had room for it: `connect_ns` of `run.requests`",
        "it did not wait there",
    ),
    Phase.SEND: ("from there until the kernel was given the last byte of the request", None),
    Phase.ROUTER: ("in routers, by what they say", None),
    Phase.FIRST_BYTE: ("from there until the head of the answer came, where the server says nothing of that time", None),
    Phase.FRONT_END: ("from the send until the engine took the request in, without the router", None),
    Phase.QUEUE: ("in the queue of the engine", None),
    Phase.PREFILL: ("from there to the engine's first token", None),
    Phase.DECODE: ("from there to the engine's last token; in `e2e_ms` alone", None),
    Phase.STREAM: ("from the client's first token to its last one, where the server gave no decode; in `e2e_ms` alone", None),
    Phase.RETURN: ("from the engine's token until the client had it", None),
    Phase.UNATTRIBUTED: ("all that no source covers", "the request has no such latency"),
}


def phase_column(phase: Phase) -> str:
    """The name of a phase's column: that of the JSON of ``bench why``, with the unit."""
    return f"{phase.name.lower()}_ns"


PHASES = (
    Column("index", pa.int64(), "", "number of the request in the schedule"),
    Column("metric", pa.string(), "", "the latency: `ttft_ms` or `e2e_ms`, each from the schedule"),
    Column("latency_ns", pa.int64(), "ns", "the latency: the sum of the columns after it", _FAILED),
    *(Column(phase_column(phase), pa.int64(), "ns", text, null or _NO_PHASE) for phase, (text, null) in _PHASE_TEXTS.items()),
    Column(
        "contradiction_ns",
        pa.int64(),
        "ns",
        "0, or below it where the phases by different sources are together longer than the latency",
        _FAILED,
    ),
)
"""The phases of each request's latencies, as ``bench why`` has them."""


def pandas_type(column: Column) -> str:
    """The name of a column's type in pandas: nullable for whole numbers, texts and booleans; in ``float64``, NaN is null."""
    if pa.types.is_dictionary(column.type):
        return "category"
    return {pa.int64(): "Int64", pa.string(): "string", pa.bool_(): "boolean", pa.float64(): "float64"}[column.type]
