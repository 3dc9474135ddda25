"""The columns of the DataFrames of a run, as data: pandas is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

from bench_records.client_table import CLIENT_COLUMNS
from bench_records.column import RUN_CLOCK, Column
from bench_records.server_table import SERVER_COLUMNS
from bench_records.table import REQUEST_COLUMNS

_IN_CHUNKS = ("token_times_ns", "token_counts")
_FAILED = "the request failed or was cut off before it, or has no such time"

RECORDED = tuple(column for column in REQUEST_COLUMNS if column.name not in _IN_CHUNKS)
"""The columns of ``requests.parquet`` with one value for each request."""

COMPUTED = (
    Column(
        "ttft_ms",
        pa.float64(),
        "ms",
        "TTFT from `scheduled_ns`",
        f"{_FAILED}; the run was not streamed",
    ),
    Column("ttft_from_sent_ms", pa.float64(), "ms", "TTFT from `sent_ns`", f"{_FAILED}; the run was not streamed"),
    Column(
        "ttfo_ms",
        pa.float64(),
        "ms",
        "TTFO from `scheduled_ns`; where the answer has no reasoning, TTFT",
        f"{_FAILED}; the answer is reasoning alone; the run was not streamed",
    ),
    Column("e2e_ms", pa.float64(), "ms", "E2E latency from `scheduled_ns`", _FAILED),
    Column("e2e_from_sent_ms", pa.float64(), "ms", "E2E latency from `sent_ns`", _FAILED),
    Column(
        "tpot_ms",
        pa.float64(),
        "ms",
        "TPOT",
        "the request failed; fewer than 2 tokens, or fewer than 2 responses with tokens; the run was not streamed",
    ),
    Column("slip_ms", pa.float64(), "ms", "schedule slip: `sent_ns` − `scheduled_ns`", "not sent"),
)
"""Each request's values of the metrics, by the definitions of docs/reference/metrics.md."""

CHUNKS = (
    Column("index", pa.int64(), "", "number of the request in the schedule"),
    Column("chunk", pa.int64(), "", "number of the response within its answer, from 0, counting those with generated tokens"),
    Column("time_ns", pa.int64(), RUN_CLOCK, "its arrival: an item of `token_times_ns`"),
    Column("tokens", pa.int64(), "tokens", "its generated tokens: an item of `token_counts`", "unknown"),
)

FRAMES: Mapping[str, tuple[Column, ...]] = MappingProxyType(
    {
        "requests": (*RECORDED, *COMPUTED),
        "chunks": CHUNKS,
        "client_series": CLIENT_COLUMNS,
        "server_series": SERVER_COLUMNS,
    }
)
"""The columns of each DataFrame, by its name in ``Run``."""


def pandas_type(column: Column) -> str:
    """The name of a column's type in pandas: nullable for whole numbers, texts and booleans; in ``float64``, NaN is null."""
    if pa.types.is_dictionary(column.type):
        return "category"
    return {pa.int64(): "Int64", pa.string(): "string", pa.bool_(): "boolean", pa.float64(): "float64"}[column.type]
