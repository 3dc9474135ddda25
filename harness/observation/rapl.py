"""This host's energy counters of CPU packages and their DRAM, which Linux exports as RAPL zones under ``/sys/class/powercap``.

Zones (Documentation/power/powercap of the kernel): ``intel-rapl:N`` is a package, AMD's too, or ``psys``, the whole platform,
which contains the packages; ``intel-rapl:N:M`` is a part of a package, but DRAM is not in the package's counter.
``intel-rapl-mmio`` has the same packages again. ``energy_uj`` counts µJ and wraps around at ``max_energy_range_uj``; since
CVE-2020-8694 only root may read it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

from harness.observation.nvml import Reading

POWERCAP = Path("/sys/class/powercap")
_PACKAGE = re.compile(r"intel-rapl:\d+")
_MOST_WATTS = 5_000  # no package draws as much: a counter that grew faster was reset or jumped
_LATE_NS = 100_000_000  # by which a counter's reading may be later than the time that it is given


class Rapl:
    """The counters, as far as ``folder`` lists them. ``readable`` says whether one of them can be read."""

    def __init__(self, folder: Path) -> None:
        self._counters = list(_counters(folder))

    @property
    def readable(self) -> bool:
        return any(counter.is_readable() for counter in self._counters)

    def read(self, at_ns: int) -> list[Reading]:
        """J of each counter since its first reading; NaN where that is not known. ``at_ns`` is the time, of ``now_ns``."""
        return [counter.read(at_ns) for counter in self._counters]


class _Counter:
    """One zone's counter. A reading that fails, or a growth that is not possible, is NaN: no energy is known across it."""

    def __init__(self, name: str, package: str, zone: Path) -> None:
        self._name = name
        self._labels = json.dumps({"zone": package})
        self._energy = zone / "energy_uj"
        self._range_uj = _number(zone / "max_energy_range_uj")
        self._total_uj = 0
        self._last: tuple[int, int] | None = None  # ns and µJ

    def is_readable(self) -> bool:
        return self._range_uj is not None and _number(self._energy) is not None

    def read(self, at_ns: int) -> Reading:
        now_uj = _number(self._energy)
        if now_uj is None or self._range_uj is None:
            return self._name, self._labels, math.nan
        grown: int | None = 0
        if self._last is not None:
            last_ns, last_uj = self._last
            most_uj = _MOST_WATTS * (at_ns - last_ns + _LATE_NS) // 1000
            grown = grown_uj(last_uj, now_uj, self._range_uj, most_uj)
        self._last = at_ns, now_uj
        if grown is None:
            return self._name, self._labels, math.nan
        self._total_uj += grown
        return self._name, self._labels, self._total_uj / 1e6


def grown_uj(before_uj: int, now_uj: int, range_uj: int, most_uj: int) -> int | None:
    """What a counter that wraps around at ``range_uj`` grew by; None for more than ``most_uj``, the most that is possible, and
    where even that would not exclude another turn.
    """
    grown = now_uj - before_uj if now_uj >= before_uj else now_uj + range_uj - before_uj
    return grown if 0 <= grown <= most_uj < range_uj else None


def _counters(folder: Path) -> Iterator[_Counter]:
    for zone in sorted(folder.glob("intel-rapl:*")):
        package = _text(zone / "name")
        if not _PACKAGE.fullmatch(zone.name) or package is None or not package.startswith("package-"):
            continue
        yield _Counter("host_cpu_energy_joules_total", package, zone)
        for part in sorted(folder.glob(f"{zone.name}:*")):
            if _text(part / "name") == "dram":
                yield _Counter("host_dram_energy_joules_total", package, part)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and text.isdecimal() else None
