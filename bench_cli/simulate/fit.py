"""``bench simulate fit``: make a model of a server from the records of its runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click
import cloup

from bench_cli.declared import SEED, Concern, option, required, takes
from bench_cli.outputs import check_folder, write_errors
from bench_cli.simulate.runs import runs_argument
from bench_errors import ExitStatus
from harness.host.blas_threads import one_blas_thread
from reports.render.plain_text import printable


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench simulate fit``."""

    output: Path = required("-o", type=click.Path(path_type=Path, dir_okay=False), help="File to write the model to (JSON).")
    step_log: tuple[Path, ...] = option(
        (),
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The step log of the embedded engine (bench serve --step_log): the law of the step is fitted to its rows, not to "
        "steps that are recovered from the arrivals of tokens. Repeatable; one may have the steps of several runs. Needs runs "
        "with --server_timings.",
    )
    seed: int = option(0, type=SEED, help="Seed of the simulations and of the bootstrap.")


@cloup.command(
    name="fit",
    epilog="""\b
Examples:
  bench simulate fit runs/<at half of the load> runs/<at most of the load> -o model.json
  bench simulate fit runs/<at half of the load> runs/<at most of the load> --step_log steps.csv -o model.json
  bench simulate validate --model model.json runs/<another>""",
)
@runs_argument
@takes(Options)
@one_blas_thread()
def fit(options: Options, runs: tuple[Path, ...]) -> int:
    """Fit a server to the records of streamed runs: arrivals, lengths and the arrivals of tokens. Nothing of the server's own
    is read but the log of its steps, with --step_log.

    Give two runs or more of the deployment, at different loads: the structure is chosen by what it predicts of a run that it
    was not fitted to. Their requests should be as long, and as many in flight, as those to be predicted; beyond that the model
    knows nothing, and says so.

    \b
    Fitted are:
      the engine's step     a constant, and a cost for each prompt token and each sequence; more terms where they help
      its admission         prompts mixed with decoding or first, batch limit, token budget, asynchronous scheduling
      the front end         one process: its delay, and its cost for each request, token and response
      the noise             residuals of steps, in blocks
    Each constant has a range of 95 %, by a bootstrap over blocks of the runs and what these differ by. With simulated
    servers they held 92 to 100 % of the true constants of a step, 89 to 100 % where steps are launched ahead.

    Findings that make a run doubtful material, as target_paused or machine_shared, are said first, and wherever the model is
    used. A run whose client was too late, or of which most requests failed, is refused.
    """
    from bench_cli.simulate.material import check_material, doubts_of, material_of, say
    from bench_cli.simulate.tables import model_text
    from simulator.fit import check_fittable
    from simulator.fit import fit as fit_runs
    from simulator.logged import logged_steps
    from simulator.model import write_model
    from simulator.observed import read_observed

    check_folder("--output", options.output)
    observed = [read_observed(path) for path in runs]
    check_fittable(observed)
    material = [material_of(path) for path in runs]
    say(material, lambda text: click.echo(printable(text), err=True))
    check_material(material)
    logged = logged_steps(observed, options.step_log) if options.step_log else None
    fitted = fit_runs(observed, options.seed, partial(click.echo, err=True), logged)
    model = replace(fitted, doubts=doubts_of(material))
    with write_errors("--output", options.output):
        write_model(model, options.output)
    click.echo(f"{model_text(model)}\n\nWritten: {printable(str(options.output))}")
    return ExitStatus.VALID
