"""The load of a measurement: from the options to a Load, and its description for the manifest and the console."""

from __future__ import annotations

from typing import Any

import click

from harness.cli.measurement.options import MeasureOptions
from harness.run.worker_count import Workers
from workloads.load import Load
from workloads.schedule import AnySchedule

_OF_OPEN_LOOP = ("request_rate", "time_delay_dist", "burstiness", "max_concurrency")


def asked_load(options: MeasureOptions) -> Load:
    """The load that the options ask for. Raises click's UsageError for options that contradict each other."""
    from workloads.arrivals import AllAtOnce, RampedUp, arrivals_of
    from workloads.load import ClosedLoop, OpenLoop

    if options.duration is not None and options.ramp_up is not None and options.ramp_up >= options.duration:
        raise click.UsageError(
            f"--ramp_up {options.ramp_up:g} leaves nothing of --duration {options.duration:g}; make it shorter"
        )
    if options.concurrency is not None:
        _refuse_open_loop_options()
        return ClosedLoop(options.concurrency, options.duration, options.ramp_up or 0.0)
    arrivals = arrivals_of(options.request_rate, options.time_delay_dist, options.burstiness)
    if isinstance(arrivals, AllAtOnce):
        for name, value in (("--duration", options.duration), ("--ramp_up", options.ramp_up)):
            if value is not None:
                raise click.UsageError(
                    f"{name} does nothing where everything is sent at once; give --request_rate or --concurrency"
                )
    if options.ramp_up is not None:
        arrivals = RampedUp(arrivals, options.ramp_up)
    return OpenLoop(arrivals, options.duration, options.max_concurrency)


def _refuse_open_loop_options() -> None:
    context = click.get_current_context()
    for name in _OF_OPEN_LOOP:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} goes without --concurrency: users who wait for their answers set their own rate")


def described_load(options: MeasureOptions, load: Load, schedule: AnySchedule) -> dict[str, Any]:
    """The load for the manifest. ``ran_out``: the requests are too few for the duration, as far as can be told beforehand."""
    from workloads.load import ClosedLoop

    closed = isinstance(load, ClosedLoop)
    arriving = None if closed or load.duration_s is None else load.most_requests(options.seed, options.num_requests)
    return {
        "mode": "closed" if closed else "open",
        "max_concurrency": options.max_concurrency,
        "concurrency": options.concurrency,
        "duration_s": options.duration,
        "ramp_up_s": options.ramp_up,
        "prepared": len(schedule),
        "ran_out": arriving is not None and len(schedule) < arriving,
    }


def opening_line(load: Load, schedule: AnySchedule, workers: Workers) -> str:
    """What is about to be done, for stderr."""
    cores = f" on cores {', '.join(map(str, workers.pinned_cores))}" if workers.pinned_cores else ""
    by = f"{workers.count} {'worker' if workers.count == 1 else 'workers'}{cores} ({workers.reason})"
    return f"Sending {amount(load, len(schedule))} requests, {load}, by {by}; Ctrl-C stops and reports."


def amount(load: Load, prepared: int) -> str:
    """How many requests are sent of those that are ``prepared``, in words."""
    return f"up to {prepared:,}" if load.ends_by_the_clock else f"{prepared:,}"
