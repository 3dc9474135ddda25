"""Who used the CPU of this machine through a run: the client, a target on the same machine, and others."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_records.manifest import MachineUse
from harness.host.clock import now_ns
from harness.host.processes import Process, called_by, listeners, read_processes, tree_of

_NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_OF_PROCESSES = 3  # user, nice and system; interrupts belong to no process (man 5 proc_stat)

FindTarget = Callable[[], frozenset[int] | None]
"""Finds the processes that serve the target; None where they are not on this machine, or unknown."""


def targets_at(places: Sequence[tuple[str, int]]) -> FindTarget:
    """Finds who listens at each host and port; None where one of them is not on this machine."""

    def find() -> frozenset[int] | None:
        found = [listeners(host, port) for host, port in places]
        known = [roots for roots in found if roots is not None]
        return frozenset().union(*known) if len(known) == len(found) else None

    return find


class MachineMeter:
    """Measures from its creation to ``read``. The target is ``found``, which ``find_target`` has to find again at the end, the
    processes of this machine to which that is connected then, as a router to its servers, and all descendants. The client is
    this process with its descendants, except the target's.
    """

    def __init__(self, found: frozenset[int] | None, find_target: FindTarget) -> None:
        self._find_target = find_target
        self._before = _Reading.take(found)

    def read(self) -> MachineUse | None:
        """None where the target is not known, or was another one to begin with."""
        before, after = self._before, _Reading.take(self._find_target())
        if before is None or after is None or before.roots != after.roots:
            return None
        roots = after.roots | called_by(after.roots)
        seconds = (after.time_ns - before.time_ns) / 1e9
        busy, client, target = (
            (late - early) / 1e9 / seconds for early, late in zip(before.used_ns(roots), after.used_ns(roots), strict=True)
        )
        return MachineUse(cores=after.cores, seconds=seconds, busy_cores=busy, client_cores=client, target_cores=target)


@dataclass(frozen=True, slots=True)
class _Reading:
    """The processes of this machine at a time, and which of them are the ``roots`` of the target."""

    time_ns: int
    roots: frozenset[int]
    cores: int
    busy_ns: int
    processes: Mapping[int, Process]

    @classmethod
    def take(cls, roots: frozenset[int] | None) -> _Reading | None:
        """None without ``roots`` of the target, and where this system does not count."""
        if roots is None:
            return None
        try:
            lines = [line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines()]
            time_ns, processes = now_ns(), read_processes()
        except OSError:
            return None
        cores = sum(words[0].startswith("cpu") and words[0] != "cpu" for words in lines if words)
        busy_ns = sum(map(int, lines[0][1 : 1 + _OF_PROCESSES])) * _NS_PER_TICK
        return cls(time_ns, roots, cores, busy_ns, processes) if cores and roots & processes.keys() else None

    def used_ns(self, roots: frozenset[int]) -> tuple[int, int, int]:
        """The CPU time until now of all processes, of the client's, and of the target's with these ``roots``."""
        target = tree_of(self.processes, roots)
        client = tree_of(self.processes, [os.getpid()]) - target
        client_ns, target_ns = (sum(self.processes[pid].cpu_ns for pid in tree) for tree in (client, target))
        return self.busy_ns, client_ns, target_ns
