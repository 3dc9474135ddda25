"""A periodic call on a thread of its own."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

_STOP_TIMEOUT_S = 15.0


class Periodic:
    """Calls ``action`` every ``period_s``, from creation until ``stop``. Calls that are due during a long one are skipped."""

    def __init__(self, period_s: float, action: Callable[[], None], name: str) -> None:
        self._period_s = period_s
        self._action = action
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> bool:
        """Stop calling; returns whether the last call has ended, after waiting for it for a limited time."""
        self._stopping.set()
        self._thread.join(_STOP_TIMEOUT_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        # A signal that this thread received would reach Python's handlers at once, even where the main thread blocks it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        due_s = time.monotonic() + self._period_s
        while not self._stopping.wait(due_s - time.monotonic()):
            self._action()
            missed = max(0, int((time.monotonic() - due_s) // self._period_s))
            due_s += (1 + missed) * self._period_s
