"""The embedded pipeline: the five models on the wheel's Triton over the CPU engine, deployed by one call."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from serving.engines import check_installed
from serving.errors import LaunchError
from serving.launch.addresses import ServerAddresses
from serving.launch.admin_key import new_key, restricted_apis
from serving.launch.behind_front_end import with_front_end
from serving.launch.options import Supervision
from serving.launch.plan import LaunchPlan
from serving.launch.run import running
from serving.launch.server import Server
from serving.launch.start_watch import STALL_TIMEOUT_S
from serving.launch.triton_wheel import find_triton
from serving.launch.tritonserver import TritonServer, rank_command
from serving.repository.pipeline import CORE_MODEL_NAME, MODEL_NAMES, RepositorySpec, write_repository

READY_TIMEOUT_S = 180.0
_OTHER_READY_TIMEOUT_S = 900.0  # weights of tens of gigabytes, and graphs of a GPU to capture
_LOADING_THREADS = 2  # Triton's 4 import at once, and the process of one that must wait for a core for a second is lost
_SPLIT_BY_A_SHELL = re.compile(r"""[\s"'`$&;|<>()\\]""")
_SUPERVISION = Supervision(ready_timeout_s=READY_TIMEOUT_S)


def ready_timeout_s(engine: str) -> float:
    """The time in which ``engine`` is loaded, unless something is wrong."""
    return READY_TIMEOUT_S if engine == "openvino" else _OTHER_READY_TIMEOUT_S


def embedded_plan(
    repository: Path,
    addresses: ServerAddresses,
    log: Path,
    *,
    models: tuple[str, ...] = MODEL_NAMES,
    supervision: Supervision = _SUPERVISION,
    make_backends: bool = True,
) -> LaunchPlan:
    """The plan by which the wheel's Triton serves ``repository``, which may be written later. Raises LaunchError."""
    _check_path("the model repository", repository, "Give another one with --model_repo, or set TMPDIR where it is temporary")
    installation = find_triton(make_backends)
    _check_path("its own files in", installation.backend_dir, "Set XDG_CACHE_HOME to another folder")
    server = TritonServer(
        executable=str(installation.executable),
        repository=str(repository),
        addresses=addresses,
        backend_dir=str(installation.backend_dir),
        exit_timeout_s=supervision.exit_timeout_s,
        verbose=supervision.verbose,
        log_file=str(log),
    )
    return LaunchPlan(
        command=(*rank_command(server, 0), f"--model-load-thread-count={_LOADING_THREADS}"),
        addresses=addresses,
        repository=str(repository),
        models=models,
        log=str(log),
        supervision=supervision,
        environment=installation.environment_changes(),
        stall_timeout_s=STALL_TIMEOUT_S,
    )


def _check_path(what: str, path: Path, remedy: str) -> None:
    """Raise LaunchError for a path that Triton's Python backend, which passes it through a shell and in ASCII, cannot read."""
    if not str(path).isascii() or _SPLIT_BY_A_SHELL.search(str(path)):
        raise LaunchError(
            f"Triton's Python backend cannot read {what} {path}: its path must be ASCII, without spaces, quotes and signs of a "
            f"shell such as $ and ;. {remedy}"
        )


def with_engine(plan: LaunchPlan, engine: str) -> LaunchPlan:
    """``plan`` for a repository with ``engine``.

    Only an engine on the CPU is watched: another may load long and use no CPU. Only an engine in the environment of the models
    has one that is known to suit Triton; with another the first request proves it.
    """
    return plan if engine == "openvino" else replace(plan, stall_timeout_s=None, core_model=CORE_MODEL_NAME)


@contextmanager
def deploy(
    spec: RepositorySpec,
    addresses: ServerAddresses,
    log: Path,
    repository_dir: Path | None = None,
    on_wait: Callable[[float], None] = lambda waited_s: None,
) -> Iterator[Server]:
    """Write the repository to ``repository_dir`` (None: a temporary folder), start Triton, and where ``addresses`` have a port
    for it the OpenAI front end, and wait until every model is READY.

    On exit the server and the temporary folder are gone. ``log`` receives the server's output. Nobody has the key of its
    administrative protocols.
    Raises RepositoryError for an invalid ``spec``, EngineError and LaunchError when the engine's library or Triton is missing,
    and LaunchError when the server does not become ready.
    """
    check_installed(spec.engine, spec.engine_options)
    with tempfile.TemporaryDirectory(prefix="inflight-bench-") as temporary:
        repository = repository_dir or Path(temporary) / "repository"
        restricted = replace(addresses, restricted_apis=restricted_apis(addresses.restricted_apis))
        patience = Supervision(ready_timeout_s=ready_timeout_s(spec.engine))
        plan = embedded_plan(repository, restricted, log, models=spec.model_names, supervision=patience)
        planned = replace(with_engine(plan, spec.engine), admin_key=new_key())
        if addresses.openai_port is not None:
            planned = with_front_end(planned, addresses, spec)
        write_repository(spec, repository)
        with running(planned, on_wait) as server:
            yield server
