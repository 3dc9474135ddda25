"""``bench sweep``: one measurement over a grid of settings."""

from __future__ import annotations

import itertools
from pathlib import Path

import click
import cloup

from bench_errors import ExitStatus
from harness.cli.experiments.options import RUNS_A_VERB, run_options

_MOST_POINTS = 500


@cloup.command(
    name="sweep",
    short_help="Measure over rates, concurrency, lengths or engine settings.",
    context_settings=RUNS_A_VERB,
    epilog="""\b
Examples:
  bench sweep --over request_rate=2,4,8,16 dataset --num_requests 700
  bench sweep --over request_rate=4,8 --over batch_scheduler_policy=max_utilization,guaranteed_no_evict dataset""",
)
@cloup.option(
    "--over",
    "axes",
    multiple=True,
    required=True,
    metavar="OPTION=V1,V2,…",
    help="An option of the measuring verb and the values to give it; with several, every combination is run.",
)
@cloup.option("--repeats", type=click.IntRange(1, 1000), default=1, help="Runs of every point, in rounds.")
@cloup.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of the order, and of the first round's traffic.")
@run_options("sweep")
def command(
    axes: tuple[str, ...],
    repeats: int,
    seed: int,
    before_each: str | None,
    experiment_dir: Path | None,
    arguments: tuple[str, ...],
) -> int:
    """Measure every combination of the values of --over, in an order drawn by --seed, and show throughput against latency.
    Its folder gets sweep.html, with curves to question, and sweep.json, sweep.csv and sweep.md.

    Every run deploys the embedded pipeline anew. With --url nothing is restarted between runs, unless --before_each does.
    """
    from harness.cli.experiments.execute import carry_out, check_arguments, check_options, open_folder
    from harness.cli.experiments.plan import plan_runs
    from harness.records.experiment import PlannedArm
    from reports.sweep.console import render
    from reports.sweep.points import read_sweep
    from reports.sweep.writing import write_sweep

    check_arguments(arguments)
    points = [
        PlannedArm(" ".join(f"{name}={value}" for name, value in point), _options(point))
        for point in itertools.product(*map(_axis, axes))
    ]
    if len(points) > _MOST_POINTS:
        raise click.UsageError(f"--over: {len(points)} combinations are too many; at most {_MOST_POINTS}")
    for point in points:
        check_options(point.options, "--over")
    experiment = plan_runs("sweep", arguments, points, repeats, seed)
    folder = open_folder(experiment_dir, experiment)
    carry_out(experiment, folder, before_each)
    sweep = read_sweep(folder)
    click.echo(render(sweep))
    click.echo(f"\nSweep: {write_sweep(sweep, folder.path)}")
    return ExitStatus.VALID


def _axis(text: str) -> list[tuple[str, str]]:
    name, _, values = text.partition("=")
    name = name.strip().lstrip("-")
    given = [value.strip() for value in values.split(",")]
    if not name or not all(given) or len(set(given)) < len(given):
        raise click.BadParameter(f"{text!r}: write OPTION=V1,V2, such as request_rate=2,4,8", param_hint="--over")
    return [(name, value) for value in given]


def _options(point: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(itertools.chain.from_iterable((f"--{name}", value) for name, value in point))
