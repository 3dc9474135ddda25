"""Options of the load: when requests are sent, how many at once, for how long, and by how many workers."""

from __future__ import annotations

import click
import cloup

from harness.run.worker_count import MAX_WORKERS


def _read_workers(context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    """A number of workers, or "auto", which is None."""
    if value == "auto":
        return None
    number: int = click.IntRange(1, MAX_WORKERS)(value, parameter, context)
    return number


_SECONDS = click.FloatRange(min=0, min_open=True, max=1e6)

load_group = cloup.option_group(
    "Load (docs/load.md)",
    cloup.option("--request_rate", type=float, default=-1.0, help="Requests per second; -1 sends everything at once."),
    cloup.option(
        "--time_delay_dist",
        type=click.Choice(["exponential_dist", "constant", "gamma_dist"]),
        default="exponential_dist",
        help="Distribution of the gaps between arrivals.",
    ),
    cloup.option(
        "--burstiness",
        type=float,
        show_default="1",
        help="Shape of gamma_dist's gaps: below 1 burstier than exponential gaps, above 1 more even. The rate stays.",
    ),
    cloup.option(
        "--max_concurrency",
        type=click.IntRange(min=1),
        help="Send no more while so many are in flight: later arrivals wait their turn, and latency counts from the arrival.",
    ),
    cloup.option(
        "--concurrency",
        type=click.IntRange(min=1),
        help="Closed loop instead of a rate: so many users, each sends the next request when the last has ended.",
    ),
    cloup.option("--duration", type=_SECONDS, help="Seconds after which nothing new is sent; what is in flight may end."),
    cloup.option(
        "--ramp_up", type=_SECONDS, help="Seconds in which the rate rises from 0 to --request_rate, or the users come."
    ),
    cloup.option("--num_requests", type=click.IntRange(min=1), help="How many requests; a dataset is not repeated."),
    cloup.option(
        "--workers",
        callback=_read_workers,
        default="auto",
        metavar="N|auto",
        help="Client processes; auto goes by the load and the machine's cores. N does not change what is sent.",
    ),
    cloup.option(
        "--pin_workers/--no_pin_workers",
        default=None,
        show_default="where cores are to spare",
        help="Give each client process a core of its own.",
    ),
    cloup.option(
        "--connections",
        type=click.IntRange(1, 1024),
        metavar="N",
        show_default="1, and more where the server limits streams",
        help="HTTP/2 connections of each client process.",
    ),
)
