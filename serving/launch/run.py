"""Running a plan on this machine, and handing a script to Slurm."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.errors import LaunchError
from serving.launch.docker import noting_command, remove_command
from serving.launch.plan import LaunchPlan
from serving.launch.server import Server

_REMOVAL_TIMEOUT_S = 30


@contextmanager
def started(plan: LaunchPlan) -> Iterator[Server]:
    """The plan's server, started and not yet ready; it and all its processes are gone when the block is left."""
    program = plan.command[0]
    environment = {**os.environ, **plan.environment}
    try:
        if shutil.which(program, path=environment.get("PATH")) is None:
            raise LaunchError(f"{program} is not on PATH of this machine; --dry_run prints the command for another")
        with (
            _own_container(plan) as command,
            Server(command, environment, plan.addresses, Path(plan.log), plan.exit_timeout_s) as server,
        ):
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


@contextmanager
def _own_container(plan: LaunchPlan) -> Iterator[tuple[str, ...]]:
    """The plan's command; of a container, with a note of its id, by which what is left of it is removed.

    Not by its name: where another container has the name, ``docker run`` fails, and the name is that other's.
    """
    if not plan.in_container:
        yield plan.command
        return
    with tempfile.TemporaryDirectory(prefix="inflight-bench-") as folder:
        id_file = Path(folder) / "container_id"
        try:
            yield noting_command(plan.command, str(id_file))
        finally:
            container_id = id_file.read_text(encoding="ascii").strip() if id_file.exists() else ""
            if container_id:  # otherwise none was made
                _remove(remove_command(container_id))


def _remove(command: tuple[str, ...]) -> None:
    """Run it; most often there is nothing left for it to do, and it says so."""
    try:
        subprocess.run(command, capture_output=True, timeout=_REMOVAL_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"'{' '.join(command)}' did not end; the container may still run") from error
