"""``bench sweep``: one measurement over a grid of settings."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import click
import cloup

from bench_errors import ExitStatus
from harness.cli.experiments.options import FORWARDS_OPTIONS, SeriesOptions, series_options

if TYPE_CHECKING:
    from harness.records.experiment import PlannedArm

_MAX_POINTS = 500


@cloup.command(
    name="sweep",
    short_help="Measure over rates, concurrency, lengths or engine settings.",
    context_settings=FORWARDS_OPTIONS,
    epilog="""\b
Examples:
  bench sweep --over request_rate=2,4,8,16 dataset --num_requests 700 --repeat_dataset
  bench sweep --over request_rate=4,8 --over batch_scheduler_policy=max_utilization,guaranteed_no_evict dataset""",
)
@cloup.option(
    "--over",
    "axes",
    multiple=True,
    required=True,
    metavar="OPTION=V1,V2,…",
    help="An option of the measuring verb and its values. With several --over, every combination is an arm.",
)
@series_options("sweep", default_repeats=1)
def command(axes: tuple[str, ...], **shared: Any) -> int:
    """Measure every combination of the values of --over, in an order drawn by --seed, and show throughput against latency.
    The sweep's folder gets sweep.html, with interactive curves, and sweep.json, sweep.csv and sweep.md.

    Every run deploys the embedded pipeline anew. With --url nothing is restarted between runs, unless --before_each does.
    """
    from harness.cli.experiments.series import run_series
    from reports.sweep.console import render
    from reports.sweep.points import read_sweep
    from reports.sweep.writing import write_sweep

    folder = run_series("sweep", _points(axes), "--over", SeriesOptions(**shared))
    sweep = read_sweep(folder)
    click.echo(render(sweep))
    click.echo(f"\nSweep: {write_sweep(sweep, folder.path)}")
    return ExitStatus.VALID


def _points(axes: tuple[str, ...]) -> list[PlannedArm]:
    from harness.records.experiment import PlannedArm

    points = [
        PlannedArm(" ".join(f"{name}={value}" for name, value in point), _options(point))
        for point in itertools.product(*map(_axis, axes))
    ]
    if len(points) > _MAX_POINTS:
        raise click.UsageError(f"--over: {len(points)} combinations are too many; at most {_MAX_POINTS}")
    return points


def _axis(text: str) -> list[tuple[str, str]]:
    name, _, listed = text.partition("=")
    name = name.strip().lstrip("-")
    values = [value.strip() for value in listed.split(",")]
    if not name or not all(values) or len(set(values)) < len(values):
        raise click.BadParameter(f"{text!r}: write OPTION=V1,V2, such as request_rate=2,4,8", param_hint="--over")
    return [(name, value) for value in values]


def _options(point: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(itertools.chain.from_iterable((f"--{name}", value) for name, value in point))
