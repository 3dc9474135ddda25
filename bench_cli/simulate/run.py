"""``bench simulate run``: what a measuring verb would measure, simulated."""

from __future__ import annotations

import click
import cloup

from bench_cli.declared import takes
from bench_cli.forwarded_options import FORWARDS_OPTIONS, run_arguments
from bench_cli.simulate.deployment_options import RunOptions, check_router
from bench_cli.simulate.measuring_verb import invoke


@cloup.command(
    name="run",
    context_settings=FORWARDS_OPTIONS,
    epilog="""\b
Examples:
  bench simulate run --model model.json token_norm_dist --request_rate 60 --isl 256 --osl 64
  bench simulate run --model model.json --replicas 4 --router least_outstanding trace conversations.csv
  bench simulate run --model model.json --autoscale scale.toml --replicas 2 trace conversations.csv
  bench simulate run --model model.json --prefill 2 --decode 3 --transfer_ms 5 token_norm_dist --request_rate 90 --isl 2000
  bench simulate run --model model.json dataset --concurrency 50 --num_requests 2000""",
)
@takes(RunOptions)
@run_arguments
@click.pass_context
def run(context: click.Context, options: RunOptions, arguments: tuple[str, ...]) -> int:
    """Simulate what a measuring verb with its options would measure, on one fitted server or several.

    The schedule is that of the real run, digest for digest, and the result is an ordinary run folder, marked as simulated,
    which report, why and compare read. 'bench compare' refuses it beside a measured run, unless --allow_simulated is given.

    Each number is shown with the model's error, too: 5 to 95 % over --draws of its constants, with the error that the fit had
    on what it was not fitted to. What lies beyond the fitted runs is named first. Options that only matter to a real server,
    as --url, have no effect.

    Not simulated: cancellations, early ends (--stop_if, --until), warm-up, and failures but those of --fail. Answers are as
    long as requested.
    """
    from bench_cli.simulate.carry_out import Simulating
    from bench_cli.simulate.deployment import read_simulated, replicas_of, with_changes

    simulated = with_changes(read_simulated(options.deployment, *replicas_of(options.replicas)), options)
    check_router(options, simulated.deployment)
    return invoke(context, arguments, Simulating(simulated).carry_out)
