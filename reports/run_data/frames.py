"""The DataFrames of a run. This module alone imports pandas."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
import pyarrow as pa

from bench_records.client_table import CLIENT_COLUMNS
from bench_records.column import Column, schema_of
from bench_records.server_table import SERVER_COLUMNS
from reports.metrics.catalogue import E2E, TPOT, TTFT
from reports.metrics.censoring import latencies_by_request
from reports.metrics.latency import BY_REQUEST, schedule_slip_by_request_ms
from reports.metrics.requests import Requests
from reports.run_data.columns import CHUNKS, COMPUTED, RECORDED
from reports.statistics.arrays import FloatArray


def requests_frame(recorded: pa.Table, requests: Requests, streaming: bool) -> pd.DataFrame:
    """One row for each request, in the order of ``requests.parquet``. ``recorded`` holds the columns of RECORDED."""
    computed = _computed(requests, streaming)
    return _table_frame(recorded, RECORDED).assign(**{column.name: computed[column.name] for column in COMPUTED})


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


def _computed(requests: Requests, streaming: bool) -> dict[str, FloatArray]:
    """The values of COMPUTED by name, shape [requests]; NaN where a request has none."""
    unknown = np.full(len(requests.outcome), np.nan)
    ttft_from_sent = latencies_by_request(requests, requests.first_token_ns, requests.sent_ns)
    ttfo = latencies_by_request(requests, requests.first_output_token_ns, requests.scheduled_ns)
    values = {
        "e2e_ms": BY_REQUEST[E2E](requests).slowest_ms,
        "e2e_from_sent_ms": latencies_by_request(requests, requests.last_token_ns, requests.sent_ns).slowest_ms,
        "slip_ms": schedule_slip_by_request_ms(requests),
        "ttft_ms": BY_REQUEST[TTFT](requests).slowest_ms if streaming else unknown,
        "ttft_from_sent_ms": ttft_from_sent.slowest_ms if streaming else unknown,
        "ttfo_ms": ttfo.slowest_ms if streaming else unknown,
        "tpot_ms": BY_REQUEST[TPOT](requests).slowest_ms if streaming else unknown,
    }
    return {name: np.where(np.isfinite(value), value, np.nan) for name, value in values.items()}
