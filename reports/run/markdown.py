"""``report.md``: the run in short, for a pull request."""

from __future__ import annotations

from pathlib import Path

from reports.render.plain_text import escaped
from reports.render.tables import markdown_table
from reports.run.class_table import class_table
from reports.run.headline import describe_calibration, describe_run, verdict
from reports.run.simulated import simulation_table
from reports.run.tables import (
    arrival_law_table,
    failure_tables,
    gate_table,
    interval_table,
    latency_table,
    length_law_table,
    length_table,
    rate_table,
    stage_table,
)
from reports.run.target_table import target_table
from reports.run.watched_tables import client_tables, server_tables, times_tables, worker_tables
from reports.run_report import RunReport


def render_markdown(report: RunReport) -> str:
    """The whole text, ending with a newline."""
    findings = "\n".join(
        f"- **{finding.severity.value}**: {escaped(finding.sentence)} {escaped(finding.advice)} `{finding.code}`"
        for finding in report.findings
    )
    tables = [
        gate_table(report),
        latency_table(report),
        simulation_table(report),
        interval_table(report),
        rate_table(report),
    ]
    tables += [
        class_table(report),
        target_table(report),
        stage_table(report),
        arrival_law_table(report),
        length_law_table(report),
        length_table(report),
    ]
    tables += [*client_tables(report), *worker_tables(report), *times_tables(report), *server_tables(report)]
    tables += failure_tables(report)
    parts = [
        f"### {escaped(describe_run(report))}",
        f"**{escaped(verdict(report))}**",
        findings,
        *(markdown_table(table) for table in tables if table.rows),
        escaped(describe_calibration(report)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def write_markdown(report: RunReport, path: Path) -> None:
    """Write the file. Raises OSError."""
    path.write_text(render_markdown(report), encoding="utf-8")
