"""``bench report``: render the reports of a recorded run again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import Concern, option, same, takes
from bench_cli.measurement.output_options import (
    CriteriaOptions,
    OutputOptions,
    all_criteria,
    check_criteria,
    check_objectives,
    check_undecided,
    gates_passed,
)
from bench_cli.searches import is_ranking, is_search, report_ranking, report_search
from bench_errors import ExitStatus
from harness.host.blas_threads import one_blas_thread

if TYPE_CHECKING:
    from reports.criteria import Criterion

_FORMATS = ("console", "markdown", "json", "csv", "html")


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench report``."""

    form: str = option("console", "--format", type=click.Choice(_FORMATS), show_default=True, help="What is printed on stdout.")
    full: bool = same(OutputOptions, "full")
    plots: Path | None = same(OutputOptions, "plots")
    slo: tuple[Criterion, ...] = same(CriteriaOptions, "slo")
    fail_if: tuple[str, ...] = same(CriteriaOptions, "fail_if")
    undecided: str = same(CriteriaOptions, "undecided")


@cloup.command(
    name="report",
    epilog="""\b
Examples:
  bench report runs/<run>
  bench report runs/<run> --full
  bench report runs/<run> --format markdown >> "$GITHUB_STEP_SUMMARY"
  bench report runs/<run> --plots figures""",
)
@cloup.argument("run", type=click.Path(path_type=Path), help="The folder of a run, or of a search for capacity.")
@takes(Options)
@one_blas_thread()
def command(options: Options, run: Path) -> int:
    """Read a run's records, write summary.json, requests.csv, report.md and report.html anew, and print one of them.

    With --slo or --fail_if, these criteria are judged instead of the run's own. The folder of a search gets the documents of
    'bench capacity' anew.
    """
    from bench_cli.measurement.show import ANSWER, FULL, show_run
    from bench_records.run_folder import RunFolder
    from reports.render.plain_text import printable

    slo, fail_if = options.slo, options.fail_if
    if options.full and options.form != ANSWER:
        raise click.UsageError(f"--full goes with --format {ANSWER}; the other formats have every number")
    check_undecided(options, fail_if)
    if is_search(run) or is_ranking(run):
        if slo or fail_if or options.full:
            raise click.UsageError("--slo, --fail_if and --full are for the report of a run; this is a search for capacity")
        return (report_search if is_search(run) else report_ranking)(run, options.form, options.plots)
    folder = RunFolder(run)
    check_objectives(slo, fail_if)
    check_criteria(slo, fail_if, bool(folder.read_manifest().target.streaming))
    report = show_run(folder, options.plots, FULL if options.full else options.form, all_criteria(slo, fail_if) or None)
    click.echo(f"Report: {printable(str(report.folder.html))}", err=options.form != "console")
    if not gates_passed(report, fail_if, options.undecided):
        return ExitStatus.FAILED
    return ExitStatus.VALID if report.valid else ExitStatus.INVALID
