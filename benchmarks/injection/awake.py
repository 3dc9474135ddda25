"""Keep the cores of this host awake: a virtual core that was idle for a while computes more slowly for some time after it.

A request that was delayed finds the engine idle for longer than one that was not. Its decode is slower for that reason, and the
two cannot be compared unless no core sleeps.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_SPIN = """
import os, sys

os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
while os.getppid() == int(sys.argv[1]):
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def awake_cores() -> Iterator[None]:
    """A process on each core that spins when nothing else wants to run there (Linux: SCHED_IDLE)."""
    with ExitStack() as started:
        for _ in os.sched_getaffinity(0):
            process = started.enter_context(subprocess.Popen([sys.executable, "-c", _SPIN, str(os.getpid())]))
            started.callback(process.kill)
        yield
