"""Options of load and traffic: when requests are sent and for how long, and which requests they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bench_cli.declared import SEED, Concern, option, switch

if TYPE_CHECKING:
    from workloads.arrivals.law import ArrivalLaw
    from workloads.schedule.load import Load, OpenLoop

_OPEN_LOOP_OPTIONS = ("request_rate", "arrival", "rate_profile", "time_delay_dist", "burstiness", "max_concurrency")


def _read_stop_if(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Callback of --stop_if: the text, which is valid; the import is late, for it needs numpy. Raises BadParameter."""
    if text is None:
        return None
    from reports.criteria import parse_stop_if

    try:
        parse_stop_if(text)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None
    return text.strip()


def _read_until(context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """Callback of --until: the text as the grammar writes it. Raises BadParameter."""
    if text is None:
        return None
    from reports.criteria import parse_until

    try:
        return str(parse_until(text))
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


_SECONDS = click.FloatRange(min=0, min_open=True, max=1e6)


@dataclass(frozen=True)
class LoadOptions(Concern, title="Load (docs/explanation/load.md)"):
    """When requests are sent. ``concurrency`` None: an open loop; ``duration`` and ``ramp_up`` in seconds. ``until``
    and ``stop_if`` are texts of the grammar of ``reports/criteria.py``.
    """

    request_rate: float = option(
        -1.0, type=float, common=True, help="Requests per second; by default, -1, everything is sent at once."
    )
    arrival: str | None = option(
        None,
        metavar="LAW",
        show_default="exponential",
        help="Law of the gaps: exponential, constant, gamma:cv=2, weibull:cv=2 (standard deviation / mean) or bursts:size=20.",
    )
    rate_profile: str | None = option(
        None,
        metavar="PROFILE",
        help="A rate that changes: sine:amplitude=0.5,period=600s or on_off:on=10s,off=20s around --request_rate, or with "
        "rates of its own stages:5/s*60s,10/s*60s or piecewise:0s=5/s,60s=10/s.",
    )
    time_delay_dist: str = option(
        "exponential_dist",
        type=click.Choice(["exponential_dist", "constant", "gamma_dist"]),
        hidden=True,
        help="Upstream's spelling of --arrival.",
    )
    burstiness: float | None = option(
        None,
        type=float,
        show_default="1",
        hidden=True,
        help="Shape of gamma_dist's gaps: below 1 burstier than exponential gaps, above 1 more even. The rate stays.",
    )
    max_concurrency: int | None = option(
        None,
        type=click.IntRange(min=1),
        help="Limit of requests in flight: later arrivals wait their turn, and latency counts from the arrival.",
    )
    concurrency: int | None = option(
        None,
        type=click.IntRange(min=1),
        common=True,
        help="Closed loop instead of a rate: this many users, each sends its next request when its previous one ends.",
    )
    duration: float | None = option(
        None, type=_SECONDS, common=True, help="Seconds after which no request is sent; those in flight may end."
    )
    ramp_up: float | None = option(
        None, type=_SECONDS, help="Seconds in which the rate rises from 0 to --request_rate, or the users start."
    )
    until: str | None = option(
        None,
        metavar="PRECISION",
        callback=_read_until,
        help="End the run when a number is this precise, for example 'p99_ttft±5%' or 'mean_e2e+-2%': its 95 % interval is at "
        "most that wide. --num_requests or --duration is then the bound.",
    )
    stop_if: str | None = option(
        None,
        metavar="CRITERION",
        callback=_read_stop_if,
        help="End the run when this is true of it whatever its other requests do: 'p99_ttft>500ms' when more than 1 % of the "
        "planned ones are known to take longer, 'p70_ttft>500ms' at 30 %, 'failed_share>5%'.",
    )


@dataclass(frozen=True)
class TrafficOptions(Concern, title="Traffic"):
    """Which requests are sent. ``ignore_eos`` None: the workload's default."""

    num_requests: int | None = option(
        None,
        type=click.IntRange(min=1),
        show_default="the whole dataset or trace; 1000 random prompts",
        common=True,
        help="Number of requests.",
    )
    max_input_len: int | None = option(
        None, type=click.IntRange(min=1), help="Drop prompts with more tokens, and report how many."
    )
    ignore_eos: bool | None = switch(
        None,
        show_default="on for random tokens, but not by OpenAI's protocols; off for dataset",
        help="Generate exactly the requested number of tokens.",
    )
    seed: int = option(0, type=SEED, common=True, help="Seed of every random draw.")


def make_load(options: LoadOptions) -> Load:
    """The load that the options describe. Raises UsageError for options that contradict each other."""
    from workloads.arrivals.law import arrivals_at
    from workloads.arrivals.processes import AllAtOnce, RampedUp
    from workloads.schedule.load import ClosedLoop, OpenLoop

    if options.duration is not None and options.ramp_up is not None and options.ramp_up >= options.duration:
        raise click.UsageError(
            f"--ramp_up {options.ramp_up:g} leaves nothing of --duration {options.duration:g}; make it shorter"
        )
    if options.concurrency is not None:
        _check_closed_loop(options)
        return ClosedLoop(options.concurrency, options.duration, options.ramp_up or 0.0)
    if options.rate_profile is not None:
        return _profiled(options, options.rate_profile)
    arrivals = arrivals_at(options.request_rate, arrival_law(options))
    if isinstance(arrivals, AllAtOnce):
        for name, value in (("--duration", options.duration), ("--ramp_up", options.ramp_up)):
            if value is not None:
                raise click.UsageError(
                    f"{name} does nothing where everything is sent at once; give --request_rate or --concurrency"
                )
    if options.ramp_up is not None:
        arrivals = RampedUp(arrivals, options.ramp_up)
    return OpenLoop(arrivals, options.duration, options.max_concurrency)


def arrival_law(options: LoadOptions) -> ArrivalLaw:
    """The law of the gaps that --arrival, or upstream's options, describe. Raises UsageError and WorkloadError."""
    from workloads.arrivals.law import law_of_upstream, parse_law

    is_at_once = options.request_rate == -1 and options.rate_profile is None
    if options.arrival is None:
        if options.burstiness is not None and is_at_once:
            raise click.UsageError("--burstiness is the shape of gamma gaps; it needs gamma_dist and a --request_rate")
        if options.given("time_delay_dist") and is_at_once:
            law = options.time_delay_dist
            raise click.UsageError(f"--time_delay_dist {law}: gaps need a --request_rate, or a --rate_profile")
        return law_of_upstream(options.time_delay_dist, options.burstiness)
    for name in options.given("time_delay_dist", "burstiness"):
        raise click.UsageError(f"--{name} and --arrival both set the gaps; --arrival has all of the laws")
    if is_at_once:
        raise click.UsageError(f"--arrival {options.arrival}: gaps need a --request_rate, or a --rate_profile")
    return parse_law(options.arrival)


def _profiled(options: LoadOptions, text: str) -> OpenLoop:
    """The open loop with a rate that changes; a profile with rates of its own has an end, too."""
    from workloads.arrivals.law import arrivals_at
    from workloads.arrivals.rate_profile import Profiled, parse_profile
    from workloads.schedule.load import OpenLoop

    profile = parse_profile(text)
    if options.ramp_up is not None:
        raise click.UsageError(
            "--ramp_up and --rate_profile both change the rate; piecewise:0s=0/s,60s=10/s,600s=10/s is a ramp"
        )
    if profile.is_absolute and options.request_rate != -1:
        raise click.UsageError(
            f"--request_rate {options.request_rate:g} cannot be combined with {text}, which has its own rates"
        )
    if not profile.is_absolute and options.request_rate == -1:
        raise click.UsageError(f"--rate_profile {text} needs its mean rate: give --request_rate")
    rate_per_s = 1.0 if profile.is_absolute else options.request_rate
    arrivals = Profiled(arrivals_at(rate_per_s, arrival_law(options)), profile, rate_per_s)
    ends_s = [end_s for end_s in (profile.end_s, options.duration) if end_s is not None]
    return OpenLoop(arrivals, min(ends_s, default=None), options.max_concurrency)


def _check_closed_loop(options: LoadOptions) -> None:
    for name in options.given(*_OPEN_LOOP_OPTIONS):
        raise click.UsageError(f"--{name} cannot be combined with --concurrency: in a closed loop the answers set the rate")
