"""File descriptors: how many a client process will need, and raising its limit of them before the run.

The limit (RLIMIT_NOFILE, setrlimit(2)) is each process's own. A process may raise its soft limit up to the hard one, and
hands both on to the processes that it starts: the parent raises its own before it starts the workers.
"""

from __future__ import annotations

import resource
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from harness.clients.protocol import Client
from harness.errors import RunError
from workloads.schedule import AnySchedule, ClosedPart, OpenPart

_OWN_FILES = 64  # interpreter, event loop, journal, probes: some 20, and those of libraries
_FILES_A_WORKER = 8  # that the parent holds: pipes, the journal, the sentinel


@dataclass(frozen=True, slots=True)
class InFlight:
    """Requests of one worker in flight: so many there will be however fast the target is, and never more than ``at_most``."""

    surely: int
    at_most: int


@dataclass(frozen=True, slots=True)
class FileNeed:
    """Open files of one process: so many there will be, so many there could be; what for, and what else would help."""

    surely: int
    at_most: int
    purpose: str
    instead: str


def in_flight(part: OpenPart | ClosedPart, timeout_s: float) -> InFlight:
    """Those of a worker's part of the schedule, where no request lasts longer than ``timeout_s``."""
    if isinstance(part, ClosedPart):
        users = min(len(part.user_starts_ns), len(part.indices))
        return InFlight(users, users)
    together = most_due_within(part.offsets_ns, 0)
    overlapping = most_due_within(part.offsets_ns, round(timeout_s * 1e9))
    if part.max_concurrency is None:
        return InFlight(together, overlapping)
    return InFlight(min(together, part.max_concurrency), min(overlapping, part.max_concurrency))


def most_due_within(offsets_ns: Sequence[int], span_ns: int) -> int:
    """The most of the sorted ``offsets_ns`` that lie within ``span_ns``, both ends included."""
    return max((bisect_right(offsets_ns, first + span_ns) - k for k, first in enumerate(offsets_ns)), default=0)


def files_needed(schedule: AnySchedule, workers: int, client: Client, timeout_s: float) -> FileNeed:
    """Of that process of a run, a worker or their parent, which needs the most."""
    most = max((in_flight(schedule.part(k, workers), timeout_s) for k in range(workers)), key=lambda flight: flight.at_most)
    parent = _OWN_FILES + _FILES_A_WORKER * workers
    surely, at_most = (_OWN_FILES + client.sockets(count) for count in (most.surely, most.at_most))
    if parent > at_most:
        return FileNeed(parent, parent, f"for {workers:,} workers", "use fewer --workers")
    purpose = f"for {most.surely:,} requests in flight in one worker"
    return FileNeed(surely, at_most, purpose, "use more --workers: each has a limit of its own")


def allow_files(need: FileNeed) -> None:
    """Raise this process's limit to what could be needed, as far as may be.

    Raises RunError where not even what surely is needed may be open.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or need.at_most <= soft:
        return
    allowed = need.at_most if hard == resource.RLIM_INFINITY else min(need.at_most, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (ValueError, OSError):  # a hard limit above the kernel's own (fs.nr_open) can be held, and not set again
        allowed = soft
    if allowed < need.surely:
        raise RunError(
            f"{need.surely:,} files must be open at once in a process {need.purpose}, and no more than {allowed:,} may be. "
            f"Raise the limit ('ulimit -Hn {need.surely}' as root, then 'ulimit -n {need.surely}'; for a service "
            f"LimitNOFILE={need.surely}, for a container --ulimit nofile={need.surely}), or {need.instead}"
        )
