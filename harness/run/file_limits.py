"""The limit on open files: the number that a client process needs, and raising its limit before the run.

The limit (RLIMIT_NOFILE, setrlimit(2)) applies to a process. A process may raise its soft limit up to the hard one, and its
children inherit both: the parent raises its own before it starts the workers.
"""

from __future__ import annotations

import math
import resource
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from harness.clients.protocol import Client
from harness.errors import RunError
from workloads.schedule.schedule import AnyPart, ClosedPart, SessionPart

_OWN_FILES = 64  # interpreter, event loop, journal, samples: some 20, and those of libraries
_FILES_A_WORKER = 8  # open in the parent: pipes, the journal, the sentinel


@dataclass(frozen=True, slots=True)
class InFlight:
    """Requests of one worker in flight: ``at_least`` this many however fast the target is, and never more than ``at_most``."""

    at_least: int
    at_most: int


@dataclass(frozen=True, slots=True)
class FileNeed:
    """Open files of one process: the certain and the possible number, their purpose, the alternative to a higher limit."""

    at_least: int
    at_most: int
    purpose: str
    alternative: str


def in_flight(part: AnyPart, timeout_s: float) -> InFlight:
    """The requests in flight of a worker's part of the schedule, where no request lasts longer than ``timeout_s``."""
    if isinstance(part, ClosedPart):
        users = min(len(part.user_starts_ns), len(part.indices))
        return InFlight(users, users)
    if isinstance(part, SessionPart):
        first_ns = sorted(
            ns for ns, parent in zip(part.offsets_ns, part.parents, strict=True) if parent is None and ns is not None
        )
        waited_for = {parent for parent in part.parents if parent is not None}  # two in flight do not wait for each other
        return InFlight(most_due_within(first_ns, 0), max(len(first_ns), len(part.indices) - len(waited_for)))
    together = most_due_within(part.offsets_ns, 0)
    overlapping = most_due_within(part.offsets_ns, round(timeout_s * 1e9))
    if part.max_concurrency is None:
        return InFlight(together, overlapping)
    return InFlight(min(together, part.max_concurrency), min(overlapping, part.max_concurrency))


def most_due_within(offsets_ns: Sequence[int], span_ns: int) -> int:
    """The most of the sorted ``offsets_ns`` that lie within ``span_ns``, both ends included."""
    return max((bisect_right(offsets_ns, first + span_ns) - k for k, first in enumerate(offsets_ns)), default=0)


def files_needed(parts: Sequence[AnyPart], clients: Sequence[Client], timeout_s: float) -> FileNeed:
    """The need of that process, a worker with one of the ``parts`` or the parent of them all, which needs the most files.

    There is one of the ``clients`` for each target, which may carry all requests.
    """
    workers = len(parts)
    most = max((in_flight(part, timeout_s) for part in parts), key=lambda flight: flight.at_most)
    parent = _OWN_FILES + _FILES_A_WORKER * workers
    at_each = math.ceil(most.at_least / len(clients))
    at_least, at_most = (_OWN_FILES + sum(client.sockets(count) for client in clients) for count in (at_each, most.at_most))
    if parent > at_most:
        return FileNeed(parent, parent, f"for {workers:,} workers", "use fewer --workers")
    purpose = f"for {most.at_least:,} requests in flight in one worker"
    return FileNeed(at_least, at_most, purpose, "use more --workers: the limit applies to each")


def allow_files(need: FileNeed) -> None:
    """Raise this process's limit to the possible need, as far as permitted.

    Raises RunError where the limit is below the certain need.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or need.at_most <= soft:
        return
    allowed = need.at_most if hard == resource.RLIM_INFINITY else min(need.at_most, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    except (ValueError, OSError):  # an inherited hard limit above the kernel's own (fs.nr_open) cannot be set again
        allowed = soft
    if allowed < need.at_least:
        raise RunError(
            f"a process must open {need.at_least:,} files at once {need.purpose}, and its limit is {allowed:,}. "
            f"Raise the limit ('ulimit -Hn {need.at_least}' as root, then 'ulimit -n {need.at_least}'; for a service "
            f"LimitNOFILE={need.at_least}, for a container --ulimit nofile={need.at_least}), or {need.alternative}"
        )
