"""``bench workload synthesize``: traffic made from descriptions of clients, or from a trace of which the lengths are scaled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import SEED, Concern, option, part, takes
from bench_cli.measurement.scaling_options import ScalingOptions, report_reuse, reuse_shares
from bench_cli.outputs import check_folder, written_output
from bench_cli.workload_files import ReaderOptions, WorkloadPath, workload_output
from bench_errors import ExitStatus
from harness.host.blas_threads import one_blas_thread
from reports.render.counts import counted
from reports.render.plain_text import printable

if TYPE_CHECKING:
    from workloads.table.workload import Workload

_OF_TRACES = {"format_name": "--format", "field": "--field", "strict": "--strict"}
_SECONDS = click.FloatRange(min=0, min_open=True, max=1e9)


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench workload synthesize``."""

    duration: float | None = option(
        None, type=_SECONDS, show_default="of a trace, all of it", help="Seconds of traffic; clients need it."
    )
    start: float = option(0.0, type=click.FloatRange(min=0, max=1e9), help="Second of the profile or trace to begin at.")
    seed: int = option(0, type=SEED, help="Seed of the arrivals and lengths of clients.")
    output: Path = workload_output()
    scaling: ScalingOptions = part(ScalingOptions)
    reader: ReaderOptions = part(ReaderOptions)


@cloup.command(
    name="synthesize",
    short_help="Make traffic from clients, or scale a trace.",
    epilog="""\b
Examples:
  bench workload synthesize ./servegen/m-small --duration 600 --start 36000 -o workload.parquet
  bench workload synthesize mooncake.jsonl --prefix_factor 2 --start 600 --duration 600 -o longer.parquet""",
)
@cloup.argument(
    "path",
    metavar="PATH",
    type=WorkloadPath(),
    help="Folder of clients of ServeGen (chunk-<i>-trace.csv, chunk-<i>-dataset.json), or one of its traces; or a trace of "
    "lengths or block hashes.",
)
@takes(Options)
@one_blas_thread()
def synthesize(options: Options, path: Path) -> int:
    """Write a workload that no file holds: requests drawn from ServeGen's clients, at the rate of each at each time and with
    lengths of its own, or a trace with other lengths and longer or shorter shared prefixes.
    """
    from workloads.readers.servegen import is_client_profile

    check_folder("--output", options.output)
    factors, start, duration = options.scaling.scaling(), options.start, options.duration
    if is_client_profile(path):
        for name, spelling in _OF_TRACES.items():
            if options.reader.given(name):
                raise click.UsageError(f"{spelling} says how a trace is read, and {path} has clients; leave it out")
        source, origin = _drawn_from_clients(path, duration, start, options.seed)
    else:
        source, origin = _read(path, options), path.name
    scaled = factors.scaled(source)
    if not is_client_profile(path):
        source, whole = _cut(source, start, duration), source
        scaled = source if scaled is whole else _cut(scaled, start, duration)
    if factors.changes:
        report_reuse(reuse_shares(scaled, source), factors)
        names = ", ".join(f"--{name} {factor:g}" for name, factor in factors.entries().items())
        scaled = replace(scaled, facts=replace(scaled.facts, source=f"{scaled.facts.source}, {names}"))
    with written_output("--output", options.output) as temporary:
        scaled.write(temporary)
    click.echo(f"{counted(len(scaled), 'request')} of {printable(origin)}. Written: {printable(str(options.output))}")
    return ExitStatus.VALID


def _drawn_from_clients(path: Path, duration: float | None, start: float, seed: int) -> tuple[Workload, str]:
    from workloads.arrivals.client_profiles import profile_workload
    from workloads.readers.servegen import read_client_profiles

    if duration is None:
        raise click.UsageError(f"{path} has clients, of which requests are drawn: give --duration")
    profiles = read_client_profiles(path)
    end = max(profile.rates[-1].end_s for profile in profiles)
    if start < end < start + duration:
        click.echo(f"The clients' rates end at second {end:g}: --duration {duration:g} is cut to {end - start:g} s.", err=True)
        duration = end - start
    return profile_workload(profiles, path.name, seed, duration, start), counted(len(profiles), "client")


def _read(path: Path, options: Options) -> Workload:
    if options.given("seed"):
        raise click.UsageError(f"--seed draws requests of clients, and {path} has requests of its own; leave it out")
    workload = options.reader.read(path)
    if workload.facts.untimed_rows and options.start:
        untimed = f"{workload.facts.untimed_rows:,} of {len(workload):,} requests have no time of their own"
        raise click.UsageError(f"{path}: {untimed}, so what comes after --start is unknown; --duration cuts the end")
    return workload


def _cut(workload: Workload, start_s: float, duration_s: float | None) -> Workload:
    """The rows that arrive within the time, as ``bench trace`` sends them, with their arrivals from its start on. At most those
    that wait for others have no time of their own.
    """
    from bench_cli.measurement.trace import whole_conversations
    from workloads.arrivals.replay import Replay, rows_of

    if not start_s and duration_s is None:
        return workload
    replay = Replay(start_s, duration_s=duration_s)
    timed = replay.timed(workload, 0)
    cut = replay.on_clock(rows_of(timed, whole_conversations(timed, replay)))
    waiting = len(cut) - cut.table["parent"].null_count
    return replace(cut, facts=replace(cut.facts, untimed_rows=min(cut.facts.untimed_rows, waiting)))
