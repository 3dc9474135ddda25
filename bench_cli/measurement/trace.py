"""``bench trace``: measure with the arrivals, lengths, prompts and conversations of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import cloup

from bench_cli.declared import Concern, option, part, takes
from bench_cli.measurement.load_options import make_load
from bench_cli.measurement.options import MeasureOptions
from bench_cli.measurement.own_lengths import OwnLengths, report_rows_without_text
from bench_cli.measurement.scaling_options import ScalingOptions
from bench_cli.measurement.sessions import TraceSessionOptions
from bench_cli.workload_files import ReaderOptions, WorkloadPath
from harness.host.blas_threads import one_blas_thread
from reports.render.counts import counted

if TYPE_CHECKING:
    from workloads.arrivals.replay import Replay
    from workloads.table.workload import Workload

_OF_A_LAW = ("arrival", "rate_profile", "time_delay_dist", "burstiness", "ramp_up")
_OF_ARRIVALS = ("speed", "spread_ticks")
_ANY_RATE = 1.0


@dataclass(frozen=True)
class TraceOptions(Concern, title="Trace"):
    """The window of the trace, in its seconds, and how it is replayed."""

    start: float = option(
        0.0,
        type=click.FloatRange(min=0, max=1e9),
        common=True,
        help="Second of the trace, in its own time, at which the run begins; --duration counts from there.",
    )
    speed: float = option(
        1.0,
        type=click.FloatRange(min=0, min_open=True, max=1e6),
        common=True,
        help="Replay this many times as fast; --request_rate stretches the trace to this mean rate instead.",
    )
    spread_ticks: bool = option(
        False, help="Spread arrivals that the trace has rounded to a tick at random within it, in their order."
    )


@dataclass(frozen=True)
class Options(Concern):
    """The options of ``bench trace``."""

    trace: TraceOptions = part(TraceOptions)
    reader: ReaderOptions = part(ReaderOptions)
    scaling: ScalingOptions = part(ScalingOptions)
    own_lengths: OwnLengths = part(OwnLengths)
    sessions: TraceSessionOptions = part(TraceSessionOptions)
    measure: MeasureOptions = part(MeasureOptions)


@cloup.command(
    name="trace",
    epilog="""\b
Examples:
  bench trace AzureLLMInferenceTrace_conv.csv --duration 60
  bench trace mooncake.jsonl --spread_ticks --request_rate 4 --num_requests 700 --max_input_len 3000
  bench trace mooncake.jsonl --num_requests 700 --prefix_factor 2
  bench trace BurstGPT_1.csv --duration 600 --sessions recorded""",
)
@cloup.argument(
    "path",
    metavar="FILE",
    type=WorkloadPath(),
    help="A trace of Azure, BurstGPT, Dynamo, Mooncake or Qwen-Bailian, timed prompts, or a workload.parquet; '-' is standard "
    "input.",
)
@takes(Options)
def command(options: Options, path: Path) -> int:
    """Send requests at the arrival times of a trace, with its own prompts, or with random ones of exactly its lengths.

    Equal block hashes of a trace give equal tokens, so that a prefix cache meets the prefixes that it met in production.
    With --sessions a turn of a conversation waits for the answer before it. --start and --duration are seconds of the trace,
    before --speed; at a --request_rate, and with --concurrency, where users send the requests in a closed loop, --duration
    counts seconds of the run.
    """
    with one_blas_thread():
        from bench_cli.measurement.measure import measure
    from bench_cli.measurement.file_requests import FileTraffic, TraceTimes, prepare_trace
    from workloads.arrivals.replay import Replay, rows_of

    shared, window = options.measure, options.trace
    _check_arrivals(shared)
    sessions = options.sessions.checked(shared)
    replay = Replay(window.start, window.speed, window.spread_ticks, _window_s(shared))
    scaling = options.scaling.scaling()
    workload = options.reader.read(path)
    report_rows_without_text(workload, path)
    _check_times(options, workload, path)
    options.own_lengths.check(workload)
    timed = replay.timed(workload, shared.traffic.seed)
    rows = whole_conversations(timed, replay)
    file = FileTraffic(
        path,
        replay.on_clock(rows_of(scaling.scaled(timed), rows)),
        replay.on_clock(rows_of(timed, rows)) if scaling.changes else None,
        scaling,
        options.own_lengths.lengths(),
        sessions,
        options.reader.field,
        rows[0],
    )
    times = TraceTimes(replay, shared.load.request_rate if shared.given("request_rate") else None)
    _report_silence(file.workload, shared)
    load = make_load(_with_own_rate(_on_the_clock(shared, replay), timed).load)
    return measure("trace", shared, load, partial(prepare_trace, file, times))


def _check_times(options: Options, workload: Workload, path: Path) -> None:
    """Raise UsageError where turns would be sent at recorded times, or scaled to a rate, that the trace does not have."""
    untimed = workload.facts.untimed_rows
    if not untimed:
        return
    by_clock = options.measure.load.concurrency is None
    lacking = f"{path}: {untimed:,} of {len(workload):,} requests have no time of their own, but wait for answers"
    if by_clock and options.sessions.sessions != "think_time":
        raise click.UsageError(f"{lacking}: give --sessions think_time")
    if by_clock and options.measure.given("request_rate"):
        raise click.UsageError(f"{lacking}, so the trace has no rate that --request_rate could scale; give --speed")
    if options.trace.given("start"):
        remedy = "; --duration cuts the end" if by_clock else ""
        raise click.UsageError(f"{lacking}, so what comes after --start is unknown{remedy}")


def whole_conversations(timed: Workload, replay: Replay) -> Sequence[int]:
    """The rows of the window. A workload with prompts loses the turns after one that comes before --start, since their prompts
    would lack its text. Raises WorkloadError where no row is left.
    """
    from workloads.elements.errors import WorkloadError
    from workloads.prompts.conversations import behind_their_parents
    from workloads.prompts.synthesis import has_prompts

    window = replay.window(timed)
    if not has_prompts(timed):
        return window
    kept = behind_their_parents(timed, window)
    if not kept:
        raise WorkloadError(f"--start {replay.start_s:g}: every turn in it belongs to a conversation that began before")
    if len(kept) < len(window):
        left_out = len(window) - len(kept)
        turns = counted(left_out, "turn is left out, since its", "turns are left out, since their")
        click.echo(f"{turns} conversation began before --start.", err=True)
    return kept


def _window_s(options: MeasureOptions) -> float | None:
    """The seconds of the trace that --duration selects; None where it limits the run, or is not given."""
    is_of_run = options.given("request_rate") or options.load.concurrency is not None
    return None if is_of_run else options.load.duration


def _on_the_clock(options: MeasureOptions, replay: Replay) -> MeasureOptions:
    """The options with the seconds that the window lasts in the run, if it has an end."""
    if replay.duration_s is None:
        return options
    return replace(options, load=replace(options.load, duration=replay.duration_s / replay.speed))


def _report_silence(replayed: Workload, options: MeasureOptions) -> None:
    """Print how long the run waits for its first request, from a second on."""
    first_s = replayed.table["arrival_ns"][0].as_py() / 1e9
    if first_s >= 1 and not options.given("request_rate") and options.load.concurrency is None:
        click.echo(f"The window begins with {first_s:,.1f} s without a request.", err=True)


def _check_arrivals(options: MeasureOptions) -> None:
    """Raise UsageError for options of arrivals that contradict those of the trace."""
    for name in options.given(*_OF_A_LAW):
        if options.load.concurrency is None:
            raise click.UsageError(
                f"--{name} belongs to a law of arrivals; a trace has its own times (--speed, --request_rate)"
            )
    for name in options.given(*_OF_ARRIVALS):
        if options.load.concurrency is not None:
            raise click.UsageError(f"--{name} cannot be combined with --concurrency: its answers set the times")
    if len(options.given("speed", "request_rate")) == 2:
        raise click.UsageError("--speed and --request_rate both scale the trace's arrivals; give one of them")
    if options.given("request_rate") and not options.load.request_rate > 0:
        raise click.UsageError(f"--request_rate {options.load.request_rate:g}: a trace is stretched to a rate above 0")


def _with_own_rate(options: MeasureOptions, timed: Workload) -> MeasureOptions:
    """The options with the trace's own mean rate where none is given, so that --duration has one. A trace without a rate, since
    its turns wait for answers or all arrive at once, gets any: its times set the arrivals.
    """
    from workloads.table.statistics import arrivals_of

    if options.load.concurrency is not None or options.given("request_rate"):
        return options
    arrivals = arrivals_of(timed)
    rate_per_s = None if arrivals is None else arrivals.rate_per_s
    return replace(options, load=replace(options.load, request_rate=rate_per_s or _ANY_RATE))
