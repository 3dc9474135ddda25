"""Hatchling build hook that compiles ``harness/clients/transport/event_reader.pyx`` in place.

Where that cannot be done (no C compiler, no headers of Python) the build goes on without it, and streams of events are read by
the interpreter: slower, and with the same result.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MODULE = "harness.clients.transport.event_reader"


class CompileReader(BuildHookInterface):  # type: ignore[type-arg, misc]
    """Makes wheels that hold the compiled module, for this Python and machine alone."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        try:
            compiled = compile_reader(Path(self.root))
        except (Exception, SystemExit) as error:  # whatever a compiler that is missing, or half there, leads to
            self.app.display_warning(f"{_MODULE} could not be compiled, so streams of events are read more slowly: {error}")
            return
        build_data["artifacts"].append(f"/{compiled.relative_to(self.root)}")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def compile_reader(root: Path) -> Path:
    """Compile in place; returns what was made. Raises whatever Cython and setuptools do."""
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
        [made] = map(Path, command.get_outputs())
        compiled = source.with_name(made.name)
        fresh = compiled.with_suffix(".new")
        fresh.write_bytes(made.read_bytes())
        fresh.replace(compiled)  # a process that has it loaded keeps what it has, and one that starts finds one
    return compiled


if __name__ == "__main__":
    print(compile_reader(Path(__file__).resolve().parent.parent))
