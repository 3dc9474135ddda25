"""Signals around the start of a child process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block SIGINT and SIGTERM, so that a process started meanwhile has them blocked from its first instruction on.

    Signals that arrive meanwhile are raised at the end. Blocking applies to a thread, and a signal that another thread
    receives is handled in the main thread: so handlers that hold the signals are set, too.
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
