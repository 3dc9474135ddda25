"""What the operating system tells about the thread that asks."""

from __future__ import annotations

import os
import resource
import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ThreadUsage:
    """Sums since the thread began. ``run_queue_wait_ns`` is the time that it could have run and another did; None: not told."""

    run_queue_wait_ns: int | None
    voluntary_switches: int
    involuntary_switches: int


class ThreadMeter:
    """Reads the usage of the thread that made it, and is to be asked by that thread alone."""

    def __init__(self) -> None:
        try:
            self._schedstat: int | None = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        except OSError:
            self._schedstat = None

    def read(self) -> ThreadUsage:
        used = resource.getrusage(resource.RUSAGE_THREAD)
        return ThreadUsage(self._run_queue_wait_ns(), used.ru_nvcsw, used.ru_nivcsw)

    def close(self) -> None:
        if self._schedstat is not None:
            os.close(self._schedstat)
            self._schedstat = None

    def _run_queue_wait_ns(self) -> int | None:
        """The second number of Linux's ``schedstat``; a kernel that keeps no such account says 0 for the third, too."""
        if self._schedstat is None:
            return None
        _, waited_ns, dispatches = os.pread(self._schedstat, 128, 0).split()
        return int(waited_ns) if int(dispatches) else None
