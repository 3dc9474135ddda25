"""Work that goes on beside a run and must not delay it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_LESS_URGENT_BY = 10  # of nice's 19: a tenth of a busy core at the least, so that it does not stand still

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
