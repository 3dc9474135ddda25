"""``bench report``: render a run again."""

from __future__ import annotations

from pathlib import Path

import click
import cloup

from harness.cli.exit_status import ExitStatus


@cloup.command(name="report", short_help="Render a run's report again.", epilog="Example: bench report runs/<run>")
@cloup.argument("run", type=click.Path(path_type=Path), help="A run's folder.")
def command(run: Path) -> int:
    """Read a run's records, write summary.json, requests.csv and report.html anew, and print the tables."""
    from harness.records.run_folder import RunFolder
    from reports.console import render
    from reports.run_report import read_run
    from reports.writing import write_reports

    report = read_run(RunFolder(run))
    write_reports(report)
    click.echo(render(report))
    click.echo(f"\nReport: {report.folder.html}")
    return ExitStatus.VALID if report.valid else ExitStatus.INVALID
