"""Launch plans: the process to start on this machine, or the script for Slurm."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from serving.front_end.settings import FrontEndSettings, front_end_command
from serving.launch.addresses import EVERY_ADDRESS, ServerAddresses
from serving.launch.admin_key import KEY_VARIABLE
from serving.launch.docker import Container, docker_command
from serving.launch.find_tritonserver import NVIDIA_TRITONSERVER, FoundTriton
from serving.launch.mpirun import mpirun_command, orchestrator_environment
from serving.launch.options import DEFAULT_CONTAINER_IMAGE, Launcher, LaunchOptions, Supervision, check_options
from serving.launch.slurm import sbatch_script
from serving.launch.tritonserver import TritonServer, rank_command
from serving.proxy.settings import ProxySettings, proxy_command


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """A server's command and the state in which it is ready.

    ``environment`` is what the command needs beyond the environment of this process. The server is ready when each of
    ``models`` is. When the command has ended, ``temporary_dir`` is removed, and the container where there is one. ``admin_key``
    is the key of the restricted protocols, for one start; ``command`` has KEY_VARIABLE in its place. With a ``proxy``, that
    listens at ``addresses``, and the server on loopback. A ``front_end`` listens at their ``openai_port``.

    A start sends token ids to the model ``core_model``, where there is one, and compares those that it received.

    With ``stall_timeout_s``, which needs Triton's processes on this machine, the start is watched and tried a second time.
    """

    command: tuple[str, ...]
    addresses: ServerAddresses
    repository: str
    models: tuple[str, ...]
    log: str
    supervision: Supervision = field(default_factory=Supervision)
    environment: dict[str, str] = field(default_factory=dict)
    in_container: bool = False
    temporary_dir: str | None = None
    stall_timeout_s: float | None = None
    admin_key: str | None = field(default=None, repr=False)
    proxy: ProxySettings | None = None
    front_end: FrontEndSettings | None = None
    core_model: str | None = None


def listening_places(plan: LaunchPlan) -> tuple[tuple[str, int], ...]:
    """Host and port of each place where the plan's processes will listen on this machine; none of a container's own."""
    addresses, proxy = plan.addresses, plan.proxy
    if plan.in_container:
        return ()
    places = [(addresses.host, port) for port in (addresses.http_port, addresses.grpc_port, addresses.metrics_port)]
    if addresses.openai_port is not None:
        places.append((addresses.host, addresses.openai_port))
    if proxy is not None:
        places += [(proxy.server_host, pair.server) for pair in (proxy.http, proxy.grpc, proxy.metrics)]
    return tuple(places)


def commands_beside(plan: LaunchPlan) -> dict[str, tuple[str, ...]]:
    """The commands of the processes beside the server, by the name that a message has for them."""
    commands = {}
    if plan.proxy is not None:
        commands["The proxy"] = proxy_command(plan.proxy)
    if plan.front_end is not None:
        commands["The OpenAI front end"] = front_end_command(plan.front_end)
    return commands


def shell_line(command: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """The equivalent command line of a shell, which must have set the variable of an admin key."""
    assignments = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    return " ".join([*assignments, *(f'"{word}"' if KEY_VARIABLE in word else shlex.quote(word) for word in command)])


def plan_launch(options: LaunchOptions, triton: FoundTriton, models: tuple[str, ...]) -> LaunchPlan:
    """The plan for ``tritonserver``, ``mpirun`` and ``docker``. Raises LaunchError for options that exclude each other."""
    check_options(options)
    orchestration = _orchestration(options)
    in_container = options.launcher is Launcher.DOCKER
    if in_container:
        command = _container_command(options, orchestration)
        environment = {}
    else:
        command = _processes_command(options, _server(options, triton))
        environment = {**triton.environment, **orchestration}
    return LaunchPlan(
        command=command,
        addresses=options.addresses,
        repository=options.model_repo,
        models=models,
        log=options.log_file,
        supervision=options.supervision,
        environment=environment,
        in_container=in_container,
    )


def container_name(addresses: ServerAddresses) -> str:
    """The name of a container where --container_name gives none: only one at a time can have it."""
    return f"inflight-bench-{addresses.grpc_port}"


def plan_script(options: LaunchOptions) -> str:
    """The script for ``sbatch``. Raises LaunchError for options that exclude each other."""
    check_options(options)
    server = _server(options, FoundTriton(options.processes.tritonserver or NVIDIA_TRITONSERVER))
    job, image = options.slurm, options.container.container_image
    if image:
        server = replace(server, log_file=None)  # a file in the container would be lost; Slurm keeps the standard output
        job = replace(job, container_image=image, container_mounts=_mounts(options))
    return sbatch_script(job, server, _orchestration(options))


def _processes_command(options: LaunchOptions, server: TritonServer) -> tuple[str, ...]:
    """One process, or one for each rank. The orchestrator needs MPI as well, for its workers."""
    processes = options.processes
    if options.launcher is Launcher.MPIRUN or processes.world_size > 1 or processes.multi_model:
        return mpirun_command(server, processes.world_size, processes.oversubscribe)
    return rank_command(server, 0)


def _container_command(options: LaunchOptions, environment: Mapping[str, str]) -> tuple[str, ...]:
    """``docker run`` of a server that listens on every address of its container, and logs to its output."""
    server = _server(options, FoundTriton(options.processes.tritonserver or NVIDIA_TRITONSERVER))
    server = replace(server, log_file=None, addresses=replace(options.addresses, host=EVERY_ADDRESS))
    container = Container(
        image=options.container.container_image or DEFAULT_CONTAINER_IMAGE,
        name=options.container.container_name or container_name(options.addresses),
        mounts=_mounts(options),
        shm_size=options.container.shm_size,
    )
    return docker_command(container, options.addresses, _processes_command(options, server), environment)


def _server(options: LaunchOptions, triton: FoundTriton) -> TritonServer:
    processes = options.processes
    return TritonServer(
        executable=triton.executable,
        repository=options.model_repo,
        addresses=options.addresses,
        backend_dir=triton.backend_dir,
        exit_timeout_s=options.supervision.exit_timeout_s,
        verbose=options.supervision.verbose,
        log_file=options.log_file,
        loaded_models=processes.tensorrt_llm_model_name,
        gpu0_cuda_pool_bytes=processes.multimodal_gpu0_cuda_mem_pool_bytes,
        spawning_gpus=processes.gpu_count if processes.spawns_processes else None,
        llmapi_launch=processes.trtllm_llmapi_launch,
    )


def _mounts(options: LaunchOptions) -> tuple[str, ...]:
    """The repository under its own path, then the mounts of --container_mount."""
    return (f"{options.model_repo}:{options.model_repo}", *options.container.container_mount)


def _orchestration(options: LaunchOptions) -> dict[str, str]:
    processes = options.processes
    return orchestrator_environment(processes.spawns_processes) if processes.multi_model else {}
