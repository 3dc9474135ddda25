"""Meters of a worker: the pauses of its garbage collector, and the scheduling of its sending thread."""

from __future__ import annotations

import gc
import os
import resource
import threading
from dataclasses import dataclass

from harness.host.clock import now_ns


@dataclass(frozen=True, slots=True)
class Pauses:
    """Garbage collections of an interval; times in ns."""

    total_ns: int
    longest_ns: int
    count: int


class GarbageCollectionMeter:
    """Measures the garbage collections of this process, from creation until ``close``."""

    def __init__(self) -> None:
        self._began_ns = 0
        self._total_ns = self._longest_ns = self._count = 0
        gc.callbacks.append(self._on_collection)

    def take(self) -> Pauses:
        """The pauses since the last ``take``."""
        pauses = Pauses(self._total_ns, self._longest_ns, self._count)
        self._total_ns = self._longest_ns = self._count = 0
        return pauses

    def close(self) -> None:
        gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, details: dict[str, int]) -> None:
        if phase == "start":
            self._began_ns = now_ns()
        elif self._began_ns:
            paused_ns = now_ns() - self._began_ns
            self._total_ns += paused_ns
            self._longest_ns = max(self._longest_ns, paused_ns)
            self._count += 1


@dataclass(frozen=True, slots=True)
class ThreadUsage:
    """Sums since the thread began. ``run_queue_wait_ns`` is the time spent runnable without a core; None is unknown."""

    run_queue_wait_ns: int | None
    voluntary_switches: int
    involuntary_switches: int


class ThreadMeter:
    """Reads the usage of the thread that created it; ``read`` must be called in that thread."""

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
        """The second number of Linux's ``schedstat``. Where the third, the dispatches, is 0, the kernel does not account."""
        if self._schedstat is None:
            return None
        _, waited_ns, dispatches = os.pread(self._schedstat, 128, 0).split()
        return int(waited_ns) if int(dispatches) else None
