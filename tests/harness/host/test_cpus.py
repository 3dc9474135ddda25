"""The cores and the quota of a process, read from copies of the kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.host.cpus import Cores, available_cores, cgroup_quota


def _files(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n"}, None),
        (
            {  # the smallest on the way up counts
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/cpu.max": "max 100000\n",
            },
            2.0,
        ),
        (
            {  # inside a container the path may be the host's
                "proc/self/cgroup": "0::/kubepods/pod1\n",
                "sys/fs/cgroup/cpu.max": "300000 100000\n",
            },
            3.0,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/docker/1\n4:memory:/\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            0.5,
        ),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "what\n"}, None),
    ],
)
def test_the_control_groups_limit(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    assert cgroup_quota(_files(tmp_path, files)) == quota


def test_siblings_are_read_and_a_machine_without_the_file_has_none(tmp_path: Path) -> None:
    first, *others = available_cores().ids
    path = f"sys/devices/system/cpu/cpu{first}/topology/thread_siblings_list"
    cores = available_cores(_files(tmp_path, {path: f"{first},1000-1002\n"}))
    assert cores.siblings[0] == {first, 1000, 1001, 1002}
    assert cores.siblings[1:] == tuple(frozenset({core}) for core in others)


@pytest.mark.parametrize(("quota", "available"), [(None, 4.0), (1.5, 1.5), (9.0, 4.0)])
def test_a_limit_is_cores_that_are_not_there(quota: float | None, available: float) -> None:
    ids = (0, 1, 2, 3)
    assert Cores(ids, tuple(frozenset({core}) for core in ids), quota).available == available
