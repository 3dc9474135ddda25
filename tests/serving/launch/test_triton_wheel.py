"""The search for the server in the installed wheel; nothing is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from serving.launch.triton_wheel import TritonInstallation, find_triton, shared_libpython_dir, wheel_dir

pytestmark = pytest.mark.skipif(wheel_dir() is None or shared_libpython_dir() is None, reason="no Triton for this Python")


@pytest.fixture
def installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TritonInstallation:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return find_triton()


def test_backend_folder_is_made_in_the_users_cache(installation: TritonInstallation, tmp_path: Path) -> None:
    python = installation.backend_dir / "python"
    assert tmp_path in python.parents
    assert {path.name for path in python.iterdir()} == {
        "libtriton_python.so",
        "triton_python_backend_utils.py",
        "triton_python_backend_stub",
    }
    assert os.access(python / "triton_python_backend_stub", os.X_OK)
    assert os.access(installation.executable, os.X_OK)
    assert [path.name for path in installation.backend_dir.parent.iterdir()] == [installation.backend_dir.name]


def test_existing_backend_folder_is_reused(installation: TritonInstallation) -> None:
    marker = installation.backend_dir / "python" / "marker"
    marker.touch()
    assert find_triton() == installation
    assert marker.exists()


def test_environment_puts_this_python_first_and_is_offline(
    installation: TritonInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    monkeypatch.setenv("PYTHONHOME", "/wrong")
    environment = installation.environment()
    assert environment["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert environment["LD_LIBRARY_PATH"].split(os.pathsep) == [*map(str, installation.library_dirs), "/mine"]
    assert all(folder.is_dir() for folder in installation.library_dirs)
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert "PYTHONHOME" not in environment
