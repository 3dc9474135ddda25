"""Hatchling build hook that compiles ``harness/clients/transport/event_reader.pyx`` in place.

Without a C compiler or Python's headers the build continues without it, and event streams are read by the pure Python
implementation: slower, with the same result.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MODULE = "harness.clients.transport.event_reader"


class CompileReader(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Adds the compiled module to wheels, which are then specific to this Python version and platform."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        try:
            compiled = compile_reader(Path(self.root))
        except (Exception, SystemExit) as error:  # any failure of a missing or incomplete compiler
            self.app.display_warning(f"{_MODULE} could not be compiled, so event streams are read more slowly: {error}")
            return
        build_data["artifacts"].append(f"/{compiled.relative_to(self.root)}")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def compile_reader(root: Path) -> Path:
    """Compile in place; returns the extension module. Raises exceptions of Cython and setuptools."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    source = root.joinpath(*_MODULE.split(".")).with_suffix(".pyx")
    with tempfile.TemporaryDirectory() as scratch:
        extensions = cythonize([Extension(_MODULE, [str(source)])], build_dir=scratch, quiet=True)
        command = build_ext(Distribution({"name": "inflight-bench", "ext_modules": extensions}))
        command.build_lib = command.build_temp = scratch
        command.ensure_finalized()
        command.run()
        [output] = map(Path, command.get_outputs())
        compiled = source.with_name(output.name)
        fresh = compiled.with_suffix(".new")
        fresh.write_bytes(output.read_bytes())
        fresh.replace(compiled)  # atomic: running processes keep the old file, new ones load a complete one
    return compiled


if __name__ == "__main__":
    print(compile_reader(Path(__file__).resolve().parent.parent))
