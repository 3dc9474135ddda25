"""``bench trace``: measure with the arrivals and lengths of a trace."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from harness.cli.engine_options import given
from harness.cli.measurement.options import measure_options, read_options
from harness.cli.workload_files import WorkloadPath, read_file, reader_options
from harness.host.blas_threads import one_blas_thread

if TYPE_CHECKING:
    from harness.cli.measurement.load_options import TrafficOptions
    from harness.cli.measurement.prepare import PreparedRequests
    from harness.cli.measurement.target import Target
    from workloads.load import Load
    from workloads.replay import Replay
    from workloads.workload import Workload

_OF_A_LAW = ("arrival", "rate_profile", "time_delay_dist", "burstiness", "ramp_up")
_OF_ARRIVALS = ("speed", "spread_ticks")


@dataclass(frozen=True)
class Trace:
    """The file ``path``, its ``workload`` by ``replay``, and the mean rate of the requests that are sent, None the trace's own.
    ``closed``: users send them, and the arrivals are left out.
    """

    path: Path
    workload: Workload
    replay: Replay
    rate_per_s: float | None
    closed: bool


@cloup.command(
    name="trace",
    short_help="Replay a trace: times, lengths, prefixes.",
    epilog="""\b
Examples:
  bench trace AzureLLMInferenceTrace_conv.csv --duration 60
  bench trace mooncake.jsonl --spread_ticks --request_rate 4 --num_requests 700 --max_input_len 3000""",
)
@cloup.argument(
    "path",
    metavar="FILE",
    type=WorkloadPath(),
    help="A trace of Azure, BurstGPT, Mooncake or Qwen-Bailian, or a workload.parquet; '-' is standard input.",
)
@cloup.option_group(
    "Trace",
    cloup.option("--start", type=click.FloatRange(min=0), default=0.0, help="Seconds of the trace to leave out."),
    cloup.option(
        "--speed",
        type=click.FloatRange(min=0, min_open=True, max=1e6),
        default=1.0,
        help="Replay so many times as fast; --request_rate stretches the trace to this mean rate instead.",
    ),
    cloup.option(
        "--spread_ticks",
        is_flag=True,
        help="Spread arrivals that the trace has rounded to a tick at random within it, in their order.",
    ),
)
@reader_options
@measure_options
def command(
    path: Path, start: float, speed: float, spread_ticks: bool, format_name: str | None, strict: bool, **shared: Any
) -> int:
    """Send requests at the arrival times of a trace, with random prompts of exactly its lengths.

    Equal block hashes of a trace give equal tokens, so that a prefix cache meets the prefixes that it met in production.
    --duration is of the run, in seconds after --speed. With --concurrency users send the requests in a closed loop instead.
    """
    with one_blas_thread():
        from harness.cli.measurement.measure import measure
    from workloads.replay import Replay
    from workloads.synthesis import has_prompts
    from workloads.workload_statistics import arrivals_of

    options = read_options(shared)
    for name in _OF_A_LAW:
        if given(name) and options.load.concurrency is None:
            raise click.UsageError(f"--{name} is of a law of arrivals; a trace has its own (--speed, --request_rate)")
    for name in _OF_ARRIVALS:
        if given(name) and options.load.concurrency is not None:
            raise click.UsageError(f"--{name} goes without --concurrency: in a closed loop the answers set the times")
    if given("speed") and given("request_rate"):
        raise click.UsageError("--speed and --request_rate both scale the trace's arrivals; give one of them")
    if given("request_rate") and not options.load.request_rate > 0:
        raise click.UsageError(f"--request_rate {options.load.request_rate:g}: a trace is stretched to a rate above 0")
    replay = Replay(start, speed, spread_ticks)
    workload = read_file(path, format_name, strict)
    if has_prompts(workload):
        raise click.UsageError(f"{path} has prompts of its own; bench dataset sends them")
    replayed = replay.replayed(workload, options.traffic.seed)
    rate = options.load.request_rate if given("request_rate") else None
    trace = Trace(path, replayed, replay, rate, closed=options.load.concurrency is not None)
    arrivals = arrivals_of(replayed)
    if not trace.closed and rate is None and arrivals is not None and arrivals.rate_per_s is not None:
        options = replace(options, load=replace(options.load, request_rate=arrivals.rate_per_s))
    return measure("trace", options, partial(_prepare_requests, trace))


def _prepare_requests(trace: Trace, traffic: TrafficOptions, load: Load, target: Target) -> PreparedRequests:
    from harness.cli.measurement.prepare import PreparedRequests
    from harness.cli.measurement.synthetic import synthesis_for
    from workloads.readers.source import name_of
    from workloads.replay import rows_of
    from workloads.workload_statistics import prefixes_of

    replayed = trace.workload if trace.rate_per_s is not None else _within(trace, load)
    drawn = synthesis_for(trace.path, traffic, target).requests(replayed, _most(trace, traffic, load))
    sent = rows_of(replayed, drawn.kept)
    sharing = prefixes_of(sent)
    if sharing is not None:
        click.echo(f"Shared prefixes: an infinite prefix cache would have {sharing.share:.1%} of the prompt tokens.", err=True)
    return PreparedRequests(
        requests=drawn.requests,
        description=f"{len(drawn.requests):,} requests of {name_of(trace.path).name}",
        parameters={
            "trace": str(trace.path),
            "format": sent.facts.format,
            "rejected_rows": sent.facts.rejected_rows,
            "synthetic": True,
            "workload_digest": sent.digest,
            "shared_prefix_limit": None if sharing is None else sharing.share,
            **asdict(trace.replay),
            "rate_per_s": trace.rate_per_s,
        },
        dropped_too_long=drawn.dropped_too_long,
        load=None if trace.closed else _own_load(sent, load, trace.rate_per_s),
    )


def _within(trace: Trace, load: Load) -> Workload:
    """The rows that arrive within --duration, at least one."""
    import numpy as np

    if trace.closed or load.duration_s is None:
        return trace.workload
    times_ns = trace.workload.table["arrival_ns"].to_numpy()
    rows = max(1, int(np.searchsorted(times_ns, round(load.duration_s * 1e9))))
    return replace(trace.workload, table=trace.workload.table.slice(0, rows))


def _most(trace: Trace, traffic: TrafficOptions, load: Load) -> int | None:
    """The number of requests to draw: at a given rate, those of --duration."""
    if trace.rate_per_s is None or load.duration_s is None:
        return traffic.num_requests
    of_duration = math.ceil(trace.rate_per_s * load.duration_s) + 1
    return of_duration if traffic.num_requests is None else min(of_duration, traffic.num_requests)


def _own_load(sent: Workload, load: Load, rate_per_s: float | None) -> Load:
    from workloads.arrivals import Recorded
    from workloads.load import OpenLoop
    from workloads.replay import stretched

    assert isinstance(load, OpenLoop)
    times_ns = sent.table["arrival_ns"].to_numpy()
    times_ns = times_ns - times_ns[0] if rate_per_s is None else stretched(times_ns, rate_per_s)
    return OpenLoop(Recorded(tuple(times_ns.tolist())), load.duration_s, load.max_concurrency)
