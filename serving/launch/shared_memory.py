"""Shared-memory regions of the Python backend, which hold prompts and answers: whose they are, and their removal.

``tritonserver`` names its regions with a prefix and leaves them where it is killed. So each supervised server has a prefix of
its own, ``inflight_bench_<port>_<token>_``, and a lock file with it that its supervisor holds: a prefix whose lock nobody holds
is that of a server that ended. Unlike process ids, locks hold across PID namespaces that share ``/dev/shm``.

The backend makes its regions readable by all whatever the umask is, so the supervisor takes that back as they appear.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import secrets
import select
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
_PREFIX = re.compile(r"(?<=shm-region-prefix-name=)(inflight_bench_[^_,]+_)")
_LOCK_NAME = re.compile(r"(inflight_bench_[^_]+_[0-9a-f]{12}_)lock")
_TOKEN_BYTES = 6
_IN_ATTRIB, _IN_CREATE = 0x4, 0x100  # sys/inotify.h
_EVENTS_BYTES = 65536
_PRIVATE_PERIOD_S = 1.0  # where the system has no inotify instance left


@dataclass(frozen=True, slots=True)
class OwnRegions:
    """A server's command with a prefix of its own. The prefix counts as alive until ``remove`` or the end of this process."""

    command: list[str]
    prefix: str | None
    folder: Path

    def keep_private(self) -> None:
        """From now on, until this process ends, take the rights of other users to regions as these appear."""
        if self.prefix is not None:
            Thread(target=_keep_private, args=(self.folder, self.prefix), daemon=True).start()

    def remove(self) -> None:
        """Remove the server's regions; its processes must have ended."""
        if self.prefix is not None:
            _remove(self.folder, self.prefix)


@dataclass(frozen=True, slots=True)
class LeftRegions:
    """Regions of a server that ended, and their bytes. ``prefix`` begins the name of each."""

    prefix: str
    count: int
    size_bytes: int


def own_regions(command: Sequence[str], folder: Path = SHARED_MEMORY) -> OwnRegions:
    """Give the server of ``command`` a prefix of its own; a command without a prefix stays as it is.

    So does one of docker, since a container has shared memory of its own. The ranks of one command share the new part of the
    prefix. Without a usable ``folder`` nothing changes.
    """
    words = () if Path(command[0]).name == "docker" else command
    found = next((match[1] for word in words if (match := _PREFIX.search(word))), None)
    while found is not None:
        prefix = f"{found}{secrets.token_hex(_TOKEN_BYTES)}_"
        try:
            if _hold(folder / f"{prefix}lock"):
                return OwnRegions([_PREFIX.sub(prefix, word) for word in command], prefix, folder)
        except OSError:
            break
    return OwnRegions(list(command), None, folder)


def remove_dead_regions(folder: Path = SHARED_MEMORY) -> None:
    """Remove this user's regions whose server ended without removing them."""
    for prefix, _ in _dead_prefixes(folder):
        _remove(folder, prefix)


def left_regions(folder: Path = SHARED_MEMORY) -> list[LeftRegions]:
    """This user's regions of servers that ended, by prefix; those of one prefix are one entry.

    Regions without a lock file, such as those of a server that was started by hand, count where no process has them open.
    """
    prefixes = [prefix for prefix, _ in _dead_prefixes(folder)]
    held = tuple(match[1] for path in folder.glob("inflight_bench_*_lock") if (match := _LOCK_NAME.fullmatch(path.name)))
    unlocked = {re.sub(r"[0-9a-f-]{36}$", "", path.name) for path in _mine(folder) if not path.name.startswith(held)}
    mapped = _mapped_names(folder) if unlocked else set()
    prefixes += [prefix for prefix in sorted(unlocked) if not any(name.startswith(prefix) for name in mapped)]
    regions = []
    for prefix in prefixes:
        sizes = [size for path in folder.glob(f"{prefix}*") if (size := _size(path)) is not None]
        regions.append(LeftRegions(prefix, len(sizes), sum(sizes)))
    return regions


def _keep_private(folder: Path, prefix: str) -> None:
    """Boost sets the rights of a region by a call after the one that creates it; both are events here."""
    libc = ctypes.CDLL(None, use_errno=True)
    watched = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    if watched >= 0:
        libc.inotify_add_watch(watched, os.fsencode(folder), _IN_ATTRIB | _IN_CREATE)
    while True:
        for path in folder.glob(f"{prefix}*"):
            with suppress(OSError):
                _take_rights(path)
        if select.select([watched] if watched >= 0 else [], [], [], _PRIVATE_PERIOD_S)[0]:
            with suppress(BlockingIOError):
                os.read(watched, _EVENTS_BYTES)


def _take_rights(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _hold(lock: Path) -> bool:
    """Make ``lock`` and hold it for the life of this process; False where another process took it for a dead one's."""
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return True
    os.close(descriptor)
    return False


def _dead_prefixes(folder: Path) -> Iterator[tuple[str, Path]]:
    """Prefixes, with their lock files, that no process holds; each is held here while it is handled."""
    for path in sorted(folder.glob("inflight_bench_*_lock")):
        match = _LOCK_NAME.fullmatch(path.name)
        if match is None:
            continue
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    yield match[1], path
            finally:
                os.close(descriptor)


def _remove(folder: Path, prefix: str) -> None:
    """Remove the regions, then the lock, which marks regions that are still to be removed."""
    lock = folder / f"{prefix}lock"
    for path in (*(path for path in folder.glob(f"{prefix}*") if path != lock), lock):
        with suppress(OSError):
            path.unlink()


def _mine(folder: Path) -> Iterator[Path]:
    for path in folder.glob("inflight_bench_*"):
        with suppress(OSError):
            if path.lstat().st_uid == os.geteuid():
                yield path


def _size(path: Path) -> int | None:
    try:
        return path.lstat().st_size
    except OSError:
        return None


def _mapped_names(folder: Path) -> set[str]:
    """Names of files in ``folder`` that a process of this user has mapped."""
    names = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            maps = Path("/proc", pid, "maps").read_text(errors="replace")
            names.update(re.findall(rf" {re.escape(str(folder))}/(inflight_bench_\S+)", maps))
    return names
