"""How many client processes a measurement gets, and on which cores, from its options, its load and the machine."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import click

from harness.cli.measurement.options import MeasureOptions
from harness.host.cpus import available_cores
from harness.run.worker_count import Demand, Workers, choose_workers, pin
from workloads.load import ClosedLoop, Load
from workloads.schedule import AnySchedule

_ROOM_EACH = 16  # of a ceiling that is dealt out: with less, arrivals often wait while another worker has room


def check_size(options: MeasureOptions) -> None:
    """Raises click's UsageError for a number of workers that cannot share the load, or the cores."""
    if options.workers is None:
        return
    for name, limit in (("--concurrency", options.concurrency), ("--max_concurrency", options.max_concurrency)):
        if limit is not None and options.workers > limit:
            raise click.UsageError(f"--workers {options.workers} cannot share {name} {limit}; give no more workers than that")
    if options.pin_workers and options.workers > (cores := len(available_cores().ids)):
        raise click.UsageError(f"--pin_workers: {options.workers} workers cannot have a core each, there are {cores}")


def size_client(options: MeasureOptions, load: Load, schedule: AnySchedule, streaming: bool, address: str) -> Workers:
    """The workers to start. Raises click's UsageError where they are to be pinned and cores are too few."""
    cores = available_cores()
    here = is_this_machine(_host(address))
    demand = _demand(options, load, schedule, streaming)
    workers = choose_workers(demand, cores, here) if options.workers is None else Workers(options.workers, "as asked")
    try:
        return pin(workers, cores, here, options.pin_workers)
    except ValueError as error:
        raise click.UsageError(f"--pin_workers: {error}") from error


def _demand(options: MeasureOptions, load: Load, schedule: AnySchedule, streaming: bool) -> Demand:
    requests = max(1, len(schedule))
    tokens = sum(request.output_tokens for request in schedule.requests) / requests
    responses = tokens if streaming else 1.0
    if isinstance(load, ClosedLoop):
        return Demand(None, responses, load.concurrency, load.concurrency)
    rate = None if options.request_rate < 0 else options.request_rate
    if load.max_concurrency is None:
        return Demand(rate, responses, requests, requests)
    return Demand(rate, responses, min(requests, load.max_concurrency), max(1, load.max_concurrency // _ROOM_EACH))


def _host(address: str) -> str:
    """Of a target's host:port, or of its URL."""
    return urlsplit(address if "://" in address else f"//{address}").hostname or ""


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
