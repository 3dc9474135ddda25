"""What the processes below this one spend: CPU time, and time in which their busiest thread waited for a core."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Thread:
    """Seconds on a core, and seconds in which it was ready and had none; None where the kernel counts them not."""

    ran_s: float
    waited_s: float | None


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds of a process, user and system, and of each of its threads by its id."""

    process_s: float
    threads: Mapping[int, Thread]

    def since(self, earlier: Cpu) -> tuple[float, Thread]:
        """Seconds of the process, and those of the thread that ran longest."""
        spent = [_since(thread, earlier.threads.get(identity)) for identity, thread in self.threads.items()]
        return self.process_s - earlier.process_s, max(spent, key=lambda thread: thread.ran_s)


def _since(thread: Thread, earlier: Thread | None) -> Thread:
    if earlier is None:
        return thread
    waited_s = None if thread.waited_s is None or earlier.waited_s is None else thread.waited_s - earlier.waited_s
    return Thread(thread.ran_s - earlier.ran_s, waited_s)


def read_cpu(pid: int) -> Cpu:
    """Raises OSError for a process that has ended."""
    folder = Path(f"/proc/{pid}")
    return Cpu(_ran_s(folder), {int(task.name): _thread(task) for task in (folder / "task").iterdir()})


def _thread(task: Path) -> Thread:
    try:
        ran_ns, waited_ns, _ = (task / "schedstat").read_text().split()
    except FileNotFoundError:
        return Thread(_ran_s(task), None)
    return Thread(int(ran_ns) / 1e9, int(waited_ns) / 1e9)


def _ran_s(folder: Path) -> float:
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def named_processes() -> Iterator[tuple[str, int]]:
    """This process and all below it, by a short name: that of the program, or the last part of the script that it runs."""
    yield "client", os.getpid()
    for process in psutil.Process().children(recursive=True):
        try:
            words = process.cmdline()
        except psutil.Error:  # it has ended, or is about to
            continue
        scripts = [Path(word).name for word in words[1:] if word.endswith(".py")]
        instances = [word for word in words if word.startswith("tensorrt_llm_0_")]
        names = [*instances, *scripts, *(Path(word).name for word in words[:1]), "?"]
        yield names[0], process.pid
