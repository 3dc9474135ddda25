"""The lock on a run's folder: shared by the processes of a run, exclusive for the recovery of its records.

The lock is the kernel's (``flock`` on the folder), so it ends with the process that holds it, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def shared_lock(folder: Path) -> Iterator[None]:
    """Hold ``folder`` as one of its writers. Raises BlockingIOError where another process holds it exclusively."""
    with _locked(folder, fcntl.LOCK_SH):
        yield


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[None]:
    """Hold ``folder`` exclusively. Raises BlockingIOError where another process holds it."""
    with _locked(folder, fcntl.LOCK_EX):
        yield


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:  # a file system without locks: no process can be excluded
            pass
        yield
    finally:
        os.close(descriptor)
