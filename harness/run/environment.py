"""The client's machine and software, for the manifest and for calibrations."""

from __future__ import annotations

import os
import platform
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench_records.manifest import Environment
from harness.clients.transport.event_streams import is_compiled

_PACKAGES = (
    "inflight-bench",
    "grpcio",
    "tritonclient",
    "nvidia-pytriton",
    "openvino-genai",
    "tokenizers",
    "transformers",
    "uvloop",
    "numpy",
)
_NVIDIA = Path("/proc/driver/nvidia")
_DRIVER_VERSION = re.compile(r"Kernel Module\b.*?\s(\d+(?:\.\d+)+)\s")
_GPU_MODEL = re.compile(r"^Model:\s*(.+?)\s*$", re.MULTILINE)


def describe_environment() -> Environment:
    """Machine, operating system and versions, without the names of machine and user."""
    return Environment(
        cpu=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        os=platform.system(),
        kernel=platform.release(),
        python=platform.python_version(),
        event_reader="compiled" if is_compiled else "interpreted",
        packages={name: number for name in _PACKAGES if (number := _version(name)) is not None},
        gpus=gpu_models(_NVIDIA),
        gpu_driver=gpu_driver_version(_NVIDIA),
    )


def gpu_models(folder: Path) -> tuple[str, ...] | None:
    """The names of the GPUs that NVIDIA's kernel module lists in ``folder``, by their address on the bus; None for none."""
    names = (_GPU_MODEL.search(_text(path)) for path in sorted(folder.glob("gpus/*/information")))
    return tuple(name[1] for name in names if name is not None) or None


def gpu_driver_version(folder: Path) -> str | None:
    """The version of NVIDIA's kernel module, from ``folder``; None without one."""
    found = _DRIVER_VERSION.search(_text(folder / "version"))
    return None if found is None else found[1]


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str | None:
    lines = _text(Path("/proc/cpuinfo")).splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)


def _text(path: Path) -> str:
    """The text of a file of the kernel; "" where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
