"""The processes of runs end with the experiment or the search that they belong to."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench_cli.experiments.child_runs import _end_with

_MAKES_A_RUN = """
import sys
from pathlib import Path
from bench_cli.experiments import child_runs
from bench_cli.signals import signals_as_interrupt
folder = Path(sys.argv[1])
child_runs._command = lambda arguments, path: ["sh", "-c", sys.argv[2]]
with signals_as_interrupt():
    child_runs.make_run((), folder / "run", folder / "log")
"""


@contextmanager
def _making(folder: Path, run: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that makes runs, as an experiment does, and whose run is this shell command, which has written its pid."""
    command = [
        sys.executable,
        "-c",
        _MAKES_A_RUN,
        str(folder),
        f"echo $$ > {folder}/pid.new; mv {folder}/pid.new {folder}/pid; {run}",
    ]
    with subprocess.Popen(command, cwd=folder) as experiment:
        until = time.monotonic() + 60.0
        while not (folder / "pid").exists() and time.monotonic() < until:
            time.sleep(0.02)
        yield experiment


def _has_ended(pidfd: int) -> bool:
    readable, _, _ = select.select([pidfd], [], [], 30.0)
    os.close(pidfd)
    return bool(readable)


def test_a_run_ends_with_an_experiment_that_is_killed(tmp_path: Path) -> None:
    with _making(tmp_path, "exec sleep 120") as experiment:
        run = os.pidfd_open(int((tmp_path / "pid").read_text()))
        experiment.kill()
    assert _has_ended(run)


def test_a_run_has_the_time_to_stop_and_save(tmp_path: Path) -> None:
    stops = "trap 'sleep 1; echo saved > saved; exit 130' INT; touch ready; while :; do sleep 0.05; done"
    with _making(tmp_path, stops) as experiment:
        while not (tmp_path / "ready").exists():
            time.sleep(0.02)
        experiment.terminate()  # which comes to it alone, as from a scheduler of jobs
        experiment.wait(60.0)
    assert (tmp_path / "saved").exists()


def test_a_run_whose_search_ended_before_it_could_follow_it_does_not_start() -> None:
    another = partial(_end_with, os.getpid() + 1)
    ended = subprocess.run(["echo", "load"], stdout=subprocess.PIPE, preexec_fn=another, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")
