"""``bench trend``: runs over time, each compared with a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import cloup

from bench_cli.conditions import ConditionOptions, allow_single, single_runs_refused
from bench_cli.declared import Concern, option, part, takes
from bench_cli.outputs import check_outputs, output_files, write_outputs
from bench_errors import ExitStatus
from harness.host.blas_threads import one_blas_thread


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench trend``."""

    baseline: Path | None = option(
        None,
        type=click.Path(path_type=Path, file_okay=False, exists=True),
        help="A run, or a folder of repeated runs, to compare the others with. Default: the first valid run.",
    )
    outputs: tuple[Path, ...] = output_files()
    conditions: ConditionOptions = part(ConditionOptions)
    allow_single: bool = allow_single()


@cloup.command(
    name="trend",
    epilog="""\b
Examples:
  bench trend runs --output trend.html
  bench trend nightly --baseline runs/release-1.0 --output trend.html --output trend.json
  bench trend nightly --baseline runs/release-1.0 --fail_if 'p99_ttft>300ms' --fail_if 'p99_ttft>+5%'""",
)
@cloup.argument(
    "folders",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
    help="Runs, or folders that contain runs at any depth.",
)
@takes(Options)
@one_blas_thread()
def command(options: Options, folders: tuple[Path, ...]) -> int:
    """Show every finished run in order of time: its metrics with their intervals, whether it is valid and comparable to the
    baseline, and the verdict on each metric, as in 'bench compare'.

    --slo and --fail_if are judged of the newest run that is comparable.

    Runs that are invalid or measured different work are listed apart, with the difference; runs that were cut are listed, too.
    """
    from reports.errors import NotComparableError
    from reports.render.plain_text import printable
    from reports.trend.formats import TREND
    from reports.trend.history import read_trend
    from reports.trend.tables import newer_text

    judged = options.conditions
    judged.check()
    check_outputs(options.outputs)
    try:
        trend = read_trend(folders, options.baseline, judged.conditions, judged.objectives)
    except NotComparableError as error:
        raise NotComparableError(f"--baseline: {error}") from error
    if judged.judges_changes and not options.allow_single and len(trend.baseline_runs) == 1:
        raise single_runs_refused(["the baseline", "the newest run"])
    click.echo(TREND.terminal_text(trend))
    write_outputs(trend, options.outputs, TREND)
    newest = trend.newest_compared
    if judged.fail_if and newest is None:
        raise click.ClickException("--fail_if: no run of the trend is comparable with the baseline, so none is judged")
    if newest is None:
        return ExitStatus.VALID
    passed = judged.passed(newest.conditions)
    if judged.fail_if and newer_text(trend):
        text = f"--fail_if judges {printable(newest.name)}. {newer_text(trend)}"
        if judged.undecided == "fail":
            text += " With --undecided fail, a run that is not judged fails the build."
            passed = False
        click.echo(text, err=True)
    return ExitStatus.VALID if passed else ExitStatus.FAILED
