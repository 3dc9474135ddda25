"""The DataFrames of a run. This module alone imports pandas."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
import pyarrow as pa

from bench_records.client_table import CLIENT_COLUMNS
from bench_records.column import Column, schema_of
from bench_records.server_table import SERVER_COLUMNS
from reports.metrics.metric import Metric
from reports.metrics.request_phases import ClientClock, Phase, PhaseTimes, phase_times
from reports.metrics.requests import Requests
from reports.run_data.columns import CHUNKS, COMPUTED, PHASES, PHASES_OF, RECORDED, ComputedColumn, phase_column
from reports.statistics.arrays import FloatArray


def requests_frame(recorded: pa.Table, requests: Requests, streaming: bool) -> pd.DataFrame:
    """One row for each request, in the order of ``requests.parquet``. ``recorded`` holds the columns of RECORDED."""
    values = {computed.column.name: _computed(computed, requests, streaming) for computed in COMPUTED}
    return _table_frame(recorded, RECORDED).assign(**values)


def chunks_frame(requests: Requests) -> pd.DataFrame:
    """One row for each response with generated tokens, by request and then in the order of arrival."""
    lengths = np.diff(requests.token_starts)
    values = {
        "index": np.repeat(requests.index, lengths),
        "chunk": np.arange(requests.token_starts[-1]) - np.repeat(requests.token_starts[:-1], lengths),
        "time_ns": requests.token_times_ns,
        "tokens": requests.token_counts,
    }
    return pd.DataFrame({column.name: values[column.name] for column in CHUNKS}).astype("Int64")


def phases_frame(requests: Requests, streaming: bool, clock: ClientClock) -> pd.DataFrame:
    """One row for each request and latency, those of one latency together; TTFT has none where the run was not streamed."""
    metrics = [metric for metric in PHASES_OF if streaming or not metric.streamed_only]
    frames = [_phases_of(requests, metric, phase_times(requests, metric, streaming, clock)) for metric in metrics]
    return pd.concat(frames, ignore_index=True)


def _phases_of(requests: Requests, metric: Metric, times: PhaseTimes) -> pd.DataFrame:
    unknown = np.full(len(requests.outcome), np.nan)
    spans = {phase: np.where(times.sourced[phase], span_ns, np.nan) for phase, span_ns in times.by_phase.items()}
    values = {
        "latency_ns": times.latency_ns,
        **{phase_column(phase): spans.get(phase, unknown) for phase in Phase},
        "contradiction_ns": times.contradiction_ns,
    }
    numbers = pd.DataFrame({"index": requests.index, **values}).astype("Int64")
    return numbers.assign(metric=pd.array([metric.key] * len(numbers), dtype="string"))[[column.name for column in PHASES]]


def client_frame(table: pa.Table | None) -> pd.DataFrame:
    """The rows of ``client.parquet``; none for None."""
    return _table_frame(table, CLIENT_COLUMNS)


def server_frame(table: pa.Table | None) -> pd.DataFrame:
    """The rows of ``server.parquet``; none for None."""
    return _table_frame(table, SERVER_COLUMNS)


def _table_frame(table: pa.Table | None, columns: Iterable[Column]) -> pd.DataFrame:
    schema = schema_of(columns)
    types = {pa.int64(): pd.Int64Dtype(), pa.string(): pd.StringDtype(), pa.bool_(): pd.BooleanDtype()}
    whole = schema.empty_table() if table is None else table.select(schema.names)
    frame: pd.DataFrame = whole.to_pandas(types_mapper=types.get)
    return frame


def _computed(computed: ComputedColumn, requests: Requests, streaming: bool) -> FloatArray:
    """The values of a column, shape [requests]; NaN where a request has none."""
    if computed.metric.streamed_only and not streaming:
        return np.full(len(requests.outcome), np.nan)
    anchor_ns = requests.sent_ns if computed.from_send else requests.scheduled_ns
    values_ms = computed.metric.from_anchor(requests, anchor_ns).slowest_ms
    return np.where(np.isfinite(values_ms), values_ms, np.nan)
