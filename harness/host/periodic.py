"""Doing something again and again beside the run, on a thread of its own."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

_STOP_TIMEOUT_S = 15.0


class Periodic:
    """Calls ``action`` every ``period_s`` from its making until ``stop``. After a long call the next ones are left out."""

    def __init__(self, period_s: float, action: Callable[[], None], name: str) -> None:
        self._period_s = period_s
        self._action = action
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> bool:
        """Make no more calls; returns whether the last one has come to its end, for which it waits a while."""
        self._stopping.set()
        self._thread.join(_STOP_TIMEOUT_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        # A signal that this thread took would reach Python's handlers at once, also where the main thread has it wait.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        due_s = time.monotonic() + self._period_s
        while not self._stopping.wait(due_s - time.monotonic()):
            self._action()
            missed = max(0, int((time.monotonic() - due_s) // self._period_s))
            due_s += (1 + missed) * self._period_s
