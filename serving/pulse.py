"""Pulses: the sign of a model's process that it still runs Python, for the supervisor of its server.

A process can lose Python's lock (GIL) for good, as Triton 24.10's stub of ``tensorrt_llm_bls`` may: see "Processes" in
docs/explanation/serving.md. Then no Python of its own can notice, and Triton counts it as healthy. So the process writes a line
each second to a pipe that it inherits, and ``serving/launch/pulse_watch.py`` reads these.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import stat
import threading
from contextlib import suppress
from dataclasses import dataclass

PIPE_VARIABLE = "INFLIGHT_BENCH_PULSES"
PULSE_PERIOD_S = 1.0
TRACEBACKS_SIGNAL = signal.SIGUSR1
_STDERR = 2


@dataclass(frozen=True, slots=True)
class Pulse:
    """A sign of the process ``pid`` of ``model``; the ``last`` one says that it ends in order."""

    pid: int
    model: str
    last: bool = False

    def line(self) -> bytes:
        return f"{self.pid} {'end' if self.last else 'pulse'} {self.model}\n".encode()


def read_pulse(line: bytes) -> Pulse:
    """The pulse of a whole line. Raises ValueError."""
    pid, kind, model = line.decode().rstrip("\n").split(" ", 2)
    return Pulse(int(pid), model, kind == "end")


def name_pipe(writing_end: int) -> str:
    """The value of PIPE_VARIABLE: the descriptor and the pipe's inode, as a launcher between may close it and another file get
    its number."""
    return f"{writing_end}:{os.fstat(writing_end).st_ino}"


def send_pulses(model: str, closing: threading.Event) -> None:
    """Body of the thread that sends pulses until ``closing`` is set; it returns at once where no supervisor reads them.

    TRACEBACKS_SIGNAL then writes the traceback of each thread to the standard error, whichever of them has the GIL.
    """
    pipe = _inherited_pipe(os.environ.get(PIPE_VARIABLE, ""))
    if pipe is None:
        return
    faulthandler.register(TRACEBACKS_SIGNAL, _STDERR)
    pid = os.getpid()
    while True:
        last = closing.is_set()
        with suppress(BlockingIOError, BrokenPipeError):  # the supervisor is stopped, or it ended, which ends this process
            os.write(pipe, Pulse(pid, model, last).line())
        if last:
            return
        closing.wait(PULSE_PERIOD_S)


def _inherited_pipe(name: str) -> int | None:
    descriptor, _, inode = name.partition(":")
    try:
        found = os.fstat(int(descriptor))
    except (ValueError, OSError):
        return None
    return int(descriptor) if stat.S_ISFIFO(found.st_mode) and str(found.st_ino) == inode else None
