"""Files of a step log, row by row."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from serving.engines.step_log import COLUMNS

Row = tuple[int | str | None, ...]

OFFSET_NS = 1_795_306_986_682_515_898  # of the clocks of tests/reports/manifests.py
START_NS = 1_795_310_631_000_000_000 - OFFSET_NS  # of a run, on the monotonic clock


def ns(ms: float) -> int:
    return round(ms * 1e6)


def log_head(offset_ns: int = OFFSET_NS, version: int = 1) -> str:
    return "#" + json.dumps({"step_log": version, "realtime_minus_monotonic_ns": offset_ns})


def log_row(start_ms: float, took_ms: float, prefill: int | None, decode: int | None, kind: str = "batch") -> Row:
    """A step that began ``start_ms`` after the run."""
    sequences = (decode or 0) + bool(prefill)
    return (START_NS + ns(start_ms), ns(took_ms), kind, sequences, 0, prefill, decode, 0, 0, sequences)


def log_text(rows: Sequence[Row], head: str | None = None) -> str:
    cells = ("".join(("," if k else "") + ("" if cell is None else str(cell)) for k, cell in enumerate(row)) for row in rows)
    return "\n".join([head or log_head(), ",".join(COLUMNS), *cells, ""])


def write_log(path: Path, rows: Sequence[Row], head: str | None = None) -> Path:
    path.write_text(log_text(rows, head))
    return path
