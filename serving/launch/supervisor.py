"""Process that runs one server and ends all its processes with its owner.

    python -m serving.launch.supervisor GRACE_S [--beside NAME COMMAND_JSON]… COMMAND [ARG …]

The owner holds the other end of this process's standard input. When that closes, because the owner closed it or died for any
reason, kill -9 included, the server receives SIGINT (Triton then finishes the requests in flight) and after GRACE_S seconds
SIGKILL, and every descendant of the server is reaped or killed.

The server's files and shared memory are this user's alone, and its shared memory is removed once it has ended.

A process beside the server (a proxy, a front end) lasts until the server has answered its last request; where it ends before,
the server is ended, too. A model whose process sends pulses also ends it, if that process ends or hangs (``pulse_watch.py``).
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time

from serving.launch.pulse_watch import PulseWatch
from serving.launch.shared_memory import own_regions, remove_dead_regions

_PRIVATE = 0o077  # prompts are in shared memory and in logs
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
PROCESS_NAME = "bench-launcher"  # 15 characters at most: prctl(2)
_BESIDE_END_S = 2.0
_LOOK_PERIOD_S = 0.2
_PART_LOST = 1  # exit status


def main(grace_s: float, command: list[str], beside: dict[str, list[str]]) -> int:
    """``beside``: the commands of the processes beside the server, by the name that a message has for them."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NAME, PROCESS_NAME.encode(), 0, 0, 0)  # measurements find all processes of the server by it
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # the server's orphans become children of this process
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a terminal's Ctrl-C goes to the whole group; only the owner ends the server
    os.umask(_PRIVATE)
    remove_dead_regions()
    regions = own_regions(command)
    command = regions.command
    watch = PulseWatch(time.monotonic())
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **watch.environment},
        pass_fds=[watch.writing_end],
        preexec_fn=lambda: _in_server(libc),
    )
    others = [
        subprocess.Popen(words, stdin=subprocess.DEVNULL, preexec_fn=lambda: _in_server(libc)) for words in beside.values()
    ]
    regions.keep_private()
    lost_model = _wait_for_end(watch, server, *others)
    lost = [] if lost_model is None else [lost_model]
    lost += [
        f"{name} ended with status {other.returncode}, so its server was stopped."
        for name, other in zip(beside, others, strict=True)
        if server.returncode is None and other.returncode is not None
    ]
    if server.poll() is None:
        for process in (*others, server):
            process.send_signal(signal.SIGINT)
        try:
            server.wait(grace_s)
        except subprocess.TimeoutExpired:
            print(f"The server did not end within {grace_s:g} s, so it was killed.", file=sys.stderr)  # noqa: T201  to the log
            server.kill()
            server.wait()
    for other in others:
        _end_other(other)
    _end_orphans()
    regions.remove()
    if lost:
        print(lost[0], file=sys.stderr)  # noqa: T201  to the log
        return _PART_LOST
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


def _in_server(libc: ctypes.CDLL) -> None:
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # in case this process is killed
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _wait_for_end(watch: PulseWatch, *processes: subprocess.Popen[bytes]) -> str | None:
    """Return when the owner's end of standard input closes or one of the processes ends, or, with a sentence, when that of a
    model is lost."""
    while all(process.poll() is None for process in processes):
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], _LOOK_PERIOD_S)
        if readable and not os.read(sys.stdin.fileno(), 1024):
            return None
        if (lost := watch.lost(time.monotonic())) is not None:
            return lost
    return None


def _end_other(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_BESIDE_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_orphans() -> None:
    deadline = time.monotonic() + 2.0
    while True:
        try:
            ended, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if ended:
            continue
        if time.monotonic() > deadline:
            for child in _children():
                os.kill(child, signal.SIGKILL)
        time.sleep(0.05)


def _children() -> list[int]:
    pid = os.getpid()
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as listing:
        return [int(child) for child in listing.read().split()]


if __name__ == "__main__":
    grace, *words = sys.argv[1:]
    others: dict[str, list[str]] = {}
    while words[0] == "--beside":
        _, name, command_json, *words = words
        others[name] = json.loads(command_json)
    sys.exit(main(float(grace), words, others))
