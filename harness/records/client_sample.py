"""One look of the client at itself."""

from __future__ import annotations

import msgspec


class ClientSample(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """``worker`` is None for the parent. Times are ns; what this system does not tell is None.

    ``time_ns`` counts from the run's start (before it: negative). The event loop should have woken ``lag_ns`` earlier than it
    did. All other numbers are increments since the sample before of the same process that has them, which not every one has.
    ``cpu_ns`` is the whole process's; a worker's others are those of the one thread that sends. A stall leaves one sample for
    every wake-up that it swallowed.

    The parent's sample: ``cpu_ns``, and ``busy_ns`` and ``steal_ns`` (what the hypervisor gave to others) summed
    over the cores that the client may use.
    """

    time_ns: int
    worker: int | None
    lag_ns: int | None = None
    cpu_ns: int | None = None
    run_queue_wait_ns: int | None = None
    gc_pause_ns: int | None = None
    gc_longest_ns: int | None = None
    gc_count: int | None = None
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    busy_ns: int | None = None
    steal_ns: int | None = None
