"""Telling a process from a later one that was given the same number."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, told apart for good: its number, when it started (clock ticks since boot), and which boot that was."""

    pid: int
    start_ticks: int
    boot_id: str

    def is_alive(self) -> bool:
        """Whether this very process still runs; one that has ended and waits to be reaped does not."""
        return identify(self.pid) == self


def identify(pid: int) -> ProcessIdentity | None:
    """Who runs under ``pid`` now, or None. Source: proc(5), fields 3 and 22 of ``/proc/PID/stat``."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None
    after_name = stat.rpartition(")")[2].split()  # the name, field 2, may hold blanks and parentheses itself
    if after_name[0] in "ZX":
        return None
    return ProcessIdentity(pid, int(after_name[19]), boot_id)


def this_process() -> ProcessIdentity:
    """Who we are."""
    identity = identify(os.getpid())
    if identity is None:
        raise RuntimeError("/proc does not know this process")
    return identity
