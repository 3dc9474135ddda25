"""The file that a server logs to: one server's at a time, and never what a symbolic link points to."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from serving.errors import LaunchError

_DEVICES = Path("/dev")  # /dev/stdout is a link
_MOST_SERVERS = 1000  # in one folder


def open_own_log(path: Path) -> BinaryIO:
    """As ``open_log``, for one server: the lock lasts as long as this file is open in any process, thus also in the server.

    Raises LaunchError also where another server logs to it.
    """
    file = open_log(path)
    if not _is_locked(file):
        return file
    file.close()
    raise LaunchError(f"--log_file {path}: another server logs to it; name another file")


def open_log(path: Path) -> BinaryIO:
    """Open ``path`` to append to it. Raises LaunchError where it is a symbolic link, or cannot be written."""
    follow = 0 if path.parent == _DEVICES else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | follow, 0o600)
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise LaunchError(f"--log_file {path}: the log cannot be written ({reason}); name another file") from error
    return os.fdopen(descriptor, "ab")


def free_log(path: Path) -> Path:
    """``path``, or where another server logs to it, the first of ``NAME-2.txt``, ``NAME-3.txt``, … to which none does."""
    for number in range(1, _MOST_SERVERS):
        candidate = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        if not _has_server(candidate):
            return candidate
    return path


def _has_server(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return _is_locked(file)
    return False


def _is_locked(file: BinaryIO) -> bool:
    """Try to lock ``file``; False also where its file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno == errno.EWOULDBLOCK
    return False
