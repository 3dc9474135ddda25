"""Regions of servers in a folder in place of ``/dev/shm``; what holds a prefix is a process of its own."""

from __future__ import annotations

import mmap
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from serving.launch.shared_memory import left_regions, own_regions, remove_dead_regions

_COMMAND = ["tritonserver", "--http-port=8000", "--backend-config=python,shm-region-prefix-name=inflight_bench_8001_prefix0_"]
_UUID = "03f5c5e5-8721-4483-ab8f-5c14528924b6"
_OWNER = """
import sys
from pathlib import Path
from serving.launch.shared_memory import own_regions
print(own_regions(sys.argv[2:], Path(sys.argv[1])).prefix, flush=True)
sys.stdin.read()
"""


@contextmanager
def _live_server(folder: Path) -> Iterator[tuple[str, Path]]:
    """A prefix that another process holds, and a region with it."""
    words = [sys.executable, "-c", _OWNER, str(folder), *_COMMAND]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        prefix = owner.stdout.readline().strip()
        region = folder / f"{prefix}prefix0_{_UUID}"
        region.write_bytes(b"a prompt")
        yield prefix, region
        owner.kill()


def test_each_server_has_a_prefix_of_its_own_in_all_ranks(tmp_path: Path) -> None:
    ranks = [*_COMMAND, ":", _COMMAND[-1].replace("prefix0", "prefix1")]
    one, two = own_regions(ranks, tmp_path), own_regions(ranks, tmp_path)
    assert one.prefix != two.prefix
    assert one.command == [word.replace("inflight_bench_8001_", str(one.prefix)) for word in ranks]


def test_command_without_a_prefix_and_one_of_docker_stay_as_they_are(tmp_path: Path) -> None:
    for command in (["tritonserver"], ["docker", "run", *_COMMAND]):
        assert own_regions(command, tmp_path).command == command
    assert not list(tmp_path.iterdir())


def test_command_stays_as_it_is_without_shared_memory(tmp_path: Path) -> None:
    assert own_regions(_COMMAND, tmp_path / "nosuch").command == _COMMAND


def test_region_that_appears_loses_the_rights_of_other_users(tmp_path: Path) -> None:
    regions = own_regions(_COMMAND, tmp_path)
    regions.keep_private()
    own, foreign = tmp_path / f"{regions.prefix}prefix0_{_UUID}", tmp_path / "another_programs_region"
    for path in (own, foreign):
        path.touch()
        path.chmod(0o644)
    deadline = time.monotonic() + 120
    while own.stat().st_mode & 0o077:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert foreign.stat().st_mode & 0o777 == 0o644


def test_stopped_server_leaves_nothing(tmp_path: Path) -> None:
    regions = own_regions(_COMMAND, tmp_path)
    (tmp_path / f"{regions.prefix}prefix0_{_UUID}").touch()
    regions.remove()
    assert not list(tmp_path.iterdir())


def test_regions_are_removed_once_their_server_is_dead_and_not_before(tmp_path: Path) -> None:
    foreign = tmp_path / "another_programs_region"
    foreign.touch()
    with _live_server(tmp_path) as (prefix, region):
        remove_dead_regions(tmp_path)
        assert region.exists()
        assert left_regions(tmp_path) == []
    [left] = left_regions(tmp_path)
    assert (left.prefix, left.count, left.size_bytes) == (prefix, 2, len("a prompt"))
    remove_dead_regions(tmp_path)
    assert list(tmp_path.iterdir()) == [foreign]


def test_region_without_a_lock_is_named_but_not_removed(tmp_path: Path) -> None:
    """A server that was started by hand may have it."""
    region = tmp_path / f"inflight_bench_8001_prefix0_{_UUID}"
    region.touch()
    remove_dead_regions(tmp_path)
    assert [left.prefix for left in left_regions(tmp_path)] == ["inflight_bench_8001_prefix0_"]
    assert region.exists()


def test_region_without_a_lock_is_not_named_while_a_process_has_it(tmp_path: Path) -> None:
    region = tmp_path / f"inflight_bench_8001_prefix0_{_UUID}"
    region.write_bytes(b"x" * 4096)
    with region.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        assert left_regions(tmp_path) == []


@pytest.mark.parametrize("name", ["inflight_bench_8001_abc_lock", "inflight_bench__lock", "inflight_bench_*_lock"])
def test_lock_of_another_form_removes_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    (tmp_path / f"inflight_bench_8001_prefix0_{_UUID}").touch()
    remove_dead_regions(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
