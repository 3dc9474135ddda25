"""The search for the server, a repository's models, and GPUs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from serving.errors import LaunchError
from serving.launch import find_tritonserver as find_tritonserver_module
from serving.launch.find_tritonserver import FoundTriton, count_gpus, find_tritonserver, served_models


def _program(folder: Path, name: str, text: str = "#!/bin/sh\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def path_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first folder on PATH; NVIDIA's usual place is replaced by a missing one."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(find_tritonserver_module, "NVIDIA_TRITONSERVER", str(tmp_path / "opt" / "tritonserver"))
    return tmp_path / "bin"


def test_given_server_is_used(tmp_path: Path) -> None:
    named = _program(tmp_path, "my-triton")
    assert find_tritonserver(str(named)) == FoundTriton(str(named))


def test_given_server_that_is_missing_is_refused_except_in_a_dry_run(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=f"--tritonserver {tmp_path}/none: there is no such program"):
        find_tritonserver(str(tmp_path / "none"))
    assert find_tritonserver("/opt/elsewhere/tritonserver", dry_run=True).executable == "/opt/elsewhere/tritonserver"


def test_nvidias_server_precedes_the_one_on_path_which_precedes_the_wheels(tmp_path: Path, path_folder: Path) -> None:
    wheels = find_tritonserver(None)
    assert "pytriton" in wheels.executable
    assert wheels.backend_dir is not None
    assert "LD_LIBRARY_PATH" in wheels.environment
    on_path = _program(path_folder, "tritonserver")
    assert find_tritonserver(None) == FoundTriton(str(on_path))
    nvidias = _program(tmp_path / "opt", "tritonserver")
    assert find_tritonserver(None) == FoundTriton(str(nvidias))


def test_models_of_a_repository_are_its_folders_with_a_configuration(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.pbtxt").touch()
    (tmp_path / "notes").mkdir()
    assert served_models(tmp_path) == ("a", "b")


def test_repository_that_is_missing_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=f"--model_repo {tmp_path}/none: there is no such folder"):
        served_models(tmp_path / "none")
    with pytest.raises(LaunchError, match=f"--model_repo {tmp_path}: contains no model"):
        served_models(tmp_path)


@pytest.mark.parametrize(
    ("script", "count"),
    [("echo 'GPU 0: X'; echo 'GPU 1: X'", 2), ("echo 'no driver' >&2; exit 9", 0), ("true", 0)],
    ids=["two", "fails", "none"],
)
def test_gpus_are_the_lines_of_nvidia_smi(path_folder: Path, script: str, count: int) -> None:
    _program(path_folder, "nvidia-smi", f"#!/bin/sh\n{script}\n")
    assert count_gpus() == count


def test_no_gpu_where_nvidia_smi_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert count_gpus() == 0
