"""From options to what will be run: a plan for a process of this machine, or a script for Slurm."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from serving.launch.addresses import EVERY_ADDRESS, ServerAddresses
from serving.launch.docker import Container, docker_command
from serving.launch.find_tritonserver import NVIDIA_TRITONSERVER, FoundTriton
from serving.launch.mpirun import mpirun_command, orchestrator_environment
from serving.launch.options import Launcher, LaunchOptions, check_options
from serving.launch.slurm import sbatch_script
from serving.launch.tritonserver import DEFAULT_EXIT_TIMEOUT_S, TritonServer, rank_command


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A command, what it needs of the environment beyond ours, and when it counts as ready.

    ``models`` must answer READY. When the command has ended, ``temporary_dir`` is removed, and what is left of its container.
    """

    command: tuple[str, ...]
    addresses: ServerAddresses
    models: tuple[str, ...]
    log: str
    environment: dict[str, str] = field(default_factory=dict)
    exit_timeout_s: int = DEFAULT_EXIT_TIMEOUT_S
    ready_timeout_s: float = 600.0
    in_container: bool = False
    temporary_dir: str | None = None


def shell_line(command: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """One line that a shell runs to the same effect."""
    assignments = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    return " ".join([*assignments, shlex.join(command)])


def plan_launch(options: LaunchOptions, triton: FoundTriton, models: tuple[str, ...]) -> LaunchPlan:
    """What ``tritonserver``, ``mpirun`` and ``docker`` run. Raises LaunchError for options that exclude each other."""
    check_options(options)
    addresses = _addresses(options)
    orchestration = _orchestration(options)
    if options.launcher is Launcher.DOCKER:
        container = _container(options)
        inner = replace(_server(options, FoundTriton(options.tritonserver or NVIDIA_TRITONSERVER)), log_file=None)
        inner = replace(inner, addresses=replace(addresses, host=EVERY_ADDRESS))
        command = docker_command(container, addresses, _processes(options, inner), orchestration)
        return _plan(options, command, models, {}, in_container=True)
    command = _processes(options, _server(options, triton))
    return _plan(options, command, models, {**triton.environment, **orchestration})


def plan_script(options: LaunchOptions) -> str:
    """The script for ``sbatch``. Raises LaunchError for options that exclude each other."""
    check_options(options)
    server = _server(options, FoundTriton(options.tritonserver or NVIDIA_TRITONSERVER))
    if options.slurm.container_image:  # a file in the container would be gone with it; Slurm keeps what is printed
        server = replace(server, log_file=None)
    mounts = (f"{options.model_repo}:{options.model_repo}", *options.container_mounts)
    job = replace(options.slurm, container_mounts=mounts if options.slurm.container_image else ())
    return sbatch_script(job, server, _orchestration(options))


def _plan(
    options: LaunchOptions,
    command: tuple[str, ...],
    models: tuple[str, ...],
    environment: dict[str, str],
    in_container: bool = False,
) -> LaunchPlan:
    return LaunchPlan(
        command=command,
        addresses=_addresses(options),
        models=models,
        log=options.log_file,
        environment=environment,
        exit_timeout_s=options.exit_timeout,
        ready_timeout_s=options.ready_timeout,
        in_container=in_container,
    )


def _processes(options: LaunchOptions, server: TritonServer) -> tuple[str, ...]:
    """One process, or as many as there are ranks; the orchestrator too needs MPI, for its workers."""
    if options.launcher is Launcher.MPIRUN or options.world_size > 1 or options.multi_model:
        return mpirun_command(server, options.world_size, options.oversubscribe)
    return rank_command(server, 0)


def _server(options: LaunchOptions, triton: FoundTriton) -> TritonServer:
    return TritonServer(
        executable=triton.executable,
        repository=options.model_repo,
        addresses=_addresses(options),
        backend_dir=triton.backend_dir,
        exit_timeout_s=options.exit_timeout,
        verbose=options.log,
        log_file=options.log_file,
        loaded_models=options.tensorrt_llm_model_name,
        gpu0_cuda_pool_bytes=options.multimodal_gpu0_cuda_mem_pool_bytes,
        spawning_gpus=options.gpu_count if options.spawns_processes else None,
        llmapi_launch=options.trtllm_llmapi_launch,
    )


def _addresses(options: LaunchOptions) -> ServerAddresses:
    return ServerAddresses(options.host, options.http_port, options.grpc_port, options.metrics_port)


def _orchestration(options: LaunchOptions) -> dict[str, str]:
    return orchestrator_environment(options.spawns_processes) if options.multi_model else {}


def _container(options: LaunchOptions) -> Container:
    return Container(
        image=options.container_image,
        name=options.container_name or f"inflight-bench-{options.grpc_port}",
        mounts=(f"{options.model_repo}:{options.model_repo}", *options.container_mounts),
        shm_size=options.shm_size,
    )
