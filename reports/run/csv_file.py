"""``requests.csv``: one row per request, for spreadsheets. The parquet file has the same and the time of every token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from reports.metrics.columns import integer_column, text_column
from reports.metrics.requests import Requests
from reports.render.plain_text import spreadsheet_text
from reports.run_report import RunReport
from reports.statistics.arrays import FloatArray

COLUMNS = (
    "index", "outcome", "scheduled_ms", "sent_ms", "first_token_ms", "last_token_ms", "done_ms",
    "input_tokens", "requested_output_tokens", "output_tokens", "error", "target",
    "written_ms", "head_ms", "traffic_class",
)  # fmt: skip
_DIGITS = 25
_CHUNK_ROWS = 100_000  # columns as text take far more memory than as numbers


def write_csv(report: RunReport, path: Path) -> None:
    """Write the file; times are ms since the run's start, unknown cells are empty."""
    requests = report.all_requests
    with path.open("wb") as file:
        file.write(",".join(COLUMNS).encode() + b"\n")
        for start in range(0, len(requests.outcome), _CHUNK_ROWS):
            rows = slice(start, start + _CHUNK_ROWS)
            csv.write_csv(_table(requests, rows), file, csv.WriteOptions(include_header=False))


def _table(requests: Requests, rows: slice) -> pa.Table:
    times = (requests.scheduled_ns, requests.sent_ns, requests.first_token_ns, requests.last_token_ns, requests.done_ns)
    counts = (requests.input_tokens, requests.requested_output_tokens, requests.output_tokens)
    columns = [
        _whole(requests.index[rows]),
        text_column(requests.outcome[rows].tolist()),
        *(_ms(column[rows]) for column in times),
        *(_whole(column[rows]) for column in counts),
        text_column([_text(error) for error in requests.errors[rows]]),
        _whole(requests.target[rows]),
        *(_ms(column[rows]) for column in (requests.written_ns, requests.head_ns)),
        text_column([_text(requests.class_names[number] if number >= 0 else None) for number in requests.class_of[rows]]),
    ]
    return pa.Table.from_arrays(columns, names=list(COLUMNS))


def _whole(values: FloatArray | NDArray[np.int64]) -> pa.Array:
    """Whole numbers; NaN is null."""
    known = ~np.isnan(values)
    return integer_column(np.where(known, values, 0).astype(np.int64), known)


def _ms(times_ns: FloatArray) -> pa.Array:
    """Whole ns as ms with their six decimals, exactly: the same digits under another scale."""
    ns = pc.cast(_whole(times_ns), pa.decimal128(_DIGITS, 0))
    return pa.Array.from_buffers(pa.decimal128(_DIGITS, 6), len(ns), ns.buffers(), offset=ns.offset)


def _text(text: str | None) -> str | None:
    return spreadsheet_text(text) if text else None
