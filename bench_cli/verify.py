"""``bench verify``: what differs now from the server, machine and versions of a recorded run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.forwarded_options import FORWARDS_OPTIONS
from bench_cli.repeated_run import (
    RepeatedRun,
    left_out_options,
    options_argument,
    remedy_for_contradictions,
    repeated_run,
    run_argument,
)
from bench_errors import ExitStatus

if TYPE_CHECKING:
    from bench_records.manifest import Manifest
    from reports.compare.surroundings import SurroundingsDifference

_WIDTH = 44  # characters of a value in the table


@cloup.command(
    name="verify",
    context_settings=FORWARDS_OPTIONS,
    epilog="""\b
Examples:
  bench verify runs/<run>
  bench verify runs/<run> --url new:8001
  bench verify runs/<run> && bench replay runs/<run>""",
)
@run_argument
@options_argument
@left_out_options
@click.pass_context
def command(context: click.Context, run: Path, options: tuple[str, ...], without: tuple[str, ...]) -> int:
    """Print what differs now from what a run recorded: the server's version, the configuration of every model, the engine's
    settings, this machine and the versions of the software. No request is sent.

    The server is that of the run; --url, and other options after RUN, win over the recorded ones. For a run without --url the
    embedded pipeline is deployed as the run deployed it. What a server does not say, or a run of before has not, is named.

    Exits with 0 where nothing differs, with 3 where something does, and with 1 where the server cannot be read.
    """
    from bench_records.run_folder import RunFolder
    from reports.compare.surroundings import surroundings_difference

    repeated = repeated_run(context, RunFolder(run), without, options)
    with remedy_for_contradictions(repeated, "verify"):
        now = _surroundings_now(repeated)
    difference = surroundings_difference(repeated.manifest, now)
    _show(difference, run)
    return ExitStatus.INVALID if difference.changed else ExitStatus.VALID


def _surroundings_now(repeated: RepeatedRun) -> Manifest:
    """What a run would record now. Raises UsageError, TargetError and ServingError."""
    from bench_cli.declared import call_of, read
    from bench_cli.measurement.embedded_options import check_embedded_options
    from bench_cli.measurement.manifest import surroundings
    from bench_cli.measurement.options import MeasureOptions
    from bench_cli.measurement.secrets import hidden_in_errors
    from bench_cli.measurement.target import open_target
    from bench_cli.measurement.target_options import check_target_options
    from bench_cli.signals import signals_as_interrupt

    options = read(MeasureOptions, repeated.context.params, call_of(repeated.context))
    check_target_options(options.target)
    check_embedded_options(options.embedded, options.target.url)
    target_options = replace(options.target, reset_prefix_cache=False)  # a look must change nothing
    with (
        TemporaryDirectory(prefix="bench-verify-") as folder,
        signals_as_interrupt(),
        hidden_in_errors(options.target.hidden),
        open_target(target_options, options.client, options.embedded, Path(folder) / "server.log") as target,
    ):
        return surroundings(options, target)


def _show(difference: SurroundingsDifference, run: Path) -> None:
    """The result on stdout."""
    from reports.render.console import console_text
    from reports.render.plain_text import printable
    from reports.render.tables import Table

    count = len(difference.changed)
    if count:
        click.echo(printable(f"{count:,} of {difference.compared:,} facts differ from {run}.") + "\n")
        rows = tuple((fact.what, fact.before, fact.now) for fact in difference.changed)
        table = Table("verify", "", ("what", "in the run", "now"), rows, sides="lll", widths=(None, _WIDTH, _WIDTH))
        click.echo(console_text((table,)))
    else:
        click.echo(printable(f"Nothing differs: all {difference.compared:,} facts are those of {run}."))
    if difference.unknown:
        click.echo(f"\nNot compared, since the run or the server does not say it: {'; '.join(difference.unknown)}.")
