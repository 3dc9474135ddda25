"""Reading files that others made: never one that has no end, or that waits for a writer."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def regular(path: Path) -> Path:
    """``path``, which is a regular file or a link to one. Raises OSError for a folder, a FIFO, a socket or a device."""
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return path
    code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    raise OSError(code, os.strerror(code) if stat.S_ISDIR(mode) else "not a regular file", str(path))


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """The content of a file; for one that is no regular file, as the end of a pipe, what is written to it.

    Raises OSError, and ValueError for more than ``most_bytes``.
    """
    with path.open("rb") as file:
        is_longer = os.fstat(file.fileno()).st_size > most_bytes  # of a pipe it is 0
        content = b"" if is_longer else file.read(most_bytes + 1)
    if is_longer or len(content) > most_bytes:
        raise ValueError(f"longer than {most_bytes:,} bytes")
    return content
