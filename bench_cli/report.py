"""``bench report``: render the reports of a recorded run again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.measurement.output_options import (
    all_criteria,
    check_criteria,
    check_objectives,
    fail_if_option,
    full_option,
    gates_passed,
    plots_option,
    slo_option,
    undecided_option,
)
from bench_errors import ExitStatus
from harness.host.blas_threads import one_blas_thread

if TYPE_CHECKING:
    from reports.criteria import Criterion

_FORMATS = ("console", "markdown", "json", "csv", "html")


@cloup.command(
    name="report",
    short_help="Render a run's report again.",
    epilog="""\b
Examples:
  bench report runs/<run>
  bench report runs/<run> --full
  bench report runs/<run> --format markdown >> "$GITHUB_STEP_SUMMARY"
  bench report runs/<run> --plots figures""",
)
@cloup.argument("run", type=click.Path(path_type=Path), help="A run's folder.")
@cloup.option(
    "--format", "form", type=click.Choice(_FORMATS), default="console", show_default=True, help="What is printed on stdout."
)
@full_option
@plots_option
@slo_option
@fail_if_option
@undecided_option
@one_blas_thread()
def command(
    run: Path, form: str, full: bool, plots: Path | None, slo: tuple[Criterion, ...], fail_if: tuple[str, ...], undecided: str
) -> int:
    """Read a run's records, write summary.json, requests.csv, report.md and report.html anew, and print one of them.

    With --slo or --fail_if, these criteria are judged instead of the run's own.
    """
    from bench_cli.measurement.run_folder import ANSWER, FULL, show_run
    from bench_records.run_folder import RunFolder
    from reports.render.plain_text import printable

    if full and form != ANSWER:
        raise click.UsageError(f"--full goes with --format {ANSWER}; the other formats have every number")
    folder = RunFolder(run)
    check_objectives(slo, fail_if)
    check_criteria(slo, fail_if, bool(folder.read_manifest().get("target", {}).get("streaming")))
    report = show_run(folder, plots, FULL if full else form, all_criteria(slo, fail_if) or None)
    click.echo(f"Report: {printable(str(report.folder.html))}", err=form != "console")
    if not gates_passed(report, fail_if, undecided):
        return ExitStatus.FAILED
    return ExitStatus.VALID if report.valid else ExitStatus.INVALID
