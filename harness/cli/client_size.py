"""How many client processes a measurement gets, and on which cores, from its options, its load and the machine."""

from __future__ import annotations

import socket

import click

from harness.cli.options import MeasureOptions
from harness.cores import available_cores
from harness.workers import Demand, Workers, choose_workers, pin
from workloads.load import ClosedLoop, Load
from workloads.schedule import AnySchedule


def size_client(options: MeasureOptions, load: Load, schedule: AnySchedule, streaming: bool, target_host: str) -> Workers:
    """The workers to start. Raises click's UsageError for a number that cannot share the load or the cores."""
    cores = available_cores()
    here = is_this_machine(target_host)
    demand = _demand(options, load, schedule, streaming)
    if options.workers is None:
        workers = choose_workers(demand, cores, here)
    else:
        workers = Workers(options.workers, "as asked")
        limit = options.concurrency or options.max_concurrency
        if limit is not None and workers.count > limit:
            name = "--concurrency" if options.concurrency is not None else "--max_concurrency"
            raise click.UsageError(f"--workers {workers.count} cannot share {name} {limit}; give no more workers than that")
    try:
        return pin(workers, cores, here, options.pin_workers)
    except ValueError as error:
        raise click.UsageError(f"--pin_workers: {error}") from error


def _demand(options: MeasureOptions, load: Load, schedule: AnySchedule, streaming: bool) -> Demand:
    requests = max(1, len(schedule))
    limit = load.concurrency if isinstance(load, ClosedLoop) else load.max_concurrency
    tokens = sum(request.output_tokens for request in schedule.requests) / requests
    return Demand(
        requests_per_s=None if isinstance(load, ClosedLoop) or options.request_rate < 0 else options.request_rate,
        responses_a_request=tokens if streaming else 1.0,
        in_flight=min(requests, limit or requests),
        at_most=min(requests, limit or requests),
    )


def is_this_machine(host: str) -> bool:
    """Whether ``host`` names this machine: one of its addresses can be listened on."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
        except OSError:
            continue
        return True
    return False
