"""``requests.csv``: one row a request, for spreadsheets. The parquet file holds the same and every token's time."""

from __future__ import annotations

import csv
import math
from pathlib import Path

from reports.requests import Requests
from reports.run_report import RunReport

COLUMNS = (
    "index", "outcome", "scheduled_ms", "sent_ms", "first_token_ms", "last_token_ms", "done_ms",
    "input_tokens", "requested_output_tokens", "output_tokens", "error",
)  # fmt: skip


def write_csv(report: RunReport, path: Path) -> None:
    """Write the file; times are ms since the run's start, unknown cells are empty."""
    requests = report.requests
    times = (requests.scheduled_ns, requests.sent_ns, requests.first_token_ns, requests.last_token_ns, requests.done_ns)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for index in range(len(requests.outcome)):
            writer.writerow(
                [
                    index,
                    requests.outcome[index],
                    *(_ms(column[index]) for column in times),
                    *_tokens(requests, index),
                    _text(requests.errors[index]),
                ]
            )


def _ms(time_ns: float) -> str:
    return "" if math.isnan(time_ns) else f"{time_ns / 1e6:.6f}"


def _tokens(requests: Requests, index: int) -> list[str]:
    columns = (requests.input_tokens, requests.requested_output_tokens, requests.output_tokens)
    return ["" if math.isnan(column[index]) else str(int(column[index])) for column in columns]


def _text(error: str | None) -> str:
    """An error message; a leading ``=+-@`` would be run as a formula by a spreadsheet, so it gets an apostrophe."""
    text = (error or "").replace("\x00", "\ufffd")
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
