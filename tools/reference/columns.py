"""The columns of a run's records and DataFrames, as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable

from harness.records.client_table import CLIENT_COLUMNS
from harness.records.column import Column
from harness.records.server_table import SERVER_COLUMNS
from harness.records.table import REQUEST_COLUMNS
from reports.run_data.columns import CHUNKS, COMPUTED, RECORDED, pandas_type
from tools.reference.markdown import table


def request_columns_markdown() -> str:
    """The columns of ``requests.parquet``."""
    return _table(REQUEST_COLUMNS)


def computed_columns_markdown() -> str:
    """The columns that ``run.requests`` has beside the recorded ones."""
    return _table(COMPUTED)


def chunk_columns_markdown() -> str:
    """The columns of ``run.chunks``."""
    return _table(CHUNKS)


def client_columns_markdown() -> str:
    """The columns of ``client.parquet``."""
    return _table(CLIENT_COLUMNS)


def server_columns_markdown() -> str:
    """The columns of ``server.parquet``."""
    return _table(SERVER_COLUMNS)


def _table(columns: Iterable[Column]) -> str:
    """One row for each column."""
    return "\n".join(table(("column", "DataFrame", "unit, clock", "meaning", "null means"), map(_row, columns))).strip()


def _row(column: Column) -> tuple[str, ...]:
    only_recorded = column in REQUEST_COLUMNS and column not in RECORDED
    dtype = "in `chunks`" if only_recorded else f"`{pandas_type(column)}`"
    return f"`{column.name}`", dtype, column.unit or "–", column.meaning, column.null or "–"
