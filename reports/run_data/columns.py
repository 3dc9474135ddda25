"""The columns of the DataFrames of a run, as data: pandas is not imported."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from bench_records.column import RUN_CLOCK, Column
from bench_records.table import REQUEST_COLUMNS
from reports.metrics.catalogue import LATENCIES
from reports.metrics.metric import Metric

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


def pandas_type(column: Column) -> str:
    """The name of a column's type in pandas: nullable for whole numbers, texts and booleans; in ``float64``, NaN is null."""
    if pa.types.is_dictionary(column.type):
        return "category"
    return {pa.int64(): "Int64", pa.string(): "string", pa.bool_(): "boolean", pa.float64(): "float64"}[column.type]
