"""How the system's clocks stand to each other: whether one was set, or the machine slept, between two readings."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

_TRIES = 7


@dataclass(frozen=True, slots=True)
class ClockOffsets:
    """Differences of clocks, in ns.

    Time servers speed up or slow down the wall clock and the monotonic clock alike, so their difference changes only when the
    wall clock is set. While the machine sleeps the boot-time clock goes on, the monotonic clock does not (clock_gettime(2)).
    """

    realtime_minus_monotonic_ns: int
    boottime_minus_monotonic_ns: int

    def as_dict(self) -> dict[str, int]:
        return asdict(self)


def read_clock_offsets() -> ClockOffsets:
    """Read both; of some tries the one that was least disturbed."""
    return ClockOffsets(_offset(time.CLOCK_REALTIME), _offset(time.CLOCK_BOOTTIME))


def _offset(clock: int) -> int:
    tries: list[tuple[int, int]] = []
    for _ in range(_TRIES):
        before_ns = time.monotonic_ns()
        other_ns = time.clock_gettime_ns(clock)
        after_ns = time.monotonic_ns()
        tries.append((after_ns - before_ns, other_ns - (before_ns + after_ns) // 2))
    return min(tries)[1]
