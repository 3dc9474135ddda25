"""Hatchling build hook that compiles the readers of the hot path, which are written in Cython, in place.

Without a C compiler or Python's headers the build continues without them, and the pure Python implementations read: slower,
with the same result.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MODULES = ("harness.clients.transport.event_reader", "harness.clients.triton.message_reader")


class CompileReader(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Adds the compiled modules to wheels, which are then specific to this Python version and platform."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        try:
            compiled = compile_readers(Path(self.root))
        except (Exception, SystemExit) as error:  # any failure of a missing or incomplete compiler
            self.app.display_warning(f"{', '.join(_MODULES)} could not be compiled, so answers are read more slowly: {error}")
            return
        build_data["artifacts"] += [f"/{path.relative_to(self.root)}" for path in compiled]
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def compile_readers(root: Path) -> list[Path]:
    """Compile in place; returns the extension modules. Raises exceptions of Cython and setuptools."""
    sources = {module: root.joinpath(*module.split(".")).with_suffix(".pyx") for module in _MODULES}
    with tempfile.TemporaryDirectory() as scratch:
        return [_placed(output, source) for output, source in zip(compiled(sources, scratch), sources.values(), strict=True)]


def compiled(sources: Mapping[str, Path], scratch: str) -> list[Path]:
    """Compile modules, by name, in the folder ``scratch``; returns the extension modules. Raises as ``compile_readers``."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    extensions = [Extension(module, [str(source)]) for module, source in sources.items()]
    command = build_ext(
        Distribution({"name": "inflight-bench", "ext_modules": cythonize(extensions, build_dir=scratch, quiet=True)})
    )
    command.build_lib = command.build_temp = scratch
    command.ensure_finalized()
    command.run()
    return [Path(command.get_ext_fullpath(module)) for module in sources]


def _placed(output: Path, source: Path) -> Path:
    """Put a compiled module beside its source."""
    compiled = source.with_name(output.name)
    fresh = compiled.with_suffix(".new")
    fresh.write_bytes(output.read_bytes())
    fresh.replace(compiled)  # atomic: running processes keep the old file, new ones load a complete one
    return compiled


if __name__ == "__main__":
    for path in compile_readers(Path(__file__).resolve().parent.parent):
        print(path)
