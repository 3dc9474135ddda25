"""Watching a start of Triton with Python models: signs that it is lost, long before its time is over.

Triton 24.10 gives a model's process (its stub) up when that does not answer for one second while its model initialises, as
happens on a busy machine: it then waits for the end of the stub, which waits for Triton. It also waits without end for a stub
that died early, and a stub that dies with a lock ends Triton with ``lock_exception``. None of the hangs writes a line.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from serving.errors import LaunchError
from serving.front_end import settings as front_end
from serving.launch.server import Server
from serving.proxy import settings as proxy

STALL_TIMEOUT_S = 20.0
_PERIOD_S = 1.0
_DEAD_STUB_S = 1.0
_GIVEN_UP_S = 6.0  # Triton also waits, for a shorter time, for the processes of its checks
_LEAST_CPU_S = 0.4  # of all processes, between two signs of progress; idle ones use less in 20 s
_LEAST_DEMAND_NS = 2_000_000_000  # of one thread: on a full machine one that works may get next to no CPU
_LEAST_READ_BYTES = 1 << 20
_BESIDE = (proxy.PROCESS_NAME, front_end.PROCESS_NAME)
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_LONGEST_SIGN = 200  # bytes of a line that two reads may cut

_SIGNS = {
    b"lock_exception": "a lock of Triton's Python backend was lost (lock_exception)",
    b"is not healthy": "Triton gave a model's process up, which had not answered for a second",
    b"Failed to obtain the health mutex": "Triton gave a model's process up, which held a lock",
}
_LOADING = re.compile(rb'"loading: ([^:"]+):\d+"|"(?:successfully loaded|failed to load) \'([^\']+)\'')


class _LostError(Exception):
    """The start is lost for the reason in the message."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A server's processes: CPU of each, bytes that all read from disk, dead stubs, and threads that wait for a process.

    ``demand_ns`` is, for each thread of each, how long it ran or waited for a core.
    """

    cpu_ticks: Mapping[int, int]
    demand_ns: Mapping[int, int] = field(default_factory=dict)
    read_bytes: int = 0
    dead_stubs: frozenset[int] = frozenset()
    awaiting: frozenset[int] = frozenset()


class StartWatch:
    """Judges snapshots and the log after byte ``log_start``; times come from one clock, in seconds."""

    def __init__(self, log: Path, log_start: int, now_s: float, stall_timeout_s: float = STALL_TIMEOUT_S) -> None:
        self._log, self._read_to, self._end = log, log_start, b""
        self._stall_timeout_s = stall_timeout_s
        self._sign: str | None = None
        self._loading: dict[str, None] = {}
        self._progress_s = now_s
        self._at_progress = Snapshot({})
        self._since: dict[int, float] = {}

    @property
    def unloaded(self) -> list[str]:
        """Models whose loading began and did not end, by the log."""
        return list(self._loading)

    def sign_in_log(self) -> str | None:
        """Why the log says that the start is lost; None where it does not."""
        self._read_log()
        return self._sign

    def lost(self, snapshot: Snapshot, now_s: float) -> str | None:
        """Why the start is lost; None while it may succeed."""
        if self._read_log() or self._has_progress(snapshot):
            self._progress_s, self._at_progress = now_s, snapshot
        watched = snapshot.dead_stubs | snapshot.awaiting
        self._since = {task: self._since.get(task, now_s) for task in watched}
        if self._sign is not None:
            return self._sign
        if any(now_s - self._since[stub] >= _DEAD_STUB_S for stub in snapshot.dead_stubs):
            return "a model's process ended"
        if any(now_s - self._since[thread] >= _GIVEN_UP_S for thread in snapshot.awaiting):
            return "Triton gave a model's process up and waits for its end"
        if now_s - self._progress_s >= self._stall_timeout_s:
            return f"no progress for {self._stall_timeout_s:g} s: no line in the log, and its processes are idle"
        return None

    def _read_log(self) -> bool:
        """Read what is new in the log, and return whether anything is."""
        try:
            with self._log.open("rb") as file:
                file.seek(self._read_to)
                new = file.read()
        except OSError:
            return False
        self._read_to += len(new)
        text = self._end + new
        for match in _LOADING.finditer(text):
            if match[1]:
                self._loading[match[1].decode(errors="replace")] = None
            else:
                self._loading.pop(match[2].decode(errors="replace"), None)
        for sign, reason in _SIGNS.items():
            if self._sign is None and sign in text:
                self._sign = reason
        self._end = text[-_LONGEST_SIGN:].rpartition(b"\n")[2]
        return bool(new)

    def _has_progress(self, snapshot: Snapshot) -> bool:
        before = self._at_progress.cpu_ticks
        if snapshot.cpu_ticks.keys() != before.keys():
            return True
        demanded = self._at_progress.demand_ns
        if any(demand - demanded.get(thread, 0) >= _LEAST_DEMAND_NS for thread, demand in snapshot.demand_ns.items()):
            return True
        used = sum(ticks - before[pid] for pid, ticks in snapshot.cpu_ticks.items())
        return used >= _LEAST_CPU_S * _TICKS_PER_S or snapshot.read_bytes - self._at_progress.read_bytes >= _LEAST_READ_BYTES


def wait_watched(
    server: Server,
    models: Sequence[str],
    timeout_s: float,
    stall_timeout_s: float,
    on_wait: Callable[[float], None] = lambda waited_s: None,
) -> str | None:
    """As ``Server.wait_until_ready``, but return the reason as soon as the start is lost where a second try may help."""
    watch = StartWatch(server.log, server.log_start, time.monotonic(), stall_timeout_s)
    next_s = 0.0

    def look(waited_s: float) -> None:
        nonlocal next_s
        on_wait(waited_s)
        if waited_s >= next_s:
            next_s = waited_s + _PERIOD_S
            if (reason := watch.lost(take_snapshot(server.supervisor_pid), time.monotonic())) is not None:
                raise _LostError(reason)

    try:
        server.wait_until_ready(models, timeout_s, look)
    except _LostError as lost:
        unloaded = f"; not loaded: {', '.join(watch.unloaded)}" if watch.unloaded else ""
        return f"{lost}{unloaded}"
    except LaunchError:
        if not server.is_running() and (reason := watch.sign_in_log()) is not None:
            return reason
        raise
    return None


def take_snapshot(supervisor: int) -> Snapshot:
    """The processes below ``supervisor`` now, without a proxy and a front end, which work whatever the server does.

    Source: proc(5).
    """
    ticks: dict[int, int] = {}
    demand_ns: dict[int, int] = {}
    read_bytes = 0
    dead: set[int] = set()
    awaiting: set[int] = set()
    servers = {pid for pid in children(supervisor) if not _is_beside(pid)}
    for pid in chain(servers, *map(_descendants, servers)):
        with suppress(OSError, IndexError, ValueError):
            name, _, rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
            fields = rest.split()
            ticks[pid] = int(fields[11]) + int(fields[12])
            if fields[0] == "Z" and int(fields[1]) in servers and "(triton_python" in name:
                dead.add(pid)
            read = re.search(r"^read_bytes: (\d+)", Path(f"/proc/{pid}/io").read_text(encoding="ascii"), re.MULTILINE)
            read_bytes += int(read[1]) if read else 0
        for task in _threads(pid):
            with suppress(OSError, ValueError):
                ran_ns, waited_ns, _ = (task / "schedstat").read_text(encoding="ascii").split()
                demand_ns[int(task.name)] = int(ran_ns) + int(waited_ns)
    for server in servers:
        for task in _threads(server):
            with suppress(OSError):
                if (task / "wchan").read_text(encoding="ascii") == "do_wait":
                    awaiting.add(int(task.name))
    return Snapshot(ticks, demand_ns, read_bytes, frozenset(dead), frozenset(awaiting))


def children(pid: int) -> list[int]:
    """The processes that any thread of ``pid`` started and that were not reaped."""
    found = []
    for task in _threads(pid):
        with suppress(OSError):
            found += [int(child) for child in (task / "children").read_text(encoding="ascii").split()]
    return found


def _threads(pid: int) -> list[Path]:
    """The folders of its threads; none where it has ended, also while it is looked at, which ``Path.glob`` raises."""
    folder = Path(f"/proc/{pid}/task")
    try:
        return [folder / name for name in os.listdir(folder)]
    except OSError:
        return []


def _is_beside(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip() in _BESIDE
    except OSError:
        return False


def _descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from _descendants(child)
