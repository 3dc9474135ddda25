"""The Triton server of the ``nvidia-pytriton`` wheel, and the environment that it needs.

The Python backend needs its library, its helper module and the stub of the running Python version in one folder. That folder is
made in the user's cache, so that site-packages is never written to.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from platformdirs import user_cache_path

from serving.errors import INSTALL_EMBEDDED, LaunchError


@dataclass(frozen=True, slots=True)
class TritonInstallation:
    """A ``tritonserver`` executable, its backend folder and the folders of its shared libraries."""

    executable: Path
    backend_dir: Path
    library_dirs: tuple[Path, ...]

    def environment(self) -> dict[str, str]:
        """This process's environment, adapted to the server and to the stubs that it starts.

        The stub embeds the first ``python3`` on PATH, so this Python goes first; it ignores PYTHONPATH.
        """
        env = dict(os.environ)
        env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', '')}"
        libraries = [*map(str, self.library_dirs), *filter(None, [env.get("LD_LIBRARY_PATH")])]
        env["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
        env.pop("PYTHONHOME", None)
        env["HF_HUB_OFFLINE"] = "1"
        env["TOKENIZERS_PARALLELISM"] = "false"
        return env

    def environment_changes(self) -> dict[str, str]:
        """The variables that ``environment`` changes; a removed variable is empty, which Python treats as unset."""
        changed = {name: value for name, value in self.environment().items() if os.environ.get(name) != value}
        return changed | ({"PYTHONHOME": ""} if os.environ.get("PYTHONHOME") else {})


def find_triton(make_backends: bool = True) -> TritonInstallation:
    """The server of the installed wheel; makes its backend folder where it is missing. Raises LaunchError for missing parts.

    Without ``make_backends`` nothing is written, and the folder may not exist.
    """
    package = wheel_dir()
    if package is None:
        raise LaunchError(f"Triton is not installed; install it with: {INSTALL_EMBEDDED}")
    server = package / "tritonserver"
    stub = server / "python_backend_stubs" / _python_version() / "triton_python_backend_stub"
    if not stub.is_file():
        versions = sorted(path.name for path in (server / "python_backend_stubs").iterdir())
        raise LaunchError(f"Triton's wheel has no stub for Python {_python_version()}; it has {', '.join(versions)}")
    libpython = shared_libpython_dir()
    if libpython is None:
        raise LaunchError(
            f"this Python has no shared library ({_libpython_name()}), which Triton's Python backend embeds; "
            "install it (Debian: apt-get install libpython3-dev) or use a Python built with --enable-shared"
        )
    return TritonInstallation(
        executable=server / "bin" / "tritonserver",
        backend_dir=_make_backend_dir(server, stub) if make_backends else _backend_dir(),
        library_dirs=(package.parent / "nvidia_pytriton.libs", libpython),
    )


def wheel_dir() -> Path | None:
    """The folder of the ``pytriton`` package, without its slow import; None where it is not installed."""
    spec = importlib.util.find_spec("pytriton")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def shared_libpython_dir() -> Path | None:
    """The folder of this interpreter's ``libpython3.X.so``, or None where Python is linked statically."""
    name = _libpython_name()
    folders = [sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib", sysconfig.get_config_var("LIBPL")]
    multiarch = sysconfig.get_config_var("MULTIARCH")
    folders += [f"/usr/lib/{multiarch}"] if multiarch else []
    for folder in filter(None, folders):
        if any(Path(folder).glob(f"{name}*")):
            return Path(folder)
    return None


def _libpython_name() -> str:
    return f"libpython{_python_version()}.so"


def _python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _backend_dir() -> Path:
    return user_cache_path("inflight-bench") / f"backends-{version('nvidia-pytriton')}-py{_python_version()}"


def _make_backend_dir(server: Path, stub: Path) -> Path:
    """``…/python/`` with library, helper and stub, made atomically, so that a concurrent launch never sees it incomplete."""
    backends = _backend_dir()
    if backends.is_dir():
        return backends
    source = server / "backends" / "python"
    temporary = backends.with_name(f"{backends.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    (temporary / "python").mkdir(parents=True)
    for file in (source / "libtriton_python.so", source / "triton_python_backend_utils.py", stub):
        shutil.copy2(file, temporary / "python" / file.name)
    try:
        temporary.rename(backends)
    except OSError:  # another process was faster; its folder is equivalent
        shutil.rmtree(temporary, ignore_errors=True)
    return backends
