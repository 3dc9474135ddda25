"""``bench experiment``: configurations in turn, then compared."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import cloup

from bench_errors import ExitStatus
from harness.cli.experiments.options import RUNS_A_VERB, run_options


@cloup.command(
    name="experiment",
    short_help="Run configurations in turn, then compare them.",
    context_settings=RUNS_A_VERB,
    epilog="""\b
Example:
  bench experiment --arm 'wait=--batch_scheduler_policy guaranteed_no_evict' \\
      --arm 'evict=--batch_scheduler_policy max_utilization' --repeats 5 dataset --request_rate 10""",
)
@cloup.option(
    "--arm",
    "arms",
    multiple=True,
    metavar="NAME=OPTIONS",
    help="A configuration: a name, and the options that it adds; the first is the baseline. Give at least two.",
)
@cloup.option("--repeats", type=click.IntRange(1, 1000), default=5, help="Blocks; each has one run of every arm.")
@cloup.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the order, and of the first block's traffic.")
@run_options("experiment")
def command(
    arms: tuple[str, ...],
    repeats: int,
    seed: int,
    before_each: str | None,
    experiment_dir: Path | None,
    arguments: tuple[str, ...],
) -> int:
    """Run every arm once a block, in an order drawn anew for each block, so that drift does not decide; then compare.

    Every run deploys the embedded pipeline anew. With --url nothing is restarted between runs, unless --before_each does.
    All arms of a block send the same requests at the same times; every block draws others.
    The verdict lies in the experiment's folder, as compare.html, compare.md, compare.csv and compare.json.
    """
    from harness.cli.experiments.execute import carry_out, check_arguments, check_options, open_folder
    from harness.cli.experiments.plan import plan_runs
    from harness.records.experiment import PlannedArm
    from reports.compare.comparison import compare, read_experiment
    from reports.compare.console import render
    from reports.compare.writing import write_comparison

    planned = [PlannedArm(*_named(arm)) for arm in arms]
    if len(planned) < 2 or len({arm.name for arm in planned}) < len(planned):
        raise click.UsageError("give at least two --arm NAME=OPTIONS, with different names")
    check_arguments(arguments)
    for arm in planned:
        check_options(arm.options, f"--arm {arm.name}")
    experiment = plan_runs("experiment", arguments, planned, repeats, seed)
    folder = open_folder(experiment_dir, experiment)
    carry_out(experiment, folder, before_each)
    comparison = compare(read_experiment(folder), runs_paired=True)
    click.echo(render(comparison))
    click.echo(f"\nExperiment: {write_comparison(comparison, folder.path)}")
    return ExitStatus.VALID


def _named(arm: str) -> tuple[str, tuple[str, ...]]:
    name, equals, options = arm.partition("=")
    if not equals or not name.strip() or name.strip().startswith("-"):
        raise click.BadParameter(f"{arm!r}: write NAME=OPTIONS, such as 'evict=--max_num_tokens 512'", param_hint="--arm")
    try:
        return name.strip(), tuple(shlex.split(options))
    except ValueError as error:
        raise click.BadParameter(f"{arm!r}: {error}", param_hint="--arm") from error
