"""The columns of a run's records and DataFrames, as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from bench_records.client_table import CLIENT_COLUMNS
from bench_records.column import Column
from bench_records.server_table import SERVER_COLUMNS
from bench_records.table import REQUEST_COLUMNS
from reports.run_data.columns import CHUNKS, COMPUTED, PHASES, RECORDED, pandas_type
from tools.reference.markdown import table

_IN_CHUNKS = [column for column in REQUEST_COLUMNS if column not in RECORDED]
_DESCRIBED = ("unit, clock", "meaning", "null means")


def request_columns_markdown() -> str:
    """The columns of ``requests.parquet``."""
    return _recorded_table(REQUEST_COLUMNS)


def client_columns_markdown() -> str:
    """The columns of ``client.parquet``."""
    return _recorded_table(CLIENT_COLUMNS)


def server_columns_markdown() -> str:
    """The columns of ``server.parquet``."""
    return _recorded_table(SERVER_COLUMNS)


def computed_columns_markdown() -> str:
    """The columns that ``run.requests`` has beside the recorded ones."""
    return _frame_table(computed.column for computed in COMPUTED)


def chunk_columns_markdown() -> str:
    """The columns of ``run.chunks``."""
    return _frame_table(CHUNKS)


def phase_columns_markdown() -> str:
    """The columns of ``run.phases``."""
    return _frame_table(PHASES)


def _recorded_table(columns: Iterable[Column]) -> str:
    """One row for each column of a file, with its types in Arrow and in the DataFrame."""
    rows = ((f"`{column.name}`", f"`{_arrow_type(column)}`", _frame_type(column), *_described(column)) for column in columns)
    return _lines(table(("column", "in the file", "DataFrame", *_DESCRIBED), rows))


def _frame_table(columns: Iterable[Column]) -> str:
    """One row for each column that a DataFrame alone has."""
    return _lines(
        table(
            ("column", "DataFrame", *_DESCRIBED),
            ((f"`{column.name}`", _frame_type(column), *_described(column)) for column in columns),
        )
    )


def _described(column: Column) -> tuple[str, ...]:
    return column.unit or "–", column.meaning, column.null or "–"


def _arrow_type(column: Column) -> str:
    if pa.types.is_dictionary(column.type):
        return f"dictionary of {column.type.value_type}"
    return f"list of {column.type.value_type}" if pa.types.is_list(column.type) else str(column.type)


def _frame_type(column: Column) -> str:
    return "in `chunks`" if column in _IN_CHUNKS else f"`{pandas_type(column)}`"


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines).strip() + "\n"
