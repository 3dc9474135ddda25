"""The report on a terminal: upstream's table row for row, then ours, then the findings."""

from __future__ import annotations

from tabulate import tabulate

from reports.metrics import Metrics, UpstreamTable
from reports.plain_text import printable
from reports.prose import describe, describe_calibration, describe_run, verdict
from reports.rows import (
    SLIP_COLUMNS,
    WINDOW_COLUMNS,
    guard_note,
    interval_rows,
    latency_rows,
    rate_rows,
    slip_by_worker_rows,
    slip_over_time_rows,
    tail_rows,
    upstream_rows,
    window_rows,
)
from reports.run_report import RunReport
from reports.statistics import Distribution
from reports.tables import Table, cell_text
from reports.watched_tables import client_tables, server_tables

_UNKNOWN = "–"
_TOO_FEW = "*"


def render(report: RunReport) -> str:
    """The whole text, without a trailing newline."""
    metrics = report.metrics
    parts = [
        describe_run(report),
        _upstream(metrics.upstream),
        _latencies(metrics),
        _intervals(metrics),
        _tails(metrics),
        _rates(metrics),
        _windows(metrics),
        _slip(metrics),
        _failures(metrics),
        _watched(report),
        describe_calibration(report),
        verdict(report),
        *(f"{f.severity.value:>8}  {describe(f)}\n          {f.advice}" for f in report.findings),
    ]
    return "\n\n".join(part for part in parts if part)


def _upstream(table: UpstreamTable) -> str:
    rows = [(name, _number(value)) for name, value in upstream_rows(table)]
    return tabulate(
        rows, headers=("Stat (upstream's: latency from the send)", "Value"), colalign=("left", "right"), disable_numparse=True
    )


def _latencies(metrics: Metrics) -> str:
    headers = ("ms", "mean", "p50", "p90", "p95", "p99", "max", "n")
    rows = [_row(name, distribution) for name, distribution in latency_rows(metrics)]
    table = tabulate(rows, headers=headers, colalign=("left", *["right"] * 7), disable_numparse=True)
    note = guard_note(metrics)
    return table if note is None else f"{table}\n{_TOO_FEW} {note}."


def _row(name: str, d: Distribution | None) -> tuple[str, ...]:
    if d is None:
        return (name, *[_UNKNOWN] * 7)
    p50, p90, p95, p99, largest = (
        "failed" if value is None else f"{value:.2f}" for value in (d.p50, d.p90, d.p95, d.p99, d.max)
    )
    return (name, f"{d.mean:.2f}", p50, p90, p95, p99 if d.supports(0.99) else _TOO_FEW + p99, largest, f"{d.n:,}")


def _intervals(metrics: Metrics) -> str:
    headers = ("95 % intervals, ms", "mean", "p50", "p99")
    rows = interval_rows(metrics)
    return tabulate(rows, headers=headers, colalign=("left", *["right"] * 3), disable_numparse=True) if rows else ""


def _tails(metrics: Metrics) -> str:
    rows = [(name, "failed" if value is None else f"{value:.2f}", interval) for name, value, interval in tail_rows(metrics)]
    headers = ("ms", "p99.9", "95 % interval")
    return tabulate(rows, headers=headers, colalign=("left", "right", "right"), disable_numparse=True) if rows else ""


def _rates(metrics: Metrics) -> str:
    rows = [(name, _number(value), interval) for name, value, interval in rate_rows(metrics)]
    headers = ("Rates", "value", "95 % interval")
    return tabulate(rows, headers=headers, colalign=("left", "right", "right"), disable_numparse=True)


def _windows(metrics: Metrics) -> str:
    rows = window_rows(metrics)
    if not rows:
        return ""
    lines = [(name, *map(_number, cells)) for name, cells in rows if not isinstance(cells, str)]
    table = tabulate(lines, headers=("Window", *WINDOW_COLUMNS), colalign=("left", *["right"] * 6), disable_numparse=True)
    return "\n".join([table, *(f"{name}: none, {reason}." for name, reason in rows if isinstance(reason, str))])


def _slip(metrics: Metrics) -> str:
    """By worker, where there are several; over time the p99 alone, in one line."""
    rows = [(name, *map(_number, cells)) for name, cells in slip_by_worker_rows(metrics)]
    headers = ("Slip by worker", *SLIP_COLUMNS)
    parts = [tabulate(rows, headers=headers, colalign=("left", *["right"] * 4), disable_numparse=True)] if rows else []
    over_time = [_number(cells[2]) for _, cells in slip_over_time_rows(metrics)]
    if len(over_time) > 1:
        parts.append(f"p99 slip (ms) in tenths of the run: {', '.join(over_time)}")
    return "\n".join(parts)


def _watched(report: RunReport) -> str:
    """What was seen of the client and of the server beside the requests."""
    return "\n\n".join(map(_table, (*client_tables(report), *server_tables(report))))


def _table(table: Table) -> str:
    rows = [tuple(printable(cell_text(cell)) for cell in row) for row in table.rows]
    alignment = ("left", *["right"] * (len(table.columns) - 1))
    return tabulate(rows, headers=table.columns, colalign=alignment, disable_numparse=True)


def _failures(metrics: Metrics) -> str:
    if not metrics.failed:
        return f"Failed: 0 of {metrics.scheduled:,} requests."
    kinds = ", ".join(f"{kind} {n:,}" for kind, n in metrics.failed_by_kind.items())
    return (
        f"Failed: {metrics.failed:,} of {metrics.scheduled:,} requests ({kinds}). "
        "Percentiles of TTFT and E2E latency\ncount those that the target failed as slower than every success."
    )


def _number(value: float | int | None) -> str:
    if value is None:
        return _UNKNOWN
    return f"{value:d}" if isinstance(value, int) else f"{value:.2f}"
