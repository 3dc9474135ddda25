"""Probes: a low-rate Poisson stream of small requests of fixed lengths beside a load, whose latency shows what the load does to
a user who asks for little. Everything about them is drawn from a seed of their own, so that the load is the same without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals.processes import Exponential, offsets_within
from workloads.elements.errors import Field, WorkloadError
from workloads.elements.random_streams import Stream, generator
from workloads.elements.request import PROBE, Request
from workloads.schedule.schedule import Schedule, SessionSchedule

_MOST_PROBES = 5_000_000


@dataclass(frozen=True, slots=True)
class ProbeStream:
    """Requests of ``input_tokens`` and ``output_tokens`` at ``rate_per_s``."""

    rate_per_s: float
    input_tokens: int
    output_tokens: int

    def __str__(self) -> str:
        return f"probes of {self.input_tokens} + {self.output_tokens} tokens at {self.rate_per_s:g}/s"


def probe_seed(seed: int) -> int:
    """The seed of all that is drawn for the probes of a run with ``seed``."""
    return int(generator(seed, Stream.PROBES).integers(2**63))


def probe_offsets_ns(stream: ProbeStream, schedule: Schedule | SessionSchedule, seed: int) -> NDArray[np.int64]:
    """When probes are due: from a gap after the beginning of the run until the last send of the load that has a time; shape
    [probes]. A trace's window may begin with silence, which is part of it, so there are probes in it, too. Raises WorkloadError
    for more than memory holds.
    """
    last_ns = max((offset_ns for offset_ns in schedule.offsets_ns if offset_ns is not None), default=0)
    if stream.rate_per_s * last_ns / 1e9 > _MOST_PROBES:
        raise WorkloadError(
            Field("probe_rate"),
            f" {stream.rate_per_s:g}: more than {_MOST_PROBES:,} probes in {last_ns / 1e9:,.4g} s; lower it",
        )
    from_first: NDArray[np.int64] = offsets_within(Exponential(stream.rate_per_s), last_ns / 1e9, probe_seed(seed))[1:]
    return from_first


def with_probes(
    schedule: Schedule | SessionSchedule, probes: Sequence[Request], offsets_ns: Sequence[int]
) -> Schedule | SessionSchedule:
    """``schedule`` with ``probes`` after its requests, which keep their numbers; ``offsets_ns`` are the probes', shape
    [probes].
    """
    requests = (*schedule.requests, *(replace(probe, traffic_class=PROBE) for probe in probes))
    if isinstance(schedule, Schedule):
        return replace(schedule, requests=requests, offsets_ns=(*schedule.offsets_ns, *offsets_ns))
    return replace(
        schedule,
        requests=requests,
        offsets_ns=(*schedule.offsets_ns, *offsets_ns),
        parents=(*schedule.parents, *[None] * len(probes)),
        think_times_ns=(*schedule.think_times_ns, *[0] * len(probes)),
        joins=(*schedule.joins, *[()] * len(probes)) if schedule.joins else (),
    )
