"""``report.md``: the run in short, for a pull request."""

from __future__ import annotations

from pathlib import Path

from tabulate import tabulate

from reports.plain_text import printable
from reports.prose import describe, describe_calibration, describe_run, verdict
from reports.run_report import RunReport
from reports.run_tables import failure_tables, interval_table, latency_table, rate_table
from reports.tables import Table, cell_text
from reports.watched_tables import client_tables, server_tables

_MEANINGFUL = {ord(character): f"\\{character}" for character in "\\`*_{}[]<>#|!&~"} | {ord("@"): "@\u2060"}  # names nobody


def render_markdown(report: RunReport) -> str:
    """The whole text, ending with a newline."""
    findings = "\n".join(
        f"- **{finding.severity.value}**: {escaped(describe(finding))} {escaped(finding.advice)}" for finding in report.findings
    )
    tables = [latency_table(report), interval_table(report), rate_table(report)]
    tables += [*client_tables(report), *server_tables(report), *failure_tables(report)]
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


def escaped(text: str) -> str:
    """Text from outside that Markdown shows as it is."""
    return printable(text).translate(_MEANINGFUL)


def markdown_table(table: Table) -> str:
    """The table under its title; cells are text, never markup."""
    rows = [[escaped(cell_text(cell)) for cell in row] for row in table.rows]
    alignment = ["left" if table.is_text(column) else "right" for column in range(len(table.columns))]
    drawn = tabulate(rows, headers=list(table.columns), tablefmt="pipe", colalign=alignment, disable_numparse=True)
    return f"**{table.title}**\n\n{drawn}"
