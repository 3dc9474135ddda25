"""``perfetto.json``: the run as a Chrome trace, which ui.perfetto.dev opens; upstream's ``--dump_perfetto_trace``."""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from reports.metrics.requests import Requests
from reports.run_report import RunReport


def write_perfetto(report: RunReport, path: Path) -> None:
    """One complete event ("X", µs since the run's start) a successful request, with isl and osl as upstream names them.

    Requests are laid out on as few rows as overlap allows; a second event shows the time to the first token.
    """
    requests = report.all_requests
    rows = _rows(requests)
    events: list[Mapping[str, object]] = []
    for index, row in rows:
        sent_us, done_us = requests.sent_ns[index] / 1e3, requests.done_ns[index] / 1e3
        lengths = {"isl": _tokens(requests.input_tokens[index]), "osl": _tokens(requests.output_tokens[index])}
        events.append(_event(f"request {requests.index[index]}", sent_us, done_us - sent_us, row, lengths))
        if requests.has_tokens[index] and requests.first_token_ns[index] < requests.done_ns[index]:
            events.append(_event("to first token", sent_us, requests.first_token_ns[index] / 1e3 - sent_us, row, {}))
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n", encoding="utf-8")


def _rows(requests: Requests) -> list[tuple[int, int]]:
    """(request, row) for each success, in the order sent; a row is free again when its request is done."""
    busy: list[tuple[float, int]] = []  # (free again at ns, row), the earliest first
    rows: list[tuple[int, int]] = []
    for index in np.argsort(requests.sent_ns, kind="stable").tolist():
        if not requests.done[index]:
            continue
        free = bool(busy) and busy[0][0] <= requests.sent_ns[index]
        row = heapq.heappop(busy)[1] if free else len(busy)
        heapq.heappush(busy, (requests.done_ns[index], row))
        rows.append((index, row))
    return rows


def _event(name: str, start_us: float, duration_us: float, row: int, args: Mapping[str, int | None]) -> Mapping[str, object]:
    return {"name": name, "ph": "X", "ts": start_us, "dur": duration_us, "pid": "1", "tid": row, "args": args}


def _tokens(count: float) -> int | None:
    return None if np.isnan(count) else int(count)
