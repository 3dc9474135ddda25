"""Ctrl-C before a verb has started, or where Python would lose the exception: one word, status 130, no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from bench_errors import ExitStatus

_TOOLS = """
import os, signal, sys, time

class InterruptAt:
    def __init__(self, module):
        self.module = module

    def find_spec(self, name, path=None, target=None):
        if name == self.module:
            press()

class InterruptInFinalizer:
    def __del__(self):
        press()

def press():
    os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
"""
_MAIN = """
import bench_cli
bench_cli._run = verb
bench_cli.main([])
"""


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", _TOOLS + code], capture_output=True, text=True, check=False, timeout=200)


@pytest.mark.parametrize("module", ["click", "bench_cli.bench", "numpy", "serving.client.triton"])
def test_while_the_program_is_imported(module: str) -> None:
    done = _run(
        f"""
sys.meta_path.insert(0, InterruptAt({module!r}))
from bench_cli import main
main(["generate", "--url", "127.0.0.1:1", "-p", "hello"])
"""
    )
    assert done.returncode == ExitStatus.INTERRUPTED
    assert done.stderr.strip() == "interrupted"


def test_extension_module_is_loaded_before_the_exception_is_raised() -> None:
    done = _run(
        """
def verb(argv):
    sys.meta_path.insert(0, InterruptAt("decimal"))  # which msgspec._core imports
    try:
        import msgspec
        time.sleep(60)
    finally:
        print("msgspec._core" in sys.modules)
"""
        + _MAIN
    )
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "interrupted\n", ExitStatus.INTERRUPTED)


def test_exception_that_a_finalizer_loses_is_raised_again() -> None:
    done = _run(
        """
def verb(argv):
    InterruptInFinalizer()
    time.sleep(60)
"""
        + _MAIN
    )
    assert (done.stderr, done.returncode) == ("interrupted\n", ExitStatus.INTERRUPTED)


def test_a_second_press_interrupts_no_clean_up() -> None:
    done = _run(
        """
def verb(argv):
    try:
        InterruptInFinalizer()  # lost, and to be raised again
        press()
    finally:
        time.sleep(0.5)
        print("clean")
"""
        + _MAIN
    )
    assert (done.stdout, done.stderr, done.returncode) == ("clean\n", "interrupted\n", ExitStatus.INTERRUPTED)


def test_a_sigint_that_a_shell_ignores_in_the_background_stays_ignored() -> None:
    done = _run(
        """
signal.signal(signal.SIGINT, signal.SIG_IGN)

def verb(argv):
    press()
    return 0
"""
        + _MAIN
    )
    assert (done.stderr, done.returncode) == ("", ExitStatus.VALID)


def test_after_the_last_output_it_ends_a_program_that_hangs() -> None:
    done = _run(
        """
import threading

def hang():
    while signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:  # bench leaves it to the system after the last output
        time.sleep(0.01)
    press()
    time.sleep(60)

def verb(argv):
    threading.Thread(target=hang).start()
    print("done", flush=True)
    return 0
"""
        + _MAIN
    )
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", -signal.SIGINT)
