"""The cores that this process may use, and the CPU limit of its control group."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path("/")


@dataclass(frozen=True, slots=True)
class Cores:
    """``ids`` are the available cores, ``siblings`` the hyper-threads of the same physical core (each core included).

    ``quota`` is the control group's limit as a number of cores; None is no limit.
    """

    ids: tuple[int, ...]
    siblings: tuple[frozenset[int], ...]
    quota: float | None = None

    @property
    def available(self) -> float:
        """The available CPU time, in cores."""
        return float(len(self.ids)) if self.quota is None else min(float(len(self.ids)), self.quota)


def available_cores(root: Path = _ROOT) -> Cores:
    """The cores that this process may use now."""
    ids = tuple(sorted(os.sched_getaffinity(0)))
    return Cores(ids, tuple(_siblings(root, core) for core in ids), cgroup_quota(root))


def cgroup_quota(root: Path = _ROOT) -> float | None:
    """The smallest CPU limit of this process's control group and its parents, in cores; None where there is none.

    Both versions: ``cpu.max`` (Documentation/admin-guide/cgroup-v2.rst) and ``cpu.cfs_quota_us`` (scheduler/sched-bwc.rst).
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    limits: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, read = root / "sys/fs/cgroup", _limit_of_version_2
        elif "cpu" in controllers.split(","):
            mount, read = root / "sys/fs/cgroup" / controllers, _limit_of_version_1
        else:
            continue
        inner = path.strip("/")  # in a container it may exist on the host alone; the mount's root counts, too
        folders = [mount / inner, *(mount / inner).parents] if inner else [mount]
        limits += [limit for folder in folders if folder.is_relative_to(mount) and (limit := read(folder)) is not None]
    return min(limits, default=None)


def _limit_of_version_2(folder: Path) -> float | None:
    quota, period = _words(folder / "cpu.max", 2)
    return None if quota == "max" else _ratio(quota, period)


def _limit_of_version_1(folder: Path) -> float | None:
    (quota,), (period,) = _words(folder / "cpu.cfs_quota_us", 1), _words(folder / "cpu.cfs_period_us", 1)
    return _ratio(quota, period)


def _words(path: Path, count: int) -> list[str]:
    try:
        words = path.read_text(encoding="utf-8").split()
    except OSError:
        words = []
    return words if len(words) == count else [""] * count


def _ratio(quota: str, period: str) -> float | None:
    """The cores of a quota; a negative quota of version 1 is no limit."""
    if not quota.isdigit() or not period.isdigit() or not int(period):
        return None
    return int(quota) / int(period)


def _siblings(root: Path, core: int) -> frozenset[int]:
    path = root / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
    try:
        return frozenset({core, *_cores_of_list(path.read_text(encoding="utf-8"))})
    except (OSError, ValueError):
        return frozenset({core})


def _cores_of_list(text: str) -> list[int]:
    """The numbers of a list such as ``0-2,8``, as the kernel writes them."""
    cores: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cores += range(int(first), int(last or first) + 1)
    return cores
