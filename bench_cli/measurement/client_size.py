"""The client's size: how many worker processes a measurement gets, and on which cores."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import click

from bench_cli.measurement.client_options import ClientOptions
from harness.host.cpus import available_cores
from harness.run.worker_count import Demand, Workers, choose_workers, pin
from workloads.arrivals.processes import Arrivals, Recorded
from workloads.arrivals.rate_profile import Profiled
from workloads.schedule.load import AnyLoad, ClosedLoop, Sessions
from workloads.schedule.schedule import AnySchedule

_MIN_CEILING_PER_WORKER = 16  # with a smaller share of --max_concurrency, arrivals often wait while another worker has room


def load_demand(load: AnyLoad, schedule: AnySchedule, request_rate: float, streaming: bool) -> Demand:
    """The demand of ``load`` on the client; a negative ``request_rate`` sends everything at once."""
    requests = max(1, len(schedule))
    tokens = sum(request.output_tokens for request in schedule.requests) / requests
    responses = tokens if streaming else 1.0
    if isinstance(load, ClosedLoop):
        return Demand(None, responses, load.concurrency, load.concurrency)
    rate, when = _highest_rate(load.arrivals, request_rate)
    if isinstance(load, Sessions):
        return Demand(None if rate is None else rate * requests / load.count, responses, load.count, load.count, when)
    if load.max_concurrency is None:
        return Demand(rate, responses, requests, requests, when)
    in_flight = min(requests, load.max_concurrency)
    return Demand(rate, responses, in_flight, max(1, load.max_concurrency // _MIN_CEILING_PER_WORKER), when)


def _highest_rate(arrivals: Arrivals, request_rate: float) -> tuple[float | None, str]:
    """The most arrivals a second, None for all at once, and when that is, "" where the rate stays."""
    if isinstance(arrivals, Recorded):
        return arrivals.busiest_second, "in the busiest second"
    if isinstance(arrivals, Profiled):
        return arrivals.peak_rate_per_s, "at the peak"
    return (None if request_rate < 0 else request_rate), ""


def size_client(options: ClientOptions, demand: Demand, target_hosts: Sequence[str]) -> Workers:
    """The workers to start. Raises UsageError for --pin_workers where there are fewer cores than workers."""
    cores = available_cores()
    is_local = any(map(is_this_machine, dict.fromkeys(target_hosts)))
    workers = choose_workers(demand, cores, is_local) if options.workers is None else Workers(options.workers, "as requested")
    try:
        return pin(workers, cores, is_local, options.pin_workers)
    except ValueError as error:
        raise click.UsageError(f"--pin_workers: {error}") from error


def is_this_machine(host: str) -> bool:
    """Whether ``host`` names this machine: one of its addresses can be listened on."""
    try:
        candidates = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, protocol, _, address in candidates:
        try:
            with socket.socket(family, kind, protocol) as bound:
                bound.bind(address)
        except OSError:
            continue
        return True
    return False
