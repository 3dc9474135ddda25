from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench_records.folder_lock import exclusive_lock, shared_lock

_HOLD = """
import sys
from pathlib import Path
from bench_records.folder_lock import shared_lock
with shared_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_shared_locks_coexist_and_exclude_an_exclusive_one(tmp_path: Path) -> None:
    with shared_lock(tmp_path), shared_lock(tmp_path), pytest.raises(BlockingIOError), exclusive_lock(tmp_path):
        raise AssertionError("it was had alone")
    with exclusive_lock(tmp_path):
        pass


def test_only_one_has_a_folder_alone(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path):
        for other in (exclusive_lock, shared_lock):
            with pytest.raises(BlockingIOError), other(tmp_path):
                raise AssertionError("it was had twice")


def test_kill_of_the_holder_gives_the_folder_free(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError), exclusive_lock(tmp_path):
            raise AssertionError("it was had alone")
        holder.kill()
    with exclusive_lock(tmp_path):
        pass
