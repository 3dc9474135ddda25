"""Search for this machine's ``tritonserver``, for the models of a repository, and for GPUs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from serving.errors import LaunchError
from serving.launch.triton_wheel import find_triton

NVIDIA_TRITONSERVER = "/opt/tritonserver/bin/tritonserver"


@dataclass(frozen=True, slots=True)
class FoundTriton:
    """A server executable, its backend folder (None: the server's default), and the environment variables that it needs."""

    executable: str
    backend_dir: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


def find_tritonserver(path: str | None, dry_run: bool = False) -> FoundTriton:
    """The server ``path`` (None: NVIDIA's in its usual place, else the first on PATH, else the one of Python's wheel).

    Raises LaunchError when ``path`` is not a program, or no server exists. A dry run does not check ``path``, and writes
    nothing.
    """
    if path is not None:
        executable = path if dry_run else shutil.which(path)
        if executable is None:
            raise LaunchError(f"--tritonserver {path}: there is no such program")
        return FoundTriton(executable)
    for candidate in (NVIDIA_TRITONSERVER, "tritonserver"):
        if (executable := shutil.which(candidate)) is not None:
            return FoundTriton(executable)
    wheel = find_triton(make_backends=not dry_run)
    return FoundTriton(str(wheel.executable), str(wheel.backend_dir), wheel.environment_changes())


def served_models(repository: Path) -> tuple[str, ...]:
    """Names of a repository's models, which are the folders with a ``config.pbtxt``. Raises LaunchError when there is none."""
    if not repository.is_dir():
        raise LaunchError(f"--model_repo {repository}: there is no such folder; write a repository with 'bench serve repo'")
    names = tuple(sorted(path.parent.name for path in repository.glob("*/config.pbtxt")))
    if not names:
        raise LaunchError(f"--model_repo {repository}: contains no model (a folder with a config.pbtxt)")
    return names


def count_gpus() -> int:
    """Number of GPUs that ``nvidia-smi`` lists; 0 where it is missing or fails."""
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return len(listed.stdout.strip().splitlines())
