"""Programs of a sitting that are stopped with what they serve or watch."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

_STOP_S = 30.0


@contextmanager
def until_the_end(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Interrupt ``process`` when the context ends, in whatever way, and kill its session 30 s later. It leads a session."""
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
