"""The report on a terminal with ``--full``: upstream's table row for row, then ours, then the findings."""

from __future__ import annotations

from dataclasses import replace

from reports.metrics.run_metrics import Metrics
from reports.render.counts import counted
from reports.render.tables import Table, cell_text, console_table
from reports.run.class_table import console_class_table
from reports.run.headline import describe_calibration, describe_run, verdict
from reports.run.rows import WINDOW_COLUMNS, guard_note, slip_over_time_rows, unsupported_p99, window_rows
from reports.run.simulated import simulation_table
from reports.run.tables import (
    arrival_law_table,
    gate_table,
    interval_table,
    latency_table,
    length_law_table,
    rate_table,
    slip_tables,
    stage_table,
    tail_table,
    upstream_table,
)
from reports.run.target_table import console_target_table
from reports.run.watched_tables import client_tables, server_tables, worker_tables
from reports.run_report import RunReport

_TOO_FEW = "*"


def render(report: RunReport) -> str:
    """The whole text, without a trailing newline."""
    metrics = report.metrics
    parts = [
        describe_run(report),
        _upstream(report),
        _latencies(report),
        console_table(interval_table(report), "95 % intervals, ms"),
        console_table(tail_table(report)),
        _model_error(report),
        console_table(rate_table(report), "Rates"),
        console_class_table(report),
        console_target_table(report),
        console_table(stage_table(report), "Stages"),
        console_table(arrival_law_table(report), "Arrivals"),
        _windows(metrics),
        console_table(length_law_table(report), "Lengths, tokens"),
        _slip(report),
        _failures(metrics),
        _watched(report),
        describe_calibration(report),
        console_table(gate_table(report)),
        verdict(report),
        *(f"{f.severity.value:>8}  {f.sentence} [{f.code}]\n          {f.advice}" for f in report.findings),
    ]
    return "\n\n".join(part for part in parts if part)


def _model_error(report: RunReport) -> str:
    table = simulation_table(report)
    return f"{console_table(table, table.title)}\n{table.note}" if table.rows else ""


def _upstream(report: RunReport) -> str:
    """Upstream's numbers as upstream prints them, without separators, as scripts parse them."""
    table = upstream_table(report)
    rows = tuple((name, cell_text(value).replace(",", "")) for name, value in table.rows)
    return console_table(replace(table, rows=rows), "Stat (upstream's: latency from the send)")


def _latencies(report: RunReport) -> str:
    """The percentiles; a p99 of too few values is marked, and the mark explained."""
    marked = unsupported_p99(report.metrics)
    table = latency_table(report)
    p99 = table.columns.index("p99")
    rows = tuple(
        (*row[:p99], _TOO_FEW + cell_text(row[p99]), *row[p99 + 1 :]) if row[0] in marked else row for row in table.rows
    )
    drawn, note = console_table(replace(table, rows=rows)), guard_note(report.metrics)
    return drawn if note is None else f"{drawn}\n{_TOO_FEW} {note}."


def _windows(metrics: Metrics) -> str:
    rows = window_rows(metrics)
    if not rows:
        return ""
    present = tuple((name, *cells) for name, cells in rows if not isinstance(cells, str))
    table = console_table(Table("windows", "Windows", ("Window", *WINDOW_COLUMNS), present))
    return "\n".join([table, *(f"{name}: none, {reason}." for name, reason in rows if isinstance(reason, str))])


def _slip(report: RunReport) -> str:
    """Slip by worker, where there are several; over time p99 alone, in one line."""
    parts = [console_table(table, "Slip by worker") for table in slip_tables(report) if table.name == "slip_by_worker"]
    over_time = [cell_text(cells[2]) for _, cells in slip_over_time_rows(report.metrics)]
    if len(over_time) > 1:
        parts.append(f"p99 slip (ms) in tenths of the run: {', '.join(over_time)}")
    return "\n".join(parts)


def _watched(report: RunReport) -> str:
    """Tables of the client's health and the server's load."""
    return "\n\n".join(map(console_table, (*client_tables(report), *worker_tables(report), *server_tables(report))))


def _failures(metrics: Metrics) -> str:
    sent = metrics.scheduled - metrics.not_sent
    kinds = ", ".join(f"{kind} {n:,}" for kind, n in metrics.failed_by_kind.items())
    lines = [f"Not sent: {metrics.not_sent:,} of {counted(metrics.scheduled, 'request')}."] if metrics.not_sent else []
    lines += [f"Cancelled as planned: {metrics.withdrawn:,} of {counted(sent, 'request')} sent."] if metrics.withdrawn else []
    lines.append(f"Failed: {metrics.failed:,} of {counted(sent, 'request')} sent" + (f" ({kinds})." if kinds else "."))
    if metrics.failed:
        lines.append("Percentiles of TTFT and E2E latency count those that the target failed as slower than every success.")
    return "\n".join(lines)
