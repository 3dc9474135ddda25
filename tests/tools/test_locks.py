"""The locks: all that is installed is pinned, with the hashes of its files, and so are the tools that build the project."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_LOCKS = ("requirements.lock", "requirements-numpy2.lock", "requirements-image.lock")


def _entries(name: str) -> list[str]:
    text = (_ROOT / name).read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("name", _LOCKS)
def test_each_entry_is_one_version_with_hashes(name: str) -> None:
    entries = _entries(name)
    assert len(entries) > 50
    assert [entry for entry in entries if not re.match(r"[\w.-]+(\[[\w,-]+\])?==\S+ .*--hash=sha256:[0-9a-f]{64}", entry)] == []


@pytest.mark.parametrize("name", _LOCKS)
def test_the_tools_of_the_build_are_pinned_and_locked(name: str) -> None:
    tools = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    assert all("==" in tool for tool in tools)
    assert set(tools) <= {entry.split()[0] for entry in _entries(name)}


def test_every_environment_of_the_makefile_is_installed_by_hashes() -> None:
    installs = [line for line in (_ROOT / "Makefile").read_text(encoding="utf-8").splitlines() if "--requirement" in line]
    assert len(installs) == 2
    assert all("--require-hashes" in line for line in installs)
