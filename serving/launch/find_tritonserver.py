"""Which ``tritonserver`` this machine has, and how many GPUs."""

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
    """A server, the backends it needs to be pointed to (None: it knows them), and what it needs of the environment."""

    executable: str
    backend_dir: str | None = None
    environment: dict[str, str] = field(default_factory=dict)


def find_tritonserver(named: str | None, dry_run: bool = False) -> FoundTriton:
    """The server named, else NVIDIA's in its usual place, else the first on PATH, else the one of Python's wheel.

    Raises LaunchError when the one named is no program, or there is none at all. A dry run believes the
    name, and writes nothing.
    """
    if named is not None:
        found = named if dry_run else shutil.which(named)
        if found is None:
            raise LaunchError(f"--tritonserver {named}: there is no such program")
        return FoundTriton(found)
    for candidate in (NVIDIA_TRITONSERVER, "tritonserver"):
        if (found := shutil.which(candidate)) is not None:
            return FoundTriton(found)
    wheel = find_triton(make_backends=not dry_run)
    return FoundTriton(str(wheel.executable), str(wheel.backend_dir), wheel.environment_changes())


def served_models(repository: Path) -> tuple[str, ...]:
    """Names of the models in a repository, each a folder with its ``config.pbtxt``. Raises LaunchError when there is none."""
    if not repository.is_dir():
        raise LaunchError(f"--model_repo {repository}: there is no such folder; write one with 'bench serve repo'")
    names = tuple(sorted(path.parent.name for path in repository.glob("*/config.pbtxt")))
    if not names:
        raise LaunchError(f"--model_repo {repository}: holds no model (a folder with a config.pbtxt)")
    return names


def count_gpus() -> int:
    """How many GPUs ``nvidia-smi`` lists; 0 where it is missing or fails."""
    try:
        listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    return len(listed.stdout.strip().splitlines())
