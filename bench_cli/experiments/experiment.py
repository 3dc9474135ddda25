"""``bench experiment``: configurations in turn, then compared."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.conditions import ConditionOptions
from bench_cli.declared import Concern, option, part, takes
from bench_cli.experiments.options import FORWARDS_OPTIONS, SeriesOptions, run_arguments
from bench_errors import ExitStatus

if TYPE_CHECKING:
    from bench_records.experiment import PlannedArm


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench experiment``."""

    arms: tuple[str, ...] = option(
        (),
        "--arm",
        metavar="NAME=OPTIONS",
        help="A configuration: a name, and the options that it adds; the first is the baseline. Give at least two.",
    )
    conditions: ConditionOptions = part(ConditionOptions)
    series: SeriesOptions = part(SeriesOptions)


@cloup.command(
    name="experiment",
    context_settings=FORWARDS_OPTIONS,
    epilog="""\b
Example:
  bench experiment --arm 'wait=--batch_scheduler_policy guaranteed_no_evict' \\
      --arm 'evict=--batch_scheduler_policy max_utilization' --repeats 5 dataset --request_rate 10""",
)
@takes(Options)
@run_arguments
@click.pass_context
def command(context: click.Context, options: Options, arguments: tuple[str, ...]) -> int:
    """Run every arm once per block, in an order drawn anew for each block, so that drift does not decide; then compare.

    Every run deploys the embedded pipeline anew. With --url nothing is restarted between runs, unless --before_each does.
    All arms of a block send the same requests at the same times; every block draws others.
    The verdict is in the experiment's folder, as compare.html, compare.md, compare.csv and compare.json.
    """
    from bench_cli.experiments.series import Series, run_series
    from reports.compare.comparison import compare, read_experiment
    from reports.compare.console import render
    from reports.compare.writing import write_comparison
    from reports.errors import NotComparableError

    judged = options.conditions
    if judged.judges_changes and options.series.repeats == 1:
        raise click.UsageError("--fail_if judges a change by repeated runs; give --repeats 2 or more (5 is the default)")
    folder = run_series(Series("experiment", "--arm", options.series, arguments, context), _planned(options.arms))
    try:
        comparison = compare(read_experiment(folder, judged.objectives), judged.conditions, runs_paired=True)
    except NotComparableError as error:
        raise NotComparableError(f"{error} The option is that of: bench compare {folder.path} --allow_different") from error
    click.echo(render(comparison))
    click.echo(f"\nExperiment: {write_comparison(comparison, folder.path)}")
    return ExitStatus.VALID if judged.passed(comparison.conditions) else ExitStatus.FAILED


def _planned(arms: tuple[str, ...]) -> list[PlannedArm]:
    planned = [_arm(text) for text in arms]
    if len(planned) < 2 or len({arm.name for arm in planned}) < len(planned):
        raise click.UsageError("give at least two --arm NAME=OPTIONS, with different names")
    return planned


def _arm(text: str) -> PlannedArm:
    from bench_records.experiment import PlannedArm

    name, equals, options = text.partition("=")
    if not equals or not name.strip() or name.strip().startswith("-"):
        raise click.BadParameter(f"{text!r}: write NAME=OPTIONS, such as 'evict=--max_num_tokens 512'", param_hint="--arm")
    try:
        return PlannedArm(name.strip(), tuple(shlex.split(options)))
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: {error}", param_hint="--arm") from error
