"""``bench sweep``: one measurement over a grid of settings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import Concern, option, parsed, part, required, same, takes
from bench_cli.experiments.grid import axis, combinations
from bench_cli.experiments.options import SweepSeriesOptions
from bench_cli.forwarded_options import FORWARDS_OPTIONS, run_arguments
from bench_cli.measurement.output_options import CriteriaOptions, build_passes, check_undecided
from bench_errors import ExitStatus

if TYPE_CHECKING:
    from reports.criteria import HeldRequirement

_MAX_POINTS = 500
_INSTEAD = "--repeats measures each more than once"


def _parse_held(text: str) -> HeldRequirement:
    from reports.criteria import parse_held  # late, for it needs numpy

    return parse_held(text)


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench sweep``."""

    axes: tuple[str, ...] = required(
        "--over",
        multiple=True,
        metavar="OPTION=V1,V2,…",
        help="An option of the measuring verb and its values, separated by commas, or by ';' where a value has a comma. "
        "With several --over, every combination is a point.",
    )
    fail_if: tuple[HeldRequirement, ...] = option(
        (),
        metavar="CRITERION",
        callback=parsed(_parse_held),
        help="Exit with status 1 if the highest load that held meets this, for example 'held<20'. The limits of a point are "
        "--slo and --fail_if after the measuring verb. Repeatable.",
    )
    undecided: str = same(CriteriaOptions, "undecided")
    series: SweepSeriesOptions = part(SweepSeriesOptions)


@cloup.command(
    name="sweep",
    context_settings=FORWARDS_OPTIONS,
    epilog="""\b
Examples:
  bench sweep --over request_rate=2,4,8,16 dataset --num_requests 700 --repeat_dataset
  bench sweep --over request_rate=10,20,40 --fail_if 'held<20' token_norm_dist --slo 'p99_ttft<=300ms'
  bench sweep --over 'isl=constant:tokens=512;uniform:min=128,max=896' token_norm_dist --request_rate 10
  bench sweep --over request_rate=4,8 --over batch_scheduler_policy=max_utilization,guaranteed_no_evict dataset""",
)
@takes(Options)
@run_arguments
@click.pass_context
def command(context: click.Context, options: Options, arguments: tuple[str, ...]) -> int:
    """Measure every combination of the values of --over, in an order drawn by --seed, and show throughput against latency.
    The sweep's folder gets sweep.html, with interactive curves, and sweep.json, sweep.csv and sweep.md.

    A point held if its queue was steady, and the --slo and --fail_if of the measuring verb held; it is undecided if its
    requests are too few to show that. A sweep goes past the limit on purpose, so a point that fails does not fail the
    command; the sweep's own --fail_if judges the highest load that held.

    Every run deploys the embedded pipeline anew. With --url, the server is not restarted between runs; use --before_each
    to restart it.
    """
    from bench_cli.experiments.series import Series, run_series
    from reports.sweep.formats import SWEEP
    from reports.sweep.held import gates_of
    from reports.sweep.points import read_sweep

    check_undecided(options, options.fail_if)
    points = combinations(options.axes, _MAX_POINTS, _INSTEAD)
    if options.fail_if:
        _check_load(options.axes)
    folder = run_series(Series("sweep", "--over", options.series, arguments, context), points)
    sweep = read_sweep(folder, options.fail_if)
    click.echo(SWEEP.terminal_text(sweep))
    click.echo(f"\nSweep: {SWEEP.write_all(sweep, folder.path)}")
    results = ((str(gate.requirement), gate.status, gate.why) for gate in gates_of(sweep))
    return ExitStatus.VALID if build_passes(results, options.undecided) else ExitStatus.FAILED


def _check_load(axes: tuple[str, ...]) -> None:
    """Raises UsageError for a sweep without a highest load."""
    from reports.sweep.held import LOADS

    varied = [(name.replace("-", "_"), value) for text in axes for name, value in axis(text, _INSTEAD)]
    if len(axes) != 1 or any(name not in LOADS or not _is_positive(value) for name, value in varied):
        raise click.UsageError(
            f"--fail_if judges the highest load that held: give one --over, of {', '.join(LOADS)}, with numbers"
        )


def _is_positive(text: str) -> bool:
    try:
        return 0.0 < float(text) < math.inf
    except ValueError:
        return False
