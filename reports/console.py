"""The report on a terminal: upstream's table row for row, then ours, then the findings."""

from __future__ import annotations

from tabulate import tabulate

from reports.metrics import Metrics, UpstreamTable
from reports.prose import describe, describe_calibration, describe_run, verdict
from reports.rows import WINDOW_COLUMNS, interval_rows, latency_rows, rate_rows, upstream_rows, window_rows
from reports.run_report import RunReport
from reports.statistics import Distribution
from reports.tables import Table, cell_text
from reports.watched_rows import watched_tables

_UNKNOWN = "–"


def render(report: RunReport) -> str:
    """The whole text, without a trailing newline."""
    metrics = report.metrics
    parts = [
        describe_run(report),
        _upstream(metrics.upstream),
        _latencies(metrics),
        _intervals(metrics),
        _rates(metrics),
        _windows(metrics),
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
    return tabulate(rows, headers=headers, colalign=("left", *["right"] * 7), disable_numparse=True)


def _row(name: str, d: Distribution | None) -> tuple[str, ...]:
    if d is None:
        return (name, *[_UNKNOWN] * 7)
    tail = ("failed" if value is None else f"{value:.2f}" for value in (d.p50, d.p90, d.p95, d.p99, d.max))
    return (name, f"{d.mean:.2f}", *tail, f"{d.n:,}")


def _intervals(metrics: Metrics) -> str:
    headers = ("95 % intervals, ms", "mean", "p50", "p99")
    rows = interval_rows(metrics)
    return tabulate(rows, headers=headers, colalign=("left", *["right"] * 3), disable_numparse=True) if rows else ""


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


def _watched(report: RunReport) -> str:
    """What was seen of the client and of the server beside the requests."""
    return "\n\n".join(map(_table, watched_tables(report)))


def _table(table: Table) -> str:
    lines = [tuple(map(cell_text, row)) for row in table.rows]
    alignment = ["left" if table.is_text(column) else "right" for column in range(len(table.columns))]
    return tabulate(lines, headers=(table.title, *table.columns[1:]), colalign=alignment, disable_numparse=True)


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
