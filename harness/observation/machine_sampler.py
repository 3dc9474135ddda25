"""The sampler in the parent: use and steal time of the client's cores, and the parent's own use of the CPU."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from bench_records.client_sample import ClientSample
from harness.host.clock import now_ns
from harness.host.periodic import Periodic
from harness.observation.sample_file import SampleWriter

PERIOD_S = 0.5  # Linux counts in ticks of 10 ms
_NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
# user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in user and nice (man 5 proc_stat)
_BUSY = (0, 1, 2, 5, 6)
_STEAL = 7


@dataclass(frozen=True, slots=True)
class CoreTimes:
    """Times summed over some cores."""

    busy_ns: int
    steal_ns: int

    def since(self, before: CoreTimes) -> CoreTimes:
        """The difference to ``before``, at least 0: a core's counters may step back a little when it wakes from idling."""
        return CoreTimes(max(0, self.busy_ns - before.busy_ns), max(0, self.steal_ns - before.steal_ns))


def core_times(proc_stat: str, cores: Set[int]) -> CoreTimes | None:
    """Sums since boot, from the text of ``/proc/stat``; None where ``cores`` are not in it."""
    lines = (line.split() for line in proc_stat.splitlines())
    ticks = [list(map(int, words[1:])) for words in lines if words and words[0] in {f"cpu{core}" for core in cores}]
    if not ticks or any(len(times) <= _STEAL for times in ticks):
        return None
    busy = sum(times[column] for times in ticks for column in _BUSY)
    return CoreTimes(busy * _NS_PER_TICK, sum(times[_STEAL] for times in ticks) * _NS_PER_TICK)


class MachineSampler:
    """Samples ``cores`` and this process into ``path`` until ``close``; times count from ``start_ns`` (of ``now_ns``)."""

    def __init__(self, path: Path, start_ns: int, cores: Set[int]) -> None:
        self._start_ns = start_ns
        self._cores = cores
        self._writer = SampleWriter(path)
        self._before = _Sums.read(self._cores)
        self._writer.append(self._since_before(self._before))
        self._periodic = Periodic(PERIOD_S, self._sample, "machine-sampler")

    def close(self) -> None:
        self._periodic.stop()
        self._sample()
        self._writer.close()

    def _sample(self) -> None:
        sums = _Sums.read(self._cores)
        self._writer.append(self._since_before(sums))
        self._before = sums

    def _since_before(self, sums: _Sums) -> ClientSample:
        before = self._before
        cores = None if sums.cores is None or before.cores is None else sums.cores.since(before.cores)
        return ClientSample(
            time_ns=sums.time_ns - self._start_ns,
            worker=None,
            cpu_ns=sums.cpu_ns - before.cpu_ns,
            voluntary_switches=sums.voluntary_switches - before.voluntary_switches,
            involuntary_switches=sums.involuntary_switches - before.involuntary_switches,
            busy_ns=None if cores is None else cores.busy_ns,
            steal_ns=None if cores is None else cores.steal_ns,
        )


@dataclass(frozen=True, slots=True)
class _Sums:
    time_ns: int
    cpu_ns: int
    voluntary_switches: int
    involuntary_switches: int
    cores: CoreTimes | None

    @classmethod
    def read(cls, cores: Set[int]) -> _Sums:
        try:
            text = Path("/proc/stat").read_text(encoding="ascii")
        except OSError:
            text = ""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return cls(now_ns(), time.process_time_ns(), used.ru_nvcsw, used.ru_nivcsw, core_times(text, cores))
