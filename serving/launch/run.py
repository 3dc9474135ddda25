"""Running a plan on this machine, and handing a script to Slurm."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from serving.errors import LaunchError
from serving.launch.addresses import held_ports
from serving.launch.admin_key import with_key
from serving.launch.docker import remove_command, with_id_file
from serving.launch.first_request import check_token_ids
from serving.launch.plan import LaunchPlan, commands_beside, listening_places
from serving.launch.server import Server
from serving.launch.start_watch import children, wait_watched

_REMOVAL_TIMEOUT_S = 30
_LEAST_SECOND_TRY_S = 20.0


@contextmanager
def started(plan: LaunchPlan) -> Iterator[Server]:
    """The plan's server, started but perhaps not ready yet. On exit it and all its processes are gone."""
    program = plan.command[0]
    environment = {**os.environ, **plan.environment}
    try:
        if shutil.which(program, path=environment.get("PATH")) is None:
            raise LaunchError(f"{program} is not on PATH of this machine; --dry_run prints the command for another machine")
        with (
            _removed_container(plan) as command,
            Server(
                with_key(command, plan.admin_key),
                environment,
                plan.addresses,
                Path(plan.log),
                plan.supervision.exit_timeout_s,
                commands_beside(plan),
            ) as server,
        ):
            yield server
    finally:
        remove_temporary_dir(plan)


@contextmanager
def running(
    plan: LaunchPlan,
    on_wait: Callable[[float], None] = lambda waited_s: None,
    on_second_try: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201
) -> Iterator[Server]:
    """The plan's server, with every model READY. Raises LaunchError, with the log's tail, when it does not become ready, and
    where its ``core_model`` does not receive what is sent.

    A start that is lost, as ``start_watch.py`` says, is tried once more, and ``on_second_try`` is called with a sentence that
    says why. Triton listens when its models are loaded, seconds after its ports were chosen, so these are held.
    """
    with held_ports(listening_places(plan)), _tried_twice(plan, on_wait, on_second_try) as server:
        yield server


@contextmanager
def _tried_twice(plan: LaunchPlan, on_wait: Callable[[float], None], on_second_try: Callable[[str], None]) -> Iterator[Server]:
    deadline_s = time.monotonic() + plan.supervision.ready_timeout_s
    attempt = replace(plan, temporary_dir=None)  # both tries use it
    try:
        with started(attempt) as server:
            lost = _wait(server, attempt, plan.supervision.ready_timeout_s, on_wait)
            if lost is None:
                if plan.core_model is not None:
                    check_token_ids(plan.addresses, plan.core_model)
                yield server
                return
            _kill(server)
        on_second_try(f"The server's start failed ({lost}); starting it a second time.")
        with started(attempt) as server:
            left_s = max(deadline_s - time.monotonic(), _LEAST_SECOND_TRY_S)
            lost = _wait(server, attempt, left_s, on_wait)
            if lost is not None:
                _kill(server)
                raise LaunchError(f"the server's start failed twice ({lost}). {server.log_tail()}")
            yield server
    finally:
        remove_temporary_dir(plan)


def _wait(server: Server, plan: LaunchPlan, timeout_s: float, on_wait: Callable[[float], None]) -> str | None:
    if plan.stall_timeout_s is not None:
        return wait_watched(server, plan.models, timeout_s, plan.stall_timeout_s, on_wait)
    server.wait_until_ready(plan.models, timeout_s, on_wait)
    return None


def _kill(server: Server) -> None:
    """End a server that answered no request; its supervisor then ends the rest."""
    for child in children(server.supervisor_pid):
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def submit(script: Path) -> str:
    """Submit ``script`` with ``sbatch`` and return its output, which has the job's number. Raises LaunchError."""
    if shutil.which("sbatch") is None:
        raise LaunchError(f"sbatch is not on PATH of this machine; submit {script} on a machine with Slurm")
    done = subprocess.run(["sbatch", str(script)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LaunchError(f"sbatch refused {script}: {done.stderr.strip() or f'status {done.returncode}'}")
    return done.stdout.strip()


def remove_temporary_dir(plan: LaunchPlan) -> None:
    """Remove the plan's temporary folder once its command has ended; idempotent."""
    if plan.temporary_dir is not None:
        shutil.rmtree(plan.temporary_dir, ignore_errors=True)


@contextmanager
def _removed_container(plan: LaunchPlan) -> Iterator[tuple[str, ...]]:
    """The plan's command, which writes its container's id to a file; on exit the container with this id is removed.

    The name is no safe key: where another container has it, ``docker run`` fails, and removal would hit that container.
    """
    if not plan.in_container:
        yield plan.command
        return
    with tempfile.TemporaryDirectory(prefix="inflight-bench-") as folder:
        id_file = Path(folder) / "container_id"
        try:
            yield with_id_file(plan.command, str(id_file))
        finally:
            container_id = id_file.read_text(encoding="ascii").strip() if id_file.exists() else ""
            if container_id:  # empty or absent where docker made no container
                _remove(remove_command(container_id))


def _remove(command: tuple[str, ...]) -> None:
    """Run ``command``. Its failure is ignored: usually the container is gone already."""
    try:
        subprocess.run(command, capture_output=True, timeout=_REMOVAL_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"'{' '.join(command)}' did not finish; the container may still be running") from error
