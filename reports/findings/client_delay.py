"""Why a client was late, by samples of its processes, and the remedy: more workers help only one that is short of CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from reports.metrics.client_health import ClientHealth

_STEAL_CORES = 0.05  # above which steal is the likely cause
_BUSY_SHARE = 0.80
_RUN_QUEUE_SHARE = 0.05  # of a worker's time: a thread that runs alone on a core waits for less than a hundredth
_EXPLAINS = 0.5  # of a delay: a pause at least this long explains it


class DelayCause(StrEnum):
    """The likely cause of a client's delays, in the order in which they are looked for."""

    UNKNOWN = "unknown"
    STEAL = "steal"
    COLLECTIONS = "garbage collection"
    BUSY = "CPU"
    DISPLACED = "other processes"
    LATE_LOOP = "late event loop"
    NOT_CPU = "not the CPU"
    LOST = "lost requests"  # of a rate that was not reached, and no delay: their sends are unknown


@dataclass(frozen=True, slots=True)
class Remedy:
    """``advice`` in one or two sentences, ``brief`` in one line of a terminal."""

    advice: str
    brief: str


REMEDIES: Mapping[DelayCause, Remedy] = MappingProxyType(
    {
        DelayCause.STEAL: Remedy(
            "The hypervisor gave the client's cores to others (steal); measure from a machine of its own.",
            "Client delayed by the hypervisor: measure from another machine",
        ),
        DelayCause.COLLECTIONS: Remedy(
            "Garbage collections stopped the client; use more --workers, so that each has less to collect.",
            "Client delayed by garbage collection: more --workers",
        ),
        DelayCause.BUSY: Remedy(
            "A worker used up its core; use more --workers on more cores, or a lower rate.",
            "A worker used up its core: more --workers, or a lower rate",
        ),
        DelayCause.DISPLACED: Remedy(
            "Other processes had the client's cores; give it cores of its own, away from the server and everything else.",
            "Client delayed by other processes: give it cores of its own",
        ),
        DelayCause.LATE_LOOP: Remedy(
            "The client's event loop woke late although no worker used up its core or waited for one, so more --workers do not "
            "help; look for pauses of the machine, for example of a virtual machine or by power saving, and measure again.",
            "Client woke late at low CPU: look for pauses of the machine",
        ),
        DelayCause.NOT_CPU: Remedy(
            "No worker used up its core, waited for one or woke late, so more --workers do not help; the tables of slip show "
            "which worker and which part of the run was late, for example at the start, while connections are being opened: "
            "--warmup_requests opens them before the run.",
            "Late sends at low CPU: see the slip over time (--full)",
        ),
        DelayCause.UNKNOWN: Remedy(
            "The cause of the delay was not recorded; give the client a core of its own, more --workers, or a lower rate.",
            "Late sends: a core for the client, more --workers or a lower rate",
        ),
    }
)
"""The remedy of each cause; UNKNOWN is for runs without the client's samples."""


def cause_of(client: ClientHealth | None, delay_ms: float) -> DelayCause:
    """The likely cause of delays of ``delay_ms``, by the samples of the client's processes."""
    if client is None:
        return DelayCause.UNKNOWN
    return likely_cause(
        delay_ms,
        steal_cores=client.steal_cores,
        gc_longest_ms=client.gc_longest_ms,
        cpu_share=None if client.busiest is None else client.busiest.cpu_share,
        run_queue_wait_share=client.run_queue_wait_share,
        lag_max_ms=None if client.lag is None else client.lag.max_ms,
    )


def likely_cause(
    delay_ms: float,
    *,
    steal_cores: float | None,
    gc_longest_ms: float | None,
    cpu_share: float | None,
    run_queue_wait_share: float | None,
    lag_max_ms: float | None,
) -> DelayCause:
    """The first cause for which there is evidence; None is unknown.

    ``cpu_share`` is that of the busiest worker, ``run_queue_wait_share`` the largest of any worker.
    """
    if (steal_cores or 0.0) > _STEAL_CORES:
        return DelayCause.STEAL
    if (gc_longest_ms or 0.0) > _EXPLAINS * delay_ms:
        return DelayCause.COLLECTIONS
    if (cpu_share or 0.0) > _BUSY_SHARE:
        return DelayCause.BUSY
    if (run_queue_wait_share or 0.0) > _RUN_QUEUE_SHARE:
        return DelayCause.DISPLACED
    if run_queue_wait_share is None or cpu_share is None:
        return DelayCause.UNKNOWN
    return DelayCause.LATE_LOOP if (lag_max_ms or 0.0) > _EXPLAINS * delay_ms else DelayCause.NOT_CPU
