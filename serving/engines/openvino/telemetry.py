"""Counters and durations of the OpenVINO engine, the source of its ``EngineStats``."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

from serving.engines.protocol import HISTOGRAM_BOUNDS_S, Histogram

_BOUNDS_NS = tuple(round(bound * 1e9) for bound in HISTOGRAM_BOUNDS_S)


class Times:
    """Histogram of durations. The requests of a step share theirs, so equal values are counted first and binned on reading."""

    def __init__(self) -> None:
        self._new: dict[int, int] = {}
        self._counts = [0] * (len(_BOUNDS_NS) + 1)
        self._sum_ns = 0

    def add(self, time_ns: int, count: int = 1) -> None:
        self._new[time_ns] = self._new.get(time_ns, 0) + count

    def histogram(self) -> Histogram:
        for time_ns, count in self._new.items():
            self._counts[bisect_left(_BOUNDS_NS, time_ns)] += count
            self._sum_ns += time_ns * count
        self._new.clear()
        return Histogram(tuple(self._counts), self._sum_ns / 1e9)


class Telemetry:
    """Monotonic counters and histograms of one engine."""

    def __init__(self) -> None:
        self.iterations = 0
        self.scheduled_requests = 0
        self.generated_tokens = 0
        self.prompt_tokens = 0
        self.prompt_blocks = 0
        self.reused_blocks = 0
        self.time_to_first_token = Times()
        self.inter_token_latency = Times()
        self.queue_time = Times()


def resident_bytes() -> int:
    """Resident memory of this process."""
    status = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(status[1]) * 4096
