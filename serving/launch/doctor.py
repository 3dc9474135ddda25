"""Checks of this machine for serving; ``bench doctor`` prints them."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from platformdirs import user_cache_path

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.vllm.environment import INSTALL_VLLM, check_python
from serving.errors import INSTALL_EMBEDDED, EngineError
from serving.launch.shared_memory import SHARED_MEMORY, LeftRegions, left_regions
from serving.launch.triton_wheel import shared_libpython_dir, wheel_dir

PINNED_PYTRITON = "0.6.0"
_MIN_SHM_BYTES = 64 << 20
_MIN_MEMORY_BYTES = 2 << 30
_MIN_FILES = 4096


@dataclass(frozen=True)
class Check:
    """One requirement. ``needed_for`` is the feature that requires it; ``remedy`` is the command or step that supplies it.

    ``fault`` names in a word what is wrong where it is not ``ok``.
    """

    needed_for: str
    name: str
    ok: bool
    found: str
    remedy: str = ""
    fault: str = "MISSING"


EMBEDDED = "embedded pipeline"
BUILD = "building engines"
TENSORRT_LLM = "TensorRT-LLM engine"
VLLM = "vLLM engine"
LAUNCH = "multi-GPU and cluster launch"
PRIVACY = "privacy of prompts"


def check_machine(engine_python: str | None = None) -> Iterator[Check]:
    """Every check, the embedded pipeline's first. ``engine_python`` is the Python of vLLM's environment, which is run. Nothing
    else of an engine is imported or started, and nothing is written.
    """
    yield from (check() for check in _EMBEDDED_CHECKS)
    yield _package(BUILD, "torch", "pip install 'inflight-bench[export]'")
    yield _package(BUILD, "optimum-intel", "pip install 'inflight-bench[export]'")
    gpus = _gpus()
    gpu_remedy = "use a machine with an NVIDIA GPU, and install NVIDIA's driver"
    yield Check(TENSORRT_LLM, "NVIDIA GPU", bool(gpus), gpus or "none found (nvidia-smi)", gpu_remedy)
    yield _package(TENSORRT_LLM, "tensorrt-llm", "pip install 'inflight-bench[tensorrt-llm]'")
    yield _ngc_server()
    yield Check(VLLM, "NVIDIA GPU", bool(gpus), gpus or "none found (nvidia-smi)", gpu_remedy)
    yield _vllm(engine_python)
    for program, remedy in _PROGRAMS:
        path = shutil.which(program)
        yield Check(LAUNCH, program, path is not None, path or "not on PATH", remedy)
    yield left_memory(left_regions())


def left_memory(left: Sequence[LeftRegions]) -> Check:
    """The check of shared memory that servers left, which may hold prompts and answers."""
    count, mebibytes = sum(regions.count for regions in left), sum(regions.size_bytes for regions in left) / 2**20
    found = f"{count} files ({mebibytes:.0f} MiB) of servers that ended may hold prompts" if left else "no server left any"
    remedy = "rm -f " + " ".join(f"{SHARED_MEMORY / regions.prefix}*" for regions in left)
    return Check(PRIVACY, "left shared memory", not left, found, remedy, "LEFT")


_PROGRAMS = (
    ("mpirun", "apt-get install openmpi-bin"),
    ("srun", "run on a node of a Slurm cluster"),
    ("docker", "install Docker Engine, and NVIDIA Container Toolkit for GPUs"),
)


def _platform() -> Check:
    found = f"{platform.system()} {platform.machine()}"
    return Check(EMBEDDED, "platform", found == "Linux x86_64", found, "use Linux on x86-64, Triton's only platform as a wheel")


def _python_stub() -> Check:
    package = wheel_dir()
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    stubs = sorted(p.name for p in (package / "tritonserver" / "python_backend_stubs").iterdir()) if package else []
    remedy = f"use one of Python {', '.join(stubs)}" if stubs else INSTALL_EMBEDDED
    return Check(EMBEDDED, "Triton stub for this Python", running in stubs, f"Python {running}", remedy)


def _triton() -> Check:
    found = _version("nvidia-pytriton")
    return Check(
        EMBEDDED,
        "Triton server",
        found == PINNED_PYTRITON,
        "not installed" if found is None else f"nvidia-pytriton {found}",
        INSTALL_EMBEDDED,
    )


def _libpython() -> Check:
    folder = shared_libpython_dir()
    remedy = "apt-get install libpython3-dev, or use a Python built with --enable-shared"
    return Check(EMBEDDED, "shared libpython", folder is not None, str(folder or "this Python is linked statically"), remedy)


def _openvino() -> Check:
    found = _version("openvino-genai")
    return Check(EMBEDDED, "OpenVINO GenAI", found is not None, found or "not installed", INSTALL_EMBEDDED)


def _demo_engine() -> Check:
    model = DEMO_ENGINE_DIR / "openvino_model.xml"
    return Check(EMBEDDED, "demo engine", model.is_file(), str(DEMO_ENGINE_DIR), "reinstall inflight-bench: files are missing")


def _cache() -> Check:
    folder = user_cache_path("inflight-bench")
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    writable = os.access(existing, os.W_OK)
    return Check(EMBEDDED, "cache folder", writable, str(folder), f"make {existing} writable, or set XDG_CACHE_HOME")


def _shared_memory() -> Check:
    shm = Path("/dev/shm")  # noqa: S108
    free = shutil.disk_usage(shm).free if shm.is_dir() else 0
    remedy = "make it larger (in a container: --shm-size=1g)"
    return Check(EMBEDDED, "shared memory", free >= _MIN_SHM_BYTES, f"{free >> 20} MiB free in {shm}", remedy)


def _memory() -> Check:
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        available = next((int(line.split()[1]) << 10 for line in meminfo if line.startswith("MemAvailable")), 0)
    return Check(
        EMBEDDED, "memory", available >= _MIN_MEMORY_BYTES, f"{available / 2**30:.1f} GiB available", "free 2 GiB of memory"
    )


def _open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or hard >= _MIN_FILES
    found = f"limit {soft}, can be raised to {hard}"
    return Check(EMBEDDED, "open files", enough, found, f"raise the hard limit to {_MIN_FILES}")


_EMBEDDED_CHECKS: tuple[Callable[[], Check], ...] = (
    _platform,
    _python_stub,
    _libpython,
    _triton,
    _openvino,
    _demo_engine,
    _cache,
    _shared_memory,
    _memory,
    _open_files,
)


def _package(needed_for: str, name: str, remedy: str) -> Check:
    found = _version(name)
    return Check(needed_for, name, found is not None, found or "not installed", remedy)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _vllm(engine_python: str | None) -> Check:
    """vLLM in the environment of ``engine_python``. It is not looked for in this one, where it could not be served from."""
    remedy = f"{INSTALL_VLLM}, then bench doctor --engine_python DIR/bin/python"
    if engine_python is None:
        return Check(VLLM, "vllm", False, "not looked for: it needs an environment of its own", remedy, "UNKNOWN")
    try:
        check_python(engine_python)
    except EngineError as error:
        return Check(VLLM, "vllm", False, str(error), remedy)
    return Check(VLLM, "vllm", True, engine_python)


def _gpus() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        listing = subprocess.run(
            [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return "; ".join(listing.stdout.strip().splitlines())


def _ngc_server() -> Check:
    server = Path("/opt/tritonserver/backends/tensorrtllm")
    remedy = "run in NVIDIA's container tritonserver:<yy.mm>-trtllm-python-py3"
    return Check(TENSORRT_LLM, "tensorrtllm backend", server.is_dir(), str(server) if server.is_dir() else "not found", remedy)
