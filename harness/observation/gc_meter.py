"""How long garbage collections stop this process."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

from harness.host.clock import now_ns


@dataclass(frozen=True, slots=True)
class Pauses:
    """Garbage collections of one stretch of time, in ns."""

    total_ns: int
    longest_ns: int
    count: int


class GarbageCollectionMeter:
    """Counts from its making until ``close``."""

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

    def _on_collection(self, phase: str, details: dict[str, Any]) -> None:
        if phase == "start":
            self._began_ns = now_ns()
        elif self._began_ns:
            paused_ns = now_ns() - self._began_ns
            self._total_ns += paused_ns
            self._longest_ns = max(self._longest_ns, paused_ns)
            self._count += 1
