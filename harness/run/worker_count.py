"""How many workers a run needs, and whether they get cores of their own. Pure: what the machine has is told."""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.host.cpus import Cores

MOST_WORKERS = 256
_REQUEST_S = (
    300e-6  # CPU of a worker for a request and for a response; measured about half, so that a slower machine holds, too
)
_RESPONSE_S = 60e-6
_BUSY_SHARE = 0.35  # of a core: a loop that is busier makes arrivals wait for each other
_IN_FLIGHT_EACH = 256  # where no rate is known; so many that end together hold a loop for some 30 ms
_SPARE_CORES = 2  # for everything else, before a worker gets one of its own


@dataclass(frozen=True, slots=True)
class Demand:
    """What a load asks of the client. ``requests_per_s`` is None where the target decides it, as in a closed loop.

    ``in_flight`` is how many requests there can be at once, ``at_most`` how many workers can share the load.
    """

    requests_per_s: float | None
    responses_a_request: float
    in_flight: int
    at_most: int


@dataclass(frozen=True, slots=True)
class Workers:
    """How many, why so many, and their cores, one each; empty where they share all."""

    count: int
    why: str
    pinned_cores: tuple[int, ...] = ()


def choose_workers(demand: Demand, cores: Cores, target_is_here: bool) -> Workers:
    """As many workers as keep each at a third of a core, no more than the machine has room for."""
    if demand.requests_per_s is None:
        wanted = math.ceil(demand.in_flight / _IN_FLIGHT_EACH)
        need = f"up to {demand.in_flight:,} in flight, {_IN_FLIGHT_EACH} a worker"
    else:
        busy = demand.requests_per_s * (_REQUEST_S + demand.responses_a_request * _RESPONSE_S)
        wanted = math.ceil(busy / _BUSY_SHARE)
        need = f"{demand.requests_per_s:,.4g} requests/s keep {busy:.2f} of a core busy"
    room = max(1, math.floor(cores.available / 2) if target_is_here else math.floor(cores.available) - 1)
    beside = "the target shares" if target_is_here else "there are"
    count = max(1, min(wanted, room, demand.at_most, MOST_WORKERS))
    if count == wanted:
        return Workers(count, need)
    if count == demand.at_most:
        return Workers(count, f"{need}; more than {count} should not share this load")
    return Workers(count, f"{need}, which wants {wanted}; {beside} {cores.available:.3g} cores")


def pin(workers: Workers, cores: Cores, target_is_here: bool, asked: bool | None) -> Workers:
    """Give each worker a core of its own: where ``asked`` for, never where asked not to, else where cores are to spare.

    Raises ValueError where it was asked for and there are fewer cores than workers.
    """
    if asked is None:
        asked = not target_is_here and cores.available >= workers.count + _SPARE_CORES
    if not asked:
        return workers
    if workers.count > len(cores.ids):
        raise ValueError(f"{workers.count} workers cannot have a core each: there are {len(cores.ids)}")
    return Workers(workers.count, workers.why, _apart(cores)[: workers.count])


def _apart(cores: Cores) -> tuple[int, ...]:
    """The cores, those first that share no physical core with one before; from the last, since the first serve interrupts."""
    first: list[int] = []
    rest: list[int] = []
    used: set[int] = set()
    for core, siblings in sorted(zip(cores.ids, cores.siblings, strict=True), reverse=True, key=lambda pair: pair[0]):
        (rest if used & siblings else first).append(core)
        used |= siblings
    return (*first, *rest)
