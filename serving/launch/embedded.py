"""The embedded pipeline: the five models on the wheel's Triton over the CPU engine, in one call."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.launch.addresses import ServerAddresses
from serving.launch.plan import LaunchPlan
from serving.launch.run import running
from serving.launch.server import Server
from serving.launch.triton_wheel import find_triton
from serving.launch.tritonserver import DEFAULT_EXIT_TIMEOUT_S, TritonServer, rank_command
from serving.repository.pipeline import MODEL_NAMES, RepositorySpec, write_repository

READY_TIMEOUT_S = 180.0


def embedded_plan(
    repository: Path,
    addresses: ServerAddresses,
    log: Path,
    *,
    models: tuple[str, ...] = MODEL_NAMES,
    exit_timeout_s: int = DEFAULT_EXIT_TIMEOUT_S,
    ready_timeout_s: float = READY_TIMEOUT_S,
    verbose: bool = False,
    make_backends: bool = True,
) -> LaunchPlan:
    """How the wheel's Triton serves ``repository``, which need not be written yet."""
    installation = find_triton(make_backends)
    server = TritonServer(
        executable=str(installation.executable),
        repository=str(repository),
        addresses=addresses,
        backend_dir=str(installation.backend_dir),
        exit_timeout_s=exit_timeout_s,
        verbose=verbose,
        log_file=str(log),
    )
    return LaunchPlan(
        command=rank_command(server, 0),
        addresses=addresses,
        models=models,
        log=str(log),
        environment=installation.environment_changes(),
        exit_timeout_s=exit_timeout_s,
        ready_timeout_s=ready_timeout_s,
    )


@contextmanager
def deploy(
    spec: RepositorySpec,
    addresses: ServerAddresses,
    log: Path,
    repository_dir: Path | None = None,
    on_wait: Callable[[float], None] = lambda waited_s: None,
) -> Iterator[Server]:
    """Write the repository (into a temporary folder unless ``repository_dir`` names one), start Triton, wait for READY.

    The server and the temporary folder are gone when the block is left. ``log`` receives the server's output.
    Raises RepositoryError for a wrong ``spec`` and LaunchError when the server does not become ready.
    """
    with tempfile.TemporaryDirectory(prefix="inflight-bench-") as temporary:
        repository = repository_dir or Path(temporary) / "repository"
        plan = embedded_plan(repository, addresses, log, models=spec.model_names)
        write_repository(spec, repository)
        with running(plan, on_wait) as server:
            yield server
