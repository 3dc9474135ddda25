"""What can be asked of a launch, and which wishes exclude each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from serving.errors import LaunchError
from serving.launch.addresses import LOOPBACK
from serving.launch.slurm import SlurmJob
from serving.launch.tritonserver import DEFAULT_EXIT_TIMEOUT_S, DEFAULT_LOADED_MODELS

DEFAULT_CONTAINER_IMAGE = "nvcr.io/nvidia/tritonserver:25.06-trtllm-python-py3"


class Launcher(Enum):
    """How a model repository is brought up."""

    TRITONSERVER = "tritonserver"
    MPIRUN = "mpirun"
    DOCKER = "docker"
    SLURM = "slurm"


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """One launch of the models in ``model_repo``; fields are named after upstream's options where it has them.

    ``tritonserver`` None finds one on this machine (in a container or under Slurm: NVIDIA's path). ``gpu_count`` is
    needed where the orchestrator spawns workers. ``log_file`` receives everything that the processes print.
    ``container_name`` None is a name with the gRPC port in it, which only one launch at a time can have.
    """

    launcher: Launcher
    model_repo: str
    host: str = LOOPBACK
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    tritonserver: str | None = None
    world_size: int = 1
    tensorrt_llm_model_name: tuple[str, ...] = DEFAULT_LOADED_MODELS
    multi_model: bool = False
    disable_spawn_processes: bool = False
    gpu_count: int = 0
    multimodal_gpu0_cuda_mem_pool_bytes: int = 0
    oversubscribe: bool = False
    trtllm_llmapi_launch: bool = False
    exit_timeout: int = DEFAULT_EXIT_TIMEOUT_S
    ready_timeout: float = 600.0
    log: bool = False
    log_file: str = "triton_log.txt"
    container_image: str = DEFAULT_CONTAINER_IMAGE
    container_name: str | None = None
    container_mounts: tuple[str, ...] = ()
    shm_size: str = "2g"
    slurm: SlurmJob = field(default_factory=lambda: SlurmJob(nodes=1, tasks_per_node=1))

    @property
    def spawns_processes(self) -> bool:
        """Whether the orchestrator starts its workers itself."""
        return self.multi_model and not self.disable_spawn_processes


def check_options(options: LaunchOptions) -> None:
    """Raise LaunchError, naming the options, where wishes exclude each other."""
    ranks = options.slurm.tasks if options.launcher is Launcher.SLURM else options.world_size
    if options.launcher is Launcher.TRITONSERVER and ranks != 1:
        raise LaunchError(f"--world_size {ranks}: a tritonserver without MPI is one process; use --launcher mpirun")
    if options.disable_spawn_processes and not options.multi_model:
        raise LaunchError("--disable_spawn_processes is a way of --multi_model; give both")
    if options.spawns_processes and ranks != 1:
        raise LaunchError(
            f"--multi_model spawns its own processes, so it starts with 1, not {ranks}; "
            "leave the number out, or add --disable_spawn_processes and start them all"
        )
    if options.spawns_processes and options.trtllm_llmapi_launch:
        raise LaunchError("--multi_model and --trtllm_llmapi_launch are two ways to have workers; give one of them")
    if options.spawns_processes and options.multimodal_gpu0_cuda_mem_pool_bytes:
        raise LaunchError(
            "--multimodal_gpu0_cuda_mem_pool_bytes: with --multi_model the spawned workers own the GPUs' memory, "
            "so Triton can have no pool of it"
        )
    if options.spawns_processes and options.gpu_count < 1:
        raise LaunchError("--multi_model needs the number of GPUs, and nvidia-smi does not answer here; give --gpu_count")
    _check_names(options)


def _check_names(options: LaunchOptions) -> None:
    for name in options.tensorrt_llm_model_name:
        if not name or "/" in name or name.strip() != name:
            raise LaunchError(f"--tensorrt_llm_model_name: {name!r} is no model name; give names parted by commas")
    for mount in options.container_mounts:
        if not all(mount.split(":")) or not 2 <= len(mount.split(":")) <= 3:
            raise LaunchError(f"--container_mount {mount}: give HOST_FOLDER:CONTAINER_FOLDER")
        if options.launcher is Launcher.SLURM and "," in mount:
            raise LaunchError(f"--container_mount {mount}: Slurm parts mounts by commas, so a path cannot hold one")
    job = options.slurm
    for option, value in (
        *(("--slurm_time", job.time), ("--slurm_account", job.account), ("--slurm_partition", job.partition)),
        *(("--slurm_job_name", job.job_name), ("--slurm_mpi", job.mpi), ("--log_file", job.output)),
    ):
        if value is not None and (not value or any(character.isspace() for character in value)):
            raise LaunchError(f"{option} {value!r}: Slurm's headers take one word")
