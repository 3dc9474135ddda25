"""The number of workers for a run, and whether each is pinned to a core. Pure: the machine's cores are a parameter."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.host.cpus import Cores

MAX_WORKERS = 256
# A worker's CPU time for a request and for a response: twice the measured times, so that they hold on a slower machine.
_REQUEST_S = 300e-6
_RESPONSE_S = 60e-6
_BUSY_SHARE = 0.35  # of a core: in a busier loop arrivals wait for each other
_IN_FLIGHT_EACH = 256  # where no rate is known; so many that end together block a loop for some 30 ms
_SPARE_CORES = 2  # left for everything else where workers are pinned


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand of a load on the client. ``requests_per_s`` is None where the target determines it, as in a closed loop.

    ``in_flight`` is the largest number of requests at once, ``at_most`` the largest number of workers that can share the load.
    ``when`` says when the rate is ``requests_per_s``, where it changes; else it is empty.
    """

    requests_per_s: float | None
    responses_a_request: float
    in_flight: int
    at_most: int
    when: str = ""


@dataclass(frozen=True, slots=True)
class Workers:
    """The number of workers, the reason for it, and their cores, one each; empty where they share all."""

    count: int
    reason: str
    pinned_cores: tuple[int, ...] = ()


def choose_workers(demand: Demand, cores: Cores, target_is_here: bool) -> Workers:
    """Enough workers to keep each at a third of a core, within the cores of the machine."""
    if demand.requests_per_s is None:
        needed = math.ceil(demand.in_flight / _IN_FLIGHT_EACH)
        reason = f"up to {demand.in_flight:,} in flight, {_IN_FLIGHT_EACH} a worker"
    else:
        busy = demand.requests_per_s * (_REQUEST_S + demand.responses_a_request * _RESPONSE_S)
        needed = math.ceil(busy / _BUSY_SHARE)
        when = f" {demand.when}" if demand.when else ""
        reason = f"{demand.requests_per_s:,.4g} requests/s{when} keep {busy:.2f} of a core busy"
    room = max(1, math.floor(cores.available / 2) if target_is_here else math.floor(cores.available) - 1)
    limit = "the target shares" if target_is_here else "there are"
    count = max(1, min(needed, room, demand.at_most, MAX_WORKERS))
    if count == needed:
        return Workers(count, reason)
    if count == demand.at_most:
        return Workers(count, f"{reason}; more than {count} should not share this load")
    return Workers(count, f"{reason}, which needs {needed}; {limit} {cores.available:.3g} cores")


def pin(workers: Workers, cores: Cores, target_is_here: bool, requested: bool | None) -> Workers:
    """Pin each worker to a core, as ``requested``; None pins where there are cores to spare.

    Raises ValueError where pinning is requested and there are fewer cores than workers.
    """
    if requested is None:
        requested = not target_is_here and cores.available >= workers.count + _SPARE_CORES
    if not requested:
        return workers
    if workers.count > len(cores.ids):
        raise ValueError(f"{workers.count} workers cannot have a core each: there are {len(cores.ids)}")
    return Workers(workers.count, workers.reason, _apart(cores)[: workers.count])


def _apart(cores: Cores) -> tuple[int, ...]:
    """The cores from the last on, since the first serve interrupts; further hyper-threads of a core come at the end."""
    first: list[int] = []
    rest: list[int] = []
    used: set[int] = set()
    for core, siblings in sorted(zip(cores.ids, cores.siblings, strict=True), reverse=True, key=lambda pair: pair[0]):
        (rest if used & siblings else first).append(core)
        used |= siblings
    return (*first, *rest)
