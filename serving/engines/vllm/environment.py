"""The environment of vLLM: another one than that of Triton's models, since the two need different versions of NumPy."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping

from serving.errors import EngineError

_FIND_PACKAGES = "import importlib.util as u; print(*(name for name in ('vllm', 'msgspec', 'pytriton') if u.find_spec(name)))"
_FIND_TIMEOUT_S = 60
INSTALL_VLLM = "python3 -m venv DIR && DIR/bin/pip install vllm"
_HOW = f"make one with: {INSTALL_VLLM}"


def check_python(python: str) -> None:
    """Raise EngineError, with what to do, unless ``python`` has vLLM and lacks nvidia-pytriton."""
    if not python:
        raise EngineError(f"--engine vllm needs --engine_python, the Python of an environment with vLLM; {_HOW}")
    if shutil.which(python) is None:
        raise EngineError(f"--engine_python: {python} is no program; {_HOW}")
    try:
        done = subprocess.run(
            [python, "-c", _FIND_PACKAGES], capture_output=True, text=True, timeout=_FIND_TIMEOUT_S, env=environment(os.environ)
        )
    except subprocess.TimeoutExpired:
        raise EngineError(f"--engine_python: {python} did not answer for {_FIND_TIMEOUT_S} s") from None
    found = done.stdout.split()
    if done.returncode != 0:
        raise EngineError(f"--engine_python: {python} is no Python: {done.stderr.strip()[-200:]}")
    if "vllm" not in found or "msgspec" not in found:
        raise EngineError(f"--engine_python: {python} has no vLLM; {_HOW}")
    if "pytriton" in found:
        raise EngineError(
            f"--engine_python: {python} has vLLM and nvidia-pytriton in one environment. vLLM needs NumPy 2, "
            "with which Triton's models corrupt tensors; install them into two"
        )


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """The variables of vLLM's process, from those of a process that Triton may have started, without the wheel's libraries."""
    variables = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", **own, "PYTHONSAFEPATH": "1"}
    variables.pop("PYTHONHOME", None)
    libraries = [folder for folder in own.get("LD_LIBRARY_PATH", "").split(os.pathsep) if folder and "pytriton" not in folder]
    variables["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    return variables
