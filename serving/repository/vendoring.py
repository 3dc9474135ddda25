"""Puts our Python models into a repository so that they run where this package is not installed.

A model gets copies of exactly the modules that it imports, beside its ``model.py``. They need ``numpy`` and ``transformers``
(both in NVIDIA's container) and Python 3.11 or newer.
"""

from __future__ import annotations

import ast
from pathlib import Path

_PACKAGES = ("serving", "bench_errors")
_ROOT = Path(__file__).parents[2]

_MODEL = """\
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside this file, whatever else is installed

from {module} import TritonPythonModel  # noqa: E402, F401
"""


def write_self_contained_model(version_dir: Path, module: str) -> None:
    """Write ``model.py`` for the ``TritonPythonModel`` of ``module``, and the modules of ours that it imports."""
    for name, source in vendored_sources(module).items():
        target = version_dir / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source, encoding="utf-8")
    (version_dir / "model.py").write_text(_MODEL.format(module=module), encoding="utf-8")


def vendored_sources(module: str) -> dict[str, str]:
    """The sources of ``module`` and of everything of ours that it imports, by path relative to where the package lies."""
    sources: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _path_of(name)
        if path is None or path.as_posix() in sources:
            continue
        source = (_ROOT / path).read_text(encoding="utf-8")
        sources[path.as_posix()] = source
        waiting += [name.rpartition(".")[0], *_imported(source)]
    return sources


def _path_of(module: str) -> Path | None:
    """The file of a module of ours; None for a name that is none, such as a function imported from one."""
    path = Path(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py") if module else ()
    return next((candidate for candidate in candidates if (_ROOT / candidate).is_file()), None)


def _imported(source: str) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in names if name.split(".")[0] in _PACKAGES]
