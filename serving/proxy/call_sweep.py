"""Ends calls that do not go on, and those that fill the memory: gRPC itself bounds neither.

A message is whole in memory before it is handed over, so a few connections that send many long ones slowly take gigabytes. When
the process has too much, the calls end whose message has been arriving for a while; short messages arrive within that.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PERIOD_S = 0.1
_ARRIVING_S = 0.25
_SPARE_BYTES = 256 << 20  # above what is left when memory has been given back
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")


@dataclass
class CallProgress:
    """One call. ``receiving_since`` and ``sending_since`` are the loop's time in s, None while it does not.

    ``ended_because`` is why the sweep ended it, None where it has not: then its ``scope`` raises TimeoutError.
    """

    scope: asyncio.Timeout
    receiving_since: float | None
    sending_since: float | None = None
    has_received: bool = False
    ended_because: str | None = None


class CallSweep:
    """``timeout_s`` bounds the first message of a call, and a client that does not read."""

    def __init__(self, timeout_s: float, most_bytes: int) -> None:
        self._timeout_s = timeout_s
        self._most_bytes = most_bytes
        self._calls: dict[int, CallProgress] = {}
        self._libc = ctypes.CDLL(None)

    @contextmanager
    def watching(self, scope: asyncio.Timeout) -> Iterator[CallProgress]:
        """Watch the call whose code runs in ``scope``, which is to receive its first message."""
        call = CallProgress(scope, asyncio.get_running_loop().time())
        self._calls[id(call)] = call
        try:
            yield call
        finally:
            del self._calls[id(call)]

    async def run(self) -> None:
        """Sweep until cancelled."""
        most_bytes = self._most_bytes
        while True:
            await asyncio.sleep(_PERIOD_S)
            self._end_slow()
            if memory_bytes() <= most_bytes:
                continue
            self._end_long()
            await asyncio.sleep(_PERIOD_S)  # for the calls to end
            self._libc.malloc_trim(0)  # glibc keeps what was freed between used parts
            most_bytes = max(self._most_bytes, memory_bytes() + _SPARE_BYTES)

    def _end_slow(self) -> None:
        too_early = asyncio.get_running_loop().time() - self._timeout_s
        for call in self._calls.values():
            if not call.has_received and call.receiving_since is not None and call.receiving_since < too_early:
                _end(call, f"no whole message within {self._timeout_s:g} s")
            elif call.sending_since is not None and call.sending_since < too_early:
                _end(call, f"the client read nothing for {self._timeout_s:g} s")

    def _end_long(self) -> None:
        """First the calls without any message yet; the others, which may only wait for their answers, where there are none."""
        too_early = asyncio.get_running_loop().time() - _ARRIVING_S
        arriving = [c for c in self._calls.values() if c.receiving_since is not None and c.receiving_since < too_early]
        for call in [c for c in arriving if not c.has_received] or arriving:
            _end(call, "the proxy has too many long messages at a time; try again")


def _end(call: CallProgress, reason: str) -> None:
    if call.ended_because is None:
        call.ended_because = reason
        call.scope.reschedule(asyncio.get_running_loop().time())


def memory_bytes() -> int:
    """The resident memory of this process."""
    return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
