"""Signals around the start of a child process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def signals_blocked() -> Iterator[None]:
    """A process started meanwhile keeps SIGINT and SIGTERM blocked from its first instruction on; here they come after.

    Blocking is each thread's own, and a signal that another thread takes is handled in this one: so they are held, too.
    """
    resource_tracker.ensure_running()  # starting it would unblock them again
    held: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.signal(number, lambda number, _: held.append(number)) for number in numbers}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for taken in dict.fromkeys(held):
            signal.raise_signal(taken)
