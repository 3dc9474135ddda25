"""Running a plan on this machine, and handing a script to Slurm."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from serving.errors import LaunchError
from serving.launch.planning import LaunchPlan
from serving.server import Server

_AFTERWARDS_TIMEOUT_S = 30


@contextmanager
def started(plan: LaunchPlan) -> Iterator[Server]:
    """The plan's server, started and not yet ready; it and all its processes are gone when the block is left."""
    program = plan.command[0]
    environment = {**os.environ, **plan.environment}
    if shutil.which(program, path=environment.get("PATH")) is None:
        put_away(replace(plan, afterwards=()))  # nothing ran, and what would be run afterwards is missing too
        raise LaunchError(f"{program} is not on PATH of this machine; --dry_run prints the command for another")
    try:
        with Server(plan.command, environment, plan.addresses, Path(plan.log), plan.exit_timeout_s) as server:
            yield server
    finally:
        put_away(plan)


@contextmanager
def running(plan: LaunchPlan, on_wait: Callable[[float], None] = lambda waited_s: None) -> Iterator[Server]:
    """The plan's server once every model is READY. Raises LaunchError, with the log's tail, when it does not come to that."""
    with started(plan) as server:
        server.wait_until_ready(plan.models, plan.ready_timeout_s, on_wait)
        yield server


def submit(script: Path) -> str:
    """Hand ``script`` to ``sbatch`` and return what it answers, the job's number. Raises LaunchError."""
    if shutil.which("sbatch") is None:
        raise LaunchError(f"sbatch is not on PATH of this machine; submit {script} where it is")
    done = subprocess.run(["sbatch", str(script)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LaunchError(f"sbatch refused {script}: {done.stderr.strip() or f'status {done.returncode}'}")
    return done.stdout.strip()


def put_away(plan: LaunchPlan) -> None:
    """Remove what a plan leaves behind when its command has ended; may be done twice."""
    if plan.temporary_dir is not None:
        shutil.rmtree(plan.temporary_dir, ignore_errors=True)
    if plan.afterwards:  # most often there is nothing left for it to do, and it says so
        try:
            subprocess.run(plan.afterwards, capture_output=True, timeout=_AFTERWARDS_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise LaunchError(f"'{' '.join(plan.afterwards)}' did not end; the container may still run") from error
