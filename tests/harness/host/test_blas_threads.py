"""The variables of BLAS's threads: set for a while, a user's own never changed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from harness.host.blas_threads import one_blas_thread

_NAMES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def _settings() -> list[str | None]:
    return [os.environ.get(name) for name in _NAMES]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _NAMES:
        monkeypatch.delenv(name, raising=False)


def test_one_thread_meanwhile_and_nothing_is_left_behind() -> None:
    with one_blas_thread():
        assert _settings() == ["1", "1", "1"]
    assert _settings() == [None, None, None]


@pytest.mark.parametrize("name", _NAMES)
def test_a_users_own_setting_stays(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "3")
    before = _settings()
    with one_blas_thread():
        assert _settings() == before
    assert _settings() == before


def test_a_numpy_that_is_loaded_meanwhile_makes_no_threads() -> None:
    code = (
        "import os\nfrom harness.host.blas_threads import one_blas_thread\n"
        "with one_blas_thread():\n    import numpy\n"
        "print(len(os.listdir('/proc/self/task')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"
