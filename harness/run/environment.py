"""The client's machine and software, for the manifest and for calibrations."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version

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
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as cpuinfo:
            return next((line.split(":", 1)[1].strip() for line in cpuinfo if line.startswith("model name")), None)
    except OSError:
        return None
