"""The DataFrames of a run. This module alone imports pandas."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
import pyarrow as pa

from bench_records.client_table import CLIENT_COLUMNS
from bench_records.column import Column, schema_of
from bench_records.server_table import SERVER_COLUMNS
from reports.metrics.requests import Requests
from reports.run_data.columns import CHUNKS, COMPUTED, RECORDED, ComputedColumn
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
