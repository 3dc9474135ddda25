"""Benchmarks run too long for the test suite, but must not break with changes elsewhere: each is imported here."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

_MODULES = sorted(path.stem for path in Path("benchmarks").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", _MODULES)
def test_imports(name: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}")
    assert module.__doc__
