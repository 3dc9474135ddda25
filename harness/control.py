"""Memory that a run's parent and its workers share: how far to go on, and how much was sent."""

from __future__ import annotations

from enum import IntEnum
from multiprocessing.context import SpawnContext
from typing import Any


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
