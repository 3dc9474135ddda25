"""Starts of the embedded server on a busy machine: how many succeed, and how many need their second try.

    python -m benchmarks.busy_starts [--starts 100] [--busy 3] [--longest_s 3600]

Busy loops run beside every start; one start alone and two at once take turns. A first try that fails is no failure of a start,
since the second follows by itself. Ends with status 1 where a start failed, or 3 % of the first tries or more did.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.errors import LaunchError
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import READY_TIMEOUT_S, embedded_plan
from serving.launch.options import Supervision
from serving.launch.run import running
from serving.repository.pipeline import RepositorySpec, write_repository

_MOST_LOST_FIRST_TRIES = 0.03
_LOOP = "import os; owner = os.getppid()\nwhile os.getppid() == owner: pass"
_SUPERVISION = Supervision(ready_timeout_s=READY_TIMEOUT_S, exit_timeout_s=1)


@dataclass(frozen=True)
class Start:
    """One start. ``lost`` is why its first try failed, None where it did not; ``error`` is None where the server was ready."""

    seconds: float
    lost: str | None
    error: str | None


def start(repository: Path, log: Path) -> Start:
    """Start a server over ``repository``, and stop it as soon as it is ready."""
    notes: list[str] = []
    began_s = time.monotonic()
    error = None
    ready_s = began_s
    try:
        with running(embedded_plan(repository, choose_addresses(), log, supervision=_SUPERVISION), on_second_try=notes.append):
            ready_s = time.monotonic()
    except LaunchError as failure:
        ready_s, error = time.monotonic(), str(failure)
    return Start(ready_s - began_s, notes[0] if notes else None, error)


@contextmanager
def busy(count: int) -> Iterator[None]:
    """``count`` processes that compute without end."""
    loops = [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def rounds(starts: int) -> Iterator[int]:
    """Numbers of starts at once: one and two in turns, ``starts`` in all."""
    for at_once in itertools.cycle((1, 2)):
        if starts <= 0:
            return
        yield min(at_once, starts)
        starts -= at_once


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--busy", type=int, default=3)
    parser.add_argument("--longest_s", type=float, default=3600.0)
    options = parser.parse_args()
    done: list[Start] = []
    deadline_s = time.monotonic() + options.longest_s
    with tempfile.TemporaryDirectory() as name, busy(options.busy), ThreadPoolExecutor(2) as pool:
        repository = write_repository(RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR), Path(name) / "repository")
        for number, at_once in enumerate(rounds(options.starts)):
            if time.monotonic() > deadline_s:
                print(f"Stopped after {options.longest_s:g} s.")
                break
            logs = [Path(name) / f"log{number}_{which}" for which in range(at_once)]
            for result in pool.map(start, itertools.repeat(repository, at_once), logs):
                done.append(result)
                print(f"{len(done)}: {result.seconds:.1f} s, {at_once} at once, load {os.getloadavg()[0]:.1f}", flush=True)
                for line in filter(None, (result.lost, result.error)):
                    print(f"   {line}", flush=True)
    failed = sum(result.error is not None for result in done)
    lost = sum(result.lost is not None for result in done)
    seconds = sorted(result.seconds for result in done)
    print(f"{len(done)} starts, {failed} failed; first tries that failed: {lost} ({lost / len(done):.1%})")
    print(f"seconds until ready: median {seconds[len(seconds) // 2]:.1f}, longest {seconds[-1]:.1f}")
    return int(failed > 0 or lost >= _MOST_LOST_FIRST_TRIES * len(done))


if __name__ == "__main__":
    sys.exit(main())
