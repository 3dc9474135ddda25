"""Self-contained Python models for repositories that are served without this package.

A model gets copies of exactly the modules that it imports, beside its ``model.py``. They need ``numpy`` and ``tokenizers``
(both in NVIDIA's container) and Python 3.11 or newer.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

_PACKAGES = ("serving", "bench_errors")
_ROOT = Path(__file__).parents[2]

_MODEL = """\
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside this file take precedence

from {module} import TritonPythonModel  # noqa: E402, F401
"""


def write_self_contained_model(version_dir: Path, module: str) -> None:
    """Write ``model.py`` for the ``TritonPythonModel`` of ``module``, and this package's modules that it imports."""
    for name, source in vendored_sources(module).items():
        target = version_dir / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source, encoding="utf-8")
    (version_dir / "model.py").write_text(_MODEL.format(module=module), encoding="utf-8")


def vendored_sources(module: str) -> dict[str, str]:
    """Sources of ``module`` and of this package's modules that it imports, by path relative to the package's parent."""
    sources: dict[str, str] = {}
    pending = [module]
    while pending:
        name = pending.pop()
        path = _path_of(name)
        if path is None or path.as_posix() in sources:
            continue
        source = (_ROOT / path).read_text(encoding="utf-8")
        sources[path.as_posix()] = source
        pending += [name.rpartition(".")[0], *_imported(source)]
    return sources


def _path_of(module: str) -> Path | None:
    """File of a module of this package; None for another name, such as a function imported from a module."""
    path = Path(*module.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py") if module else ()
    return next((candidate for candidate in candidates if (_ROOT / candidate).is_file()), None)


@cache
def _imported(source: str) -> tuple[str, ...]:
    """The models of a repository share most modules, so each source is parsed once."""
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(name for name in names if name.split(".")[0] in _PACKAGES)
