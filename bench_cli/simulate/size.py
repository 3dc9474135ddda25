"""``bench size``: how many replicas of a fitted server hold a workload."""

from __future__ import annotations

import click
import cloup

from bench_cli.declared import takes
from bench_cli.forwarded_options import FORWARDS_OPTIONS, run_arguments
from bench_cli.simulate.measuring_verb import invoke
from bench_cli.simulate.size_options import SizeOptions


@cloup.command(
    name="size",
    context_settings=FORWARDS_OPTIONS,
    epilog="""\b
Examples:
  bench size --model model.json --slo 'p99_ttft<=500ms' token_norm_dist --request_rate 300 --num_requests 5000
  bench size --model model.json --slo 'p99_ttft<=500ms' --slo 'p99_tpot<=50ms' --router least_outstanding trace day.csv

\b
Exit status: 0 a number of replicas holds, 1 none up to --max_replicas does, 2 usage.""",
)
@takes(SizeOptions)
@run_arguments
@click.pass_context
def command(context: click.Context, options: SizeOptions, arguments: tuple[str, ...]) -> int:
    """Find how many replicas of a fitted server hold a workload within limits, with confidence, by simulation: nothing is sent.

    The workload is that of a measuring verb: its rate or its trace, its lengths and its number of requests. The model does not
    know its constants exactly, nor is its structure right: each of --draws simulates with constants of its own, latencies
    longer or shorter by the error that the fit had on what it was not fitted to, and a schedule of its own seed. A number of
    replicas holds with 95 % if it holds in nearly all of them, and is excluded if it holds in nearly none.

    What lies beyond the fitted runs is said first. Give enough requests: of 1,000, a p99 rests on ten.
    """
    from bench_cli.limit_values import tiers_of
    from bench_cli.simulate.deployment import read_simulated
    from bench_cli.simulate.sized import Size
    from simulator.sizing import draws_needed

    tiers = tiers_of(options.limits.slo, options.limits.slo_preset)
    simulated = read_simulated(options.deployment, 1)
    needed = draws_needed(options.limits.confidence)
    if options.deployment.draws < needed:
        raise click.UsageError(f"--draws: a confidence of {options.limits.confidence:.4g} needs {needed} draws at least")
    sized = Size(simulated, tiers, options.limits.confidence, options.deployment.draws, options.max_replicas)
    return invoke(context, arguments, sized.carry_out)
