"""Options of a launch, by concern, and the combinations that are refused.

A field is named after its option on the command line, which is upstream's where upstream has one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from serving.errors import LaunchError
from serving.launch.addresses import LOOPBACK, ServerAddresses
from serving.launch.slurm import SlurmJob
from serving.launch.tritonserver import DEFAULT_EXIT_TIMEOUT_S, DEFAULT_LOADED_MODELS

DEFAULT_CONTAINER_IMAGE = "nvcr.io/nvidia/tritonserver:25.06-trtllm-python-py3"
DEFAULT_READY_TIMEOUT_S = 600.0
DEFAULT_ADDRESSES = ServerAddresses(LOOPBACK, 8000, 8001, 8002)


class Launcher(Enum):
    """The program that starts a model repository's server."""

    TRITONSERVER = "tritonserver"
    MPIRUN = "mpirun"
    DOCKER = "docker"
    SLURM = "slurm"


@dataclass(frozen=True, slots=True)
class Supervision:
    """Time limits of a server and the level of its log.

    ``ready_timeout_s`` bounds the start; ``exit_timeout_s`` is the time for requests in flight at the end. ``verbose`` raises
    the log level of rank 0.
    """

    ready_timeout_s: float = DEFAULT_READY_TIMEOUT_S
    exit_timeout_s: int = DEFAULT_EXIT_TIMEOUT_S
    verbose: bool = False


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """The server processes. ``tritonserver`` None: the first one on this machine; in a container or under Slurm, NVIDIA's path.

    ``gpu_count`` is required where the orchestrator spawns workers.
    """

    tritonserver: str | None = None
    world_size: int = 1
    tensorrt_llm_model_name: tuple[str, ...] = DEFAULT_LOADED_MODELS
    oversubscribe: bool = False
    trtllm_llmapi_launch: bool = False
    multi_model: bool = False
    disable_spawn_processes: bool = False
    gpu_count: int | None = None
    multimodal_gpu0_cuda_mem_pool_bytes: int = 0

    @property
    def spawns_processes(self) -> bool:
        """Whether the orchestrator spawns its workers."""
        return self.multi_model and not self.disable_spawn_processes


@dataclass(frozen=True, slots=True)
class ContainerOptions:
    """The container of docker and Slurm.

    ``container_image`` None is DEFAULT_CONTAINER_IMAGE for docker, and no container for Slurm. ``container_name`` None is a
    name with the gRPC port in it, which only one container at a time can have.
    """

    container_image: str | None = None
    container_mount: tuple[str, ...] = ()
    container_name: str | None = None
    shm_size: str = "2g"


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """One launch of the models in ``model_repo``. ``log_file`` receives all output of the processes."""

    launcher: Launcher
    model_repo: str
    addresses: ServerAddresses = DEFAULT_ADDRESSES
    log_file: str = "triton_log.txt"
    supervision: Supervision = field(default_factory=Supervision)
    processes: ProcessOptions = field(default_factory=ProcessOptions)
    container: ContainerOptions = field(default_factory=ContainerOptions)
    slurm: SlurmJob = field(default_factory=lambda: SlurmJob(nodes=1, tasks_per_node=1))

    @property
    def ranks(self) -> int:
        """Server processes of the launch, spawned workers not counted."""
        return self.slurm.tasks if self.launcher is Launcher.SLURM else self.processes.world_size


def check_options(options: LaunchOptions) -> None:
    """Raise LaunchError, naming the options, for values that are invalid or exclude each other."""
    processes = options.processes
    if options.launcher is Launcher.TRITONSERVER and options.ranks != 1:
        raise LaunchError(
            f"--world_size {options.ranks}: without MPI, tritonserver runs as a single process; use --launcher mpirun"
        )
    if processes.disable_spawn_processes and not processes.multi_model:
        raise LaunchError("--disable_spawn_processes requires --multi_model")
    if processes.spawns_processes:
        _check_spawning(processes, options.ranks)
    for name in processes.tensorrt_llm_model_name:
        if not name or "/" in name or name.strip() != name:
            raise LaunchError(f"--tensorrt_llm_model_name: {name!r} is not a model name; separate names with commas")
    _check_mounts(options)
    _check_slurm_headers(options.slurm)


def _check_spawning(processes: ProcessOptions, ranks: int) -> None:
    if ranks != 1:
        raise LaunchError(
            f"--multi_model spawns its own processes, so it starts with 1 rank, not {ranks}; "
            "omit the number of ranks, or add --disable_spawn_processes to start every rank"
        )
    if processes.trtllm_llmapi_launch:
        raise LaunchError("--multi_model and --trtllm_llmapi_launch both start workers; use only one of them")
    if processes.multimodal_gpu0_cuda_mem_pool_bytes:
        raise LaunchError(
            "--multimodal_gpu0_cuda_mem_pool_bytes: with --multi_model the spawned workers own the GPU memory, "
            "so Triton cannot have a pool of it"
        )
    if not processes.gpu_count:
        raise LaunchError("--multi_model needs the number of GPUs, and nvidia-smi reports none; set --gpu_count")


def _check_mounts(options: LaunchOptions) -> None:
    for mount in options.container.container_mount:
        if not all(mount.split(":")) or not 2 <= len(mount.split(":")) <= 3:
            raise LaunchError(f"--container_mount {mount}: use the form HOST_FOLDER:CONTAINER_FOLDER")
        if options.launcher is Launcher.SLURM and "," in mount:
            raise LaunchError(f"--container_mount {mount}: Slurm separates mounts by commas, so a path cannot contain one")


def _check_slurm_headers(job: SlurmJob) -> None:
    for option, value in (
        *(("--slurm_time", job.time), ("--slurm_account", job.account), ("--slurm_partition", job.partition)),
        *(("--slurm_job_name", job.job_name), ("--slurm_mpi", job.mpi), ("--log_file", job.output)),
    ):
        if value is not None and (not value or any(character.isspace() for character in value)):
            raise LaunchError(f"{option} {value!r}: use a single word; Slurm's headers allow no spaces")
