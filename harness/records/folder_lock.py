"""Who works in a run's folder: those who write hold it together, whoever makes its records again must have it alone.

The lock is the kernel's (``flock`` on the folder), so it is gone with the process that held it, however that ended.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held_with_others(folder: Path) -> Iterator[None]:
    """Hold ``folder`` as one of those who write. Raises BlockingIOError where somebody has it alone."""
    with _locked(folder, fcntl.LOCK_SH):
        yield


@contextmanager
def held_alone(folder: Path) -> Iterator[None]:
    """Hold ``folder`` alone. Raises BlockingIOError where anybody else holds it."""
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
        except OSError:  # a file system without locks: then nobody can be kept out
            pass
        yield
    finally:
        os.close(descriptor)
