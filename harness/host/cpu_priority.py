"""Who gets a core first: the workers, which must send on time, before what goes on beside them."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_LESS_URGENT_BY = 10  # of nice's 19: a tenth of a busy core at the least, so that it does not stand still
_SHORT_SLICE_NS = 100_000  # the shortest that Linux grants
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}  # the system call's number: most C libraries have no function for it
_SCHED_ATTR = struct.Struct("=IIQiIQQQII")  # sched_setattr(2): size, policy, flags, nice, priority, runtime, then unused

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


def giving_way(work: Callable[_Parameters, _Result], *arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
    """What ``work`` returns or raises, done in a thread that gives way to whatever else wants its core.

    On Linux niceness is each thread's own (sched(7)), and who has raised it may not lower it again: hence a thread that ends.
    A worker that woke while its parent was busy on the same core waited up to 4 ms for it, and so did the request to be sent.
    """
    with ThreadPoolExecutor(1, initializer=_become_less_urgent) as thread:
        return thread.submit(work, *arguments, **named).result()


def _become_less_urgent() -> None:
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + _LESS_URGENT_BY))


def ask_for_short_slices() -> bool:
    """Let this thread run soon after it wakes, for as little at a time: False where this system knows no such thing.

    It takes no larger share of the CPU, and no privilege. Linux (since 6.12, EEVDF) lets a thread whose time slice is shorter
    than that of the one that is running go first; older ones ignore the wish.
    """
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None:
        return False
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    wish = _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, 0, niceness, 0, _SHORT_SLICE_NS, 0, 0, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, wish, 0) == 0)
