"""The client's size: how many worker processes a measurement gets, and on which cores."""

from __future__ import annotations

import socket
from collections.abc import Sequence

import click

from bench_cli.measurement.client_options import ClientOptions
from harness.host.cpus import available_cores
from harness.run.worker_count import Demand, Workers, choose_workers, pin
from workloads.arrivals.processes import Recorded
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
    if isinstance(load, Sessions):
        if isinstance(load.arrivals, Recorded):
            request_rate = load.arrivals.busiest_second
        return Demand(None if request_rate < 0 else request_rate * requests / load.count, responses, load.count, load.count)
    if isinstance(load.arrivals, Recorded):
        request_rate = load.arrivals.busiest_second
    if isinstance(load.arrivals, Profiled):
        request_rate = load.arrivals.peak_rate_per_s
    rate = None if request_rate < 0 else request_rate
    if load.max_concurrency is None:
        return Demand(rate, responses, requests, requests)
    return Demand(rate, responses, min(requests, load.max_concurrency), max(1, load.max_concurrency // _MIN_CEILING_PER_WORKER))


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
