"""Ctrl-C before a verb has anything to put away: one word, status 130, never a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from harness.cli.exit_status import ExitStatus

_INTERRUPTED_AT = """
import os, signal, sys, time

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
"""
_BENCH = """
from harness.cli import main
main(["generate", "--url", "127.0.0.1:1", "-p", "hello"])
"""
_IMPORT = """
from harness.cli.signals import interrupt
signal.signal(signal.SIGINT, interrupt)
try:
    import msgspec
    time.sleep(60)
except KeyboardInterrupt:
    print("msgspec._core" in sys.modules)
"""
_FINALIZER = """
from harness.cli.signals import interrupt, interrupt_again
signal.signal(signal.SIGINT, interrupt)
sys.unraisablehook = interrupt_again

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

try:
    Finalized()
    time.sleep(60)
except KeyboardInterrupt:
    print("told")
"""


def _run(code: str, module: str) -> subprocess.CompletedProcess[str]:
    """Run ``code``; it gets SIGINT when it imports ``module``."""
    whole = _INTERRUPTED_AT.format(module=module) + code
    return subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=False, timeout=50)


@pytest.mark.parametrize("module", ["click", "harness.cli.verbs", "numpy", "serving.client"])
def test_while_the_program_is_imported(module: str) -> None:
    done = _run(_BENCH, module)
    assert done.returncode == ExitStatus.INTERRUPTED
    assert done.stderr.strip() == "interrupted"


def test_extension_module_is_made_before_the_exception_is_raised() -> None:
    assert _run(_IMPORT, "decimal").stdout == "True\n"  # which msgspec._core imports


def test_exception_that_a_finalizer_loses_comes_again() -> None:
    done = _run(_FINALIZER, "none")
    assert (done.stdout, done.stderr) == ("told\n", "")
