"""Checks of ``bench doctor``."""

import sys
from itertools import pairwise
from pathlib import Path

import pytest

from serving.launch import doctor
from serving.launch.doctor import EMBEDDED, Check, check_machine, left_memory
from serving.launch.shared_memory import LeftRegions
from tests.serving.engines.vllm_python import vllm_python


def test_a_machine_that_runs_these_tests_can_run_the_embedded_pipeline() -> None:
    missing = [check.name for check in check_machine() if check.needed_for == EMBEDDED and not check.ok]
    assert missing == []


def test_every_check_has_a_remedy() -> None:
    assert [check.name for check in check_machine() if not check.remedy] == []


def test_checks_are_grouped_by_purpose() -> None:
    purposes = [check.needed_for for check in check_machine()]
    changes = sum(purpose != other for purpose, other in pairwise(purposes))
    assert changes == len(set(purposes)) - 1


def test_static_python_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "shared_libpython_dir", lambda: None)
    [libpython] = [check for check in check_machine() if check.name == "shared libpython"]
    assert not libpython.ok
    assert "linked statically" in libpython.found


def test_another_version_of_tritons_wheel_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda package: "0.7.0")
    [triton] = [check for check in check_machine() if check.name == "Triton server"]
    assert not triton.ok
    assert triton.remedy == "pip install 'inflight-bench[embedded]'"


def _vllm(engine_python: str | None) -> Check:
    [vllm] = [check for check in check_machine(engine_python) if check.name == "vllm"]
    return vllm


def test_vllm_is_installed_into_an_environment_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside Triton it would bring the NumPy with which Triton's models corrupt tensors, so one there is no answer."""
    monkeypatch.setattr(doctor, "_version", lambda package: "0.32.0")
    vllm = _vllm(None)
    assert (vllm.ok, vllm.fault) == (False, "UNKNOWN")
    assert vllm.remedy == "python3 -m venv DIR && DIR/bin/pip install vllm, then bench doctor --engine_python DIR/bin/python"


def test_vllm_is_looked_for_in_the_environment_that_is_named(tmp_path: Path) -> None:
    python = vllm_python(tmp_path)
    assert _vllm(python) == Check("vLLM engine", "vllm", True, python)
    missing = _vllm(sys.executable)
    assert (missing.ok, missing.fault) == (False, "MISSING")
    assert missing.found.startswith(f"--engine_python: {sys.executable} has no vLLM")


def test_read_only_cache_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    [cache] = [check for check in check_machine() if check.name == "cache folder"]
    assert not cache.ok
    assert "XDG_CACHE_HOME" in cache.remedy


def test_left_shared_memory_is_named_with_the_command_that_removes_it() -> None:
    check = left_memory([LeftRegions("inflight_bench_8001_0123456789ab_", 4, 4 << 20)])
    assert not check.ok
    assert check.found == "4 files (4 MiB) of servers that ended may hold prompts"
    assert check.remedy == "rm -f /dev/shm/inflight_bench_8001_0123456789ab_*"
    assert left_memory([]).ok
