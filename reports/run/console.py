"""The report on a terminal: upstream's table row for row, then ours, then the findings."""

from __future__ import annotations

from dataclasses import replace

from tabulate import tabulate

from reports.metrics.run_metrics import Metrics
from reports.render.plain_text import printable
from reports.render.tables import Table, cell_text
from reports.run.headline import describe_calibration, describe_run, verdict
from reports.run.rows import WINDOW_COLUMNS, guard_note, latency_rows, slip_over_time_rows, window_rows
from reports.run.tables import interval_table, latency_table, rate_table, slip_tables, tail_table, upstream_table
from reports.run.watched_tables import client_tables, server_tables
from reports.run_report import RunReport

_TOO_FEW = "*"


def render(report: RunReport) -> str:
    """The whole text, without a trailing newline."""
    metrics = report.metrics
    parts = [
        describe_run(report),
        _upstream(report),
        _latencies(report),
        _table(interval_table(report), "95 % intervals, ms"),
        _table(tail_table(report)),
        _table(rate_table(report), "Rates"),
        _windows(metrics),
        _slip(report),
        _failures(metrics),
        _watched(report),
        describe_calibration(report),
        verdict(report),
        *(f"{f.severity.value:>8}  {f.sentence}\n          {f.advice}" for f in report.findings),
    ]
    return "\n\n".join(part for part in parts if part)


def _upstream(report: RunReport) -> str:
    """Upstream's numbers as upstream prints them, without separators, for who reads them by a script."""
    table = upstream_table(report)
    rows = tuple((name, cell_text(value).replace(",", "")) for name, value in table.rows)
    return _table(replace(table, rows=rows), "Stat (upstream's: latency from the send)")


def _latencies(report: RunReport) -> str:
    """The percentiles; a p99 of too few values is marked, and the mark explained."""
    marked = {name for name, d in latency_rows(report.metrics) if d is not None and not d.supports(0.99)}
    table = latency_table(report)
    p99 = table.columns.index("p99")
    rows = tuple(
        (*row[:p99], _TOO_FEW + cell_text(row[p99]), *row[p99 + 1 :]) if row[0] in marked else row for row in table.rows
    )
    drawn, note = _table(replace(table, rows=rows)), guard_note(report.metrics)
    return drawn if note is None else f"{drawn}\n{_TOO_FEW} {note}."


def _windows(metrics: Metrics) -> str:
    rows = window_rows(metrics)
    if not rows:
        return ""
    there = tuple((name, *cells) for name, cells in rows if not isinstance(cells, str))
    table = _table(Table("windows", "Windows", ("Window", *WINDOW_COLUMNS), there))
    return "\n".join([table, *(f"{name}: none, {reason}." for name, reason in rows if isinstance(reason, str))])


def _slip(report: RunReport) -> str:
    """By worker, where there are several; over time the p99 alone, in one line."""
    parts = [_table(table, "Slip by worker") for table in slip_tables(report) if table.name == "slip_by_worker"]
    over_time = [cell_text(cells[2]) for _, cells in slip_over_time_rows(report.metrics)]
    if len(over_time) > 1:
        parts.append(f"p99 slip (ms) in tenths of the run: {', '.join(over_time)}")
    return "\n".join(parts)


def _watched(report: RunReport) -> str:
    """What was seen of the client and of the server beside the requests."""
    return "\n\n".join(map(_table, (*client_tables(report), *server_tables(report))))


def _table(table: Table, heading: str | None = None) -> str:
    """The table under its columns' names, the first of which may say what the table is of; nothing of no rows."""
    if not table.rows:
        return ""
    rows = [tuple(printable(cell_text(cell)) for cell in row) for row in table.rows]
    columns = table.columns if heading is None else (heading, *table.columns[1:])
    alignment = ("left", *["right"] * (len(columns) - 1))
    return tabulate(rows, headers=columns, colalign=alignment, disable_numparse=True)


def _failures(metrics: Metrics) -> str:
    if not metrics.failed:
        return f"Failed: 0 of {metrics.scheduled:,} requests."
    kinds = ", ".join(f"{kind} {n:,}" for kind, n in metrics.failed_by_kind.items())
    return (
        f"Failed: {metrics.failed:,} of {metrics.scheduled:,} requests ({kinds}). "
        "Percentiles of TTFT and E2E latency\ncount those that the target failed as slower than every success."
    )
