"""Watching the pulses of models' processes (``serving/pulse.py``): which of them ended, or has run no Python for long.

A server without such a process cannot serve all its models, and Triton 24.10 starts none again: requests in flight would wait
for ever. So the supervisor then ends the server.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from serving.pulse import PIPE_VARIABLE, PULSE_PERIOD_S, TRACEBACKS_SIGNAL, name_pipe, read_pulse

SILENCE_S = 30.0  # nothing but a deadlock keeps the GIL as long: under load, pulses were at most 1.3 s apart
ENDED_S = 5.0  # ``start_watch.py`` finds an end while the server starts, and tries again
_LONGEST_STEP_S = 0.5
_SUSPECT_S = 2 * PULSE_PERIOD_S
_READ_BYTES = 65536


class PulseWatch:
    """Reads pulses of any number of processes, and counts the silence of each. Times come from one monotonic clock, in seconds.

    Only time in which this watch itself ran counts as silence, and in which the process was not stopped: neither the sleep of
    a machine, nor a paused container or a debugger ends a server.
    """

    def __init__(self, now_s: float) -> None:
        self._reading_end, self.writing_end = os.pipe()
        for end in (self._reading_end, self.writing_end):
            os.set_blocking(end, False)
        self._looked_s = now_s
        self._unread = b""
        self._models: dict[int, str] = {}
        self._silent_s: dict[int, float] = {}

    @property
    def environment(self) -> dict[str, str]:
        """What a server's environment needs; it must inherit ``writing_end``."""
        return {PIPE_VARIABLE: name_pipe(self.writing_end)}

    @property
    def processes(self) -> frozenset[int]:
        """The processes that sent a pulse, and did not end in order."""
        return frozenset(self._silent_s)

    def lost(self, now_s: float) -> str | None:
        """A sentence on the first process that ended, or that ran no Python for SILENCE_S; None while there is none.

        To be called a few times a second. A process without pulses is signalled to write its tracebacks to the log.
        """
        self._read()
        step_s = min(now_s - self._looked_s, _LONGEST_STEP_S)
        self._looked_s = now_s
        for pid in self._silent_s:
            self._silent_s[pid] += step_s
            if self._silent_s[pid] < _SUSPECT_S:
                continue
            state = _state(pid)
            process = f"The process of {self._models[pid]} ({pid})"
            if state in "Tt":  # stopped by a signal or a debugger
                self._silent_s[pid] -= step_s
            elif state in "ZX" and self._silent_s[pid] >= ENDED_S:
                return f"{process} ended, so its server was stopped. Start it again."
            elif self._silent_s[pid] >= SILENCE_S:
                with suppress(ProcessLookupError):
                    os.kill(pid, TRACEBACKS_SIGNAL)
                return (
                    f"{process} ran no Python for {SILENCE_S:g} s, as in a deadlock of Triton, so its server was stopped. "
                    "Start it again. Its log has the tracebacks of the process."
                )
        return None

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while True:
                *lines, self._unread = (self._unread + os.read(self._reading_end, _READ_BYTES)).split(b"\n")
                for line in lines:
                    pulse = read_pulse(line)
                    self._models[pulse.pid], self._silent_s[pulse.pid] = pulse.model, 0.0
                    if pulse.last:
                        del self._silent_s[pulse.pid]


def _state(pid: int) -> str:
    """The letter of a process's state, ``X`` for none. Source: proc(5), field 3 of ``/proc/PID/stat``."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "X"
    return stat.rpartition(")")[2].split()[0]
