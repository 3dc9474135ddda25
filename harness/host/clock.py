"""The run's clock, precise sleeping on it, and its offsets to the system's other clocks.

Event loops round their timers to milliseconds. A Linux timerfd fires to within tens of microseconds, and is one more readable
file to the loop; no core is used for spinning.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from datetime import UTC, datetime, timedelta

from bench_records.manifest import ClockOffsets

now_ns = time.monotonic_ns  # CLOCK_MONOTONIC, shared by all processes of a host

_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK = os.O_NONBLOCK
_TFD_TIMER_ABSTIME = 1
_OFFSET_READINGS = 7
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class PreciseSleeper:
    """Sleeps until absolute times of ``now_ns`` on the running event loop; one sleep at a time."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._loop = asyncio.get_running_loop()
        self._fired: asyncio.Future[None] | None = None
        self._loop.add_reader(self._fd, self._on_fire)

    async def until(self, time_ns: int) -> None:
        """Return at ``time_ns``, or, where that is past, after one iteration of the loop."""
        if time_ns <= now_ns():
            await asyncio.sleep(0)
            return
        self._fired = self._loop.create_future()
        self._set(time_ns)
        await self._fired

    def wake(self) -> None:
        """End the current sleep."""
        if self._fired is not None and not self._fired.done():
            self._fired.set_result(None)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _set(self, time_ns: int) -> None:
        value = _Timespec(*divmod(time_ns, 1_000_000_000))
        spec = _Itimerspec(_Timespec(0, 0), value)
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def _on_fire(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self.wake()


def read_clock_offsets() -> ClockOffsets:
    """Read both offsets; of several readings each is the one with the shortest interruption."""
    return ClockOffsets(
        realtime_minus_monotonic_ns=_offset(time.CLOCK_REALTIME), boottime_minus_monotonic_ns=_offset(time.CLOCK_BOOTTIME)
    )


def wall_time(monotonic_ns: int) -> datetime:
    """The date of a moment of ``now_ns``, in UTC, to a microsecond if the wall clock is not set before it."""
    return _EPOCH + timedelta(microseconds=(monotonic_ns + _offset(time.CLOCK_REALTIME)) // 1_000)


def _offset(clock: int) -> int:
    readings: list[tuple[int, int]] = []
    for _ in range(_OFFSET_READINGS):
        before_ns = time.monotonic_ns()
        other_ns = time.clock_gettime_ns(clock)
        after_ns = time.monotonic_ns()
        readings.append((after_ns - before_ns, other_ns - (before_ns + after_ns) // 2))
    return min(readings)[1]
