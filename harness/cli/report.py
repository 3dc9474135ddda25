"""``bench report``: render a run again."""

from __future__ import annotations

from pathlib import Path

import click
import cloup

from bench_errors import ExitStatus
from harness.cli.measurement.options import refuse_unstreamed_objectives, slo_option

_FORMATS = ("console", "markdown", "json", "csv", "html")


@cloup.command(
    name="report",
    short_help="Render a run's report again.",
    epilog="""\b
Examples:
  bench report runs/<run>
  bench report runs/<run> --format markdown >> "$GITHUB_STEP_SUMMARY"
  bench report runs/<run> --plots figures""",
)
@cloup.argument("run", type=click.Path(path_type=Path), help="A run's folder.")
@cloup.option(
    "--format", "form", type=click.Choice(_FORMATS), default="console", show_default=True, help="What is printed on stdout."
)
@cloup.option(
    "--plots",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write each picture as PNG and SVG into this folder, fit for a paper.",
)
@slo_option
def command(run: Path, form: str, plots: Path | None, slo: tuple[str, ...]) -> int:
    """Read a run's records, write summary.json, requests.csv, report.md and report.html anew, and print one of them.

    With --slo, goodput is of these objectives instead of those that the run was asked for.
    """
    from harness.cli.measurement.report_run import show_run
    from harness.records.run_folder import RunFolder
    from reports.metrics.goodput import parse_objective
    from reports.render.plain_text import printable

    folder = RunFolder(run)
    refuse_unstreamed_objectives(slo, bool(folder.read_manifest().get("target", {}).get("streaming")))
    report = show_run(folder, plots, form, tuple(map(parse_objective, slo)) if slo else None)
    click.echo(f"\nReport: {printable(str(report.folder.html))}", err=form != "console")
    return ExitStatus.VALID if report.valid else ExitStatus.INVALID
