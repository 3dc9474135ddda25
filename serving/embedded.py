"""The embedded pipeline: the five models on the wheel's Triton over the CPU engine, in one call."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from serving.repository import DRAFT_MODEL_NAME, MODEL_NAMES, RepositorySpec, write_repository
from serving.server import Server, ServerAddresses, triton_command
from serving.triton import find_triton

DEMO_ENGINE_DIR = Path(__file__).parent / "demo_engine"
READY_TIMEOUT_S = 180.0


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
    installation = find_triton()
    with tempfile.TemporaryDirectory(prefix="inflight-bench-") as temporary:
        repository = write_repository(spec, repository_dir or Path(temporary) / "repository")
        command = triton_command(installation, repository, addresses)
        with Server(command, installation.environment(), addresses, log) as server:
            draft = () if spec.draft_engine_dir is None else (DRAFT_MODEL_NAME,)
            server.wait_until_ready((*MODEL_NAMES, *draft), READY_TIMEOUT_S, on_wait)
            yield server
