"""``bench simulate validate``: what a model predicts beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import SEED, Concern, option, part, required, takes
from bench_cli.outputs import check_folder, page_file, write_json_file, write_page_file
from bench_cli.simulate.deployment_options import ReplicaOptions, check_router
from bench_cli.simulate.runs import runs_argument
from bench_errors import ExitStatus
from harness.host.blas_threads import one_blas_thread
from reports.render.counts import counted
from reports.render.plain_text import printable

if TYPE_CHECKING:
    from bench_cli.simulate.validated import Validated

DEALERS = ("random", "rr", "least_outstanding", "p2c")  # routers that need to know no prompt and no session


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench simulate validate``."""

    model: Path = required(type=click.Path(path_type=Path, dir_okay=False), help="The model, of 'bench simulate fit'.")
    draws: int = option(
        10,
        type=click.IntRange(min=0, max=40),
        help="Draws of the model's constants, whose predictions give the range of each figure.",
    )
    replicas: ReplicaOptions = part(ReplicaOptions)
    router: str = option(
        DEALERS[0],
        type=click.Choice(DEALERS),
        help="How requests were dealt to them: at random, in turn (rr), to the one with the fewest requests in flight, or to "
        "the better of two different ones drawn at random (p2c).",
    )
    seed: int = option(0, type=SEED, help="Seed of the simulations.")
    html: Path | None = page_file()
    json: Path | None = option(
        None, type=click.Path(path_type=Path, dir_okay=False), help="Write all figures, with their ranges, to this file."
    )


@cloup.command(
    name="validate",
    epilog="""\b
Examples:
  bench simulate validate --model model.json runs/<another> runs/<a third>
  bench simulate validate --model model.json --html validation.html --json validation.json runs/<another>""",
)
@runs_argument
@takes(Options)
@one_blas_thread()
def validate(options: Options, runs: tuple[Path, ...]) -> int:
    """Predict runs that were not fitted, from their arrivals and lengths alone, beside what was measured: TTFT, TPOT, E2E
    latency and throughput. Then say what the model is good for.

    Runs of several replicas that share a router are predicted with --replicas and --router, or --prefill and --decode, from a
    model that was fitted to runs of one of them.

    Runs that lie beyond what was fitted, by requests in flight, rates or lengths, are named first and counted apart. The range
    of a figure, 5 to 95 %, holds the model's draws, the noise of seeds, and the error that the fit had on what it was not
    fitted to.
    """
    from bench_cli.simulate.deployment import replicas_of
    from bench_cli.simulate.fitted_model import read_fitted
    from bench_cli.simulate.material import material_of, say
    from bench_cli.simulate.validated import Simulations, Validated, validation_text
    from simulator.answers import Deployment
    from simulator.observed import check_measured, read_observed
    from simulator.routers import Router
    from simulator.validation import validate as validate_run

    check_folder("--html", options.html)
    check_folder("--json", options.json)
    model = read_fitted(options.model)
    replicas, decode = replicas_of(options.replicas)
    dealing = Deployment(model.server, replicas, Router(options.router), decode=decode)
    check_router(options, dealing)
    material, validations = [], []
    how = (options.draws, options.seed, dealing)
    for path in runs:
        observed = read_observed(path)
        check_measured(observed)
        material.append(material_of(path))
        say(material[-1:], lambda text: click.echo(printable(text), err=True))
        click.echo(f"simulating {observed.name}: {counted(len(observed), 'request')}", err=True)
        validations.append(validate_run(model, observed, *how))
    click.echo(validation_text(model, validations))
    doubts: list[str] = []
    say(material, doubts.append)
    _write(Validated(options.model.name, model, Simulations(*how), tuple(validations), tuple(doubts)), options)
    return ExitStatus.VALID


def _write(validated: Validated, options: Options) -> None:
    """Write the files of --html and --json. Raises ClickException."""
    if options.html is not None:
        from bench_cli.simulate.validated_page import validated_page

        write_page_file(options.html, validated_page(validated))
    if options.json is not None:
        from bench_cli.simulate.validated_json import document

        write_json_file(options.json, document(validated))
