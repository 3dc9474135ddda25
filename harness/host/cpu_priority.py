"""CPU priority of workers and parent: niceness, and the length of the time slice (EEVDF)."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_NICENESS_INCREMENT = 10  # of 19: leaves the thread a tenth of a busy core, so that it does not stall
_SHORT_SLICE_NS = 100_000  # the shortest that Linux grants
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # the system call's number: most C libraries have no function for it
_SCHED_ATTR = struct.Struct("=IIQiIQQQII")  # sched_setattr(2): size, policy, flags, nice, priority, runtime, then unused

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def run_at_low_priority(
    work: Callable[_Parameters, _Result], *arguments: _Parameters.args, **keywords: _Parameters.kwargs
) -> _Result:
    """Call ``work`` in a thread of raised niceness; returns or raises what ``work`` does.

    On Linux niceness belongs to a thread (sched(7)), and a thread that has raised its own may not lower it again: hence a
    thread that ends with the call. Without it, a worker that woke while its parent was busy on the same core waited for it
    up to 4 ms, and so did the request to be sent.
    """
    with ThreadPoolExecutor(1, initializer=_raise_niceness) as thread:
        return thread.submit(work, *arguments, **keywords).result()


def _raise_niceness() -> None:
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS_INCREMENT))


def request_short_slices() -> bool:
    """Request the shortest time slice for this thread, so that it runs soon after it wakes; False where not supported.

    The share of the CPU stays the same, and no privilege is needed. Since 6.12 Linux (EEVDF) lets a thread preempt one with
    a longer slice; older versions ignore the request.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None:
        return False
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    attributes = _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, 0, niceness, 0, _SHORT_SLICE_NS, 0, 0, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, attributes, 0) == 0)
