"""A sample of the client's own state. Apart from its table, so that a worker, which makes samples, does not load Arrow."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Whole = Annotated[int, Meta(ge=-(1 << 53), le=1 << 53)]


class ClientSample(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """``worker`` is None for the parent. Times are ns; what this system does not provide is None.

    ``time_ns`` counts from the run's start (before it: negative). The event loop woke ``lag_ns`` late. All other
    numbers are increments since the previous sample of the same process that has them; not every sample does. ``cpu_ns`` is
    that of the whole process; a worker's other numbers are those of its sending thread. A stall leaves one sample for every
    wake-up that it swallowed.

    The parent's sample: ``cpu_ns``, and ``busy_ns`` and ``steal_ns`` (given to others by the hypervisor) summed
    over the cores that the client may use.
    """

    time_ns: Whole
    worker: Whole | None
    lag_ns: Whole | None = None
    cpu_ns: Whole | None = None
    run_queue_wait_ns: Whole | None = None
    gc_pause_ns: Whole | None = None
    gc_longest_ns: Whole | None = None
    gc_count: Whole | None = None
    voluntary_switches: Whole | None = None
    involuntary_switches: Whole | None = None
    busy_ns: Whole | None = None
    steal_ns: Whole | None = None
