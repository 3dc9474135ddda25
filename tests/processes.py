"""Other processes as a test sees them: each may end between two looks, and its parent may reap it meanwhile."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from contextlib import suppress

import psutil


def is_at_work(process: psutil.Process) -> bool:
    """Whether it has not ended. An orphan that has ended stays a zombie until the machine's first process reaps it."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def words_of(process: psutil.Process) -> list[str]:
    """Its command line; without a word where it has ended."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def tree_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """A process that has not been waited for, and all below it."""
    root = psutil.Process(process.pid)
    return [root, *root.children(recursive=True)]


def suspend(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.suspend()


def resume(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.resume()


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """As when a host loses its power: none of its processes can say that it ends."""
    everything = tree_of(process)
    suspend(everything)
    for member in everything:
        with suppress(psutil.NoSuchProcess):
            member.kill()
