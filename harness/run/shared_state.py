"""Memory that a run's parent and its workers share: how far to go on, how much was sent, what connections were put to."""

from __future__ import annotations

from enum import IntEnum
from multiprocessing.context import SpawnContext
from typing import Any

from harness.clients.protocol import ConnectionUsage

_USAGE_CELLS = 7  # of each worker: whether it has told, then ConnectionUsage


class Phase(IntEnum):
    """What the workers are to do; it only ever grows."""

    RUN = 0
    DRAIN = 1  # send nothing more, wait for what is in flight
    ABORT = 2  # break off what is in flight


class Control:
    """One writer for each cell: the parent writes the phase, each worker its own count. Reads may lag, never tear."""

    def __init__(self, context: SpawnContext, workers: int) -> None:
        self._phase: Any = context.RawValue("i", Phase.RUN)
        self._sent: Any = context.RawArray("q", workers)
        self._usage: Any = context.RawArray("q", workers * _USAGE_CELLS)

    @property
    def phase(self) -> Phase:
        return Phase(self._phase.value)

    def advance(self, phase: Phase) -> None:
        self._phase.value = max(phase, self._phase.value)

    def count_sent(self, worker: int) -> None:
        self._sent[worker] += 1

    def sent_by(self, worker: int) -> int:
        return int(self._sent[worker])

    @property
    def sent(self) -> int:
        return sum(self._sent)

    def tell_usage(self, worker: int, usage: ConnectionUsage) -> None:
        """Leave word of a worker's connections; its last word."""
        longest_ns = -1 if usage.longest_wait_ns is None else usage.longest_wait_ns
        cells = (usage.per_worker, usage.opened, usage.limit_reached, usage.total_wait_ns, longest_ns, usage.unstamped_reads)
        start = worker * _USAGE_CELLS
        self._usage[start + 1 : start + _USAGE_CELLS] = cells
        self._usage[start] = 1

    def usage_of(self, worker: int) -> ConnectionUsage | None:
        """What a worker has told; None where it ended before it could."""
        start = worker * _USAGE_CELLS
        cells = self._usage[start : start + _USAGE_CELLS]
        told, per_worker, opened, limit_reached, total_wait_ns, longest_ns, unstamped = cells
        if not told:
            return None
        longest_wait_ns = None if longest_ns < 0 else longest_ns
        return ConnectionUsage(per_worker, opened, limit_reached, total_wait_ns, longest_wait_ns, unstamped)
