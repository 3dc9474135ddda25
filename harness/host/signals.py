"""Signals around the start of a child process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType


class HeldSignals:
    """A signal handler that keeps the signals it is called with, until they are taken."""

    def __init__(self) -> None:
        self._numbers: list[int] = []

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self._numbers.append(number)

    def take(self) -> tuple[int, ...]:
        """The signals that were kept, each once; they are kept no longer."""
        numbers, self._numbers = self._numbers, []
        return tuple(dict.fromkeys(numbers))


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block SIGINT and SIGTERM, so that a process started meanwhile has them blocked from its first instruction on.

    Signals that arrive meanwhile are raised at the end. Blocking applies to a thread, and a signal that another thread
    receives is handled in the main thread: so a handler that holds the signals is set, too. Code in the block that sets
    its own takes what is held until then.
    """
    resource_tracker.ensure_running()  # starting it would unblock them again
    held = HeldSignals()
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.signal(number, held) for number in numbers}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for taken in held.take():
            signal.raise_signal(taken)
