"""Options of the server processes of ``bench serve``: processes, container and Slurm job.

``serving.launch.options`` and ``serving.launch.slurm`` have the dataclasses that these become.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option

if TYPE_CHECKING:
    from serving.launch.options import ContainerOptions, ProcessOptions
    from serving.launch.slurm import SlurmJob

_COUNT = click.IntRange(1, 4096)


def _comma_separated(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


@dataclass(frozen=True)
class ProcessesOptions(Concern, title="Processes (all launchers but embedded)"):
    """The server's processes, by the fields of ``ProcessOptions``. ``gpu_count`` None: as many as the machine has."""

    tritonserver: str | None = option(
        None,
        show_default="the first one on this machine; in a container NVIDIA's",
        help="Server program. Searched: /opt/tritonserver/bin/tritonserver, then PATH, then the one installed with bench.",
    )
    world_size: int = option(1, type=_COUNT, common=True, help="Number of ranks (tp_size × pp_size), one GPU each.")
    tensorrt_llm_model_name: tuple[str, ...] = option(
        ("tensorrt_llm",),
        default="tensorrt_llm",
        callback=_comma_separated,
        help="Models that ranks above 0 load, separated by commas.",
    )
    oversubscribe: bool = option(False, help="mpirun may start more ranks than it has slots.")
    trtllm_llmapi_launch: bool = option(False, help="Start each rank through trtllm-llmapi-launch.")
    multi_model: bool = option(False, help="Orchestrator: several TensorRT-LLM models, each with spawned workers.")
    disable_spawn_processes: bool = option(False, help="Orchestrator whose workers are started beside it.")
    gpu_count: int | None = option(
        None, type=_COUNT, show_default="from nvidia-smi", help="GPUs for the workers of --multi_model."
    )
    multimodal_gpu0_cuda_mem_pool_bytes: int = option(
        0,
        type=click.IntRange(min=0),
        help="Triton's CUDA pool on GPU 0, for tensors between multimodal models; 0: Triton's default.",
    )

    def processes(self) -> ProcessOptions:
        """The processes, with the number of GPUs where the orchestrator spawns workers."""
        from serving.launch.find_tritonserver import count_gpus
        from serving.launch.options import ProcessOptions

        processes = ProcessOptions(**self.values())
        if processes.spawns_processes and processes.gpu_count is None:
            return replace(processes, gpu_count=count_gpus())
        return processes


@dataclass(frozen=True)
class ContainersOptions(Concern, title="Container (docker, slurm)"):
    """The container, by the fields of ``ContainerOptions``."""

    container_image: str | None = option(
        None, show_default="docker: NVIDIA's of 25.06; slurm: none", common=True, help="Container image."
    )
    container_mount: tuple[str, ...] = option(
        (),
        metavar="HOST:CONTAINER",
        common=True,
        help="Folder to mount: engines, tokenizers. The repository is mounted under its own path. Repeatable.",
    )
    container_name: str | None = option(None, show_default="inflight-bench-<gRPC port>", help="docker: the container's name.")
    shm_size: str = option("2g", help="docker: size of the shared memory, which carries tensors between models.")

    def container(self) -> ContainerOptions:
        """The container for the launch."""
        from serving.launch.options import ContainerOptions

        return ContainerOptions(**self.values())


@dataclass(frozen=True)
class SlurmOptions(Concern, title="Slurm"):
    """A Slurm job: the fields of ``SlurmJob`` with the prefix ``slurm_``, the path of its script, and whether to submit it."""

    slurm_nodes: int = option(1, type=_COUNT, help="Nodes.")
    slurm_tasks_per_node: int | None = option(
        None, type=_COUNT, show_default="world_size / nodes", help="Ranks per node: its GPUs."
    )
    slurm_time: str | None = option(None, help="Time limit in Slurm's format: 1:30:00.")
    slurm_account: str | None = option(None, help="Account.")
    slurm_partition: str | None = option(None, help="Partition.")
    slurm_job_name: str = option("tritonserver", help="Name of the job.")
    slurm_mpi: str = option("pmix", help="srun's --mpi.")
    slurm_script: Path = option(
        Path("tritonserver.sbatch"), type=click.Path(path_type=Path, dir_okay=False), help="File for the script."
    )
    submit: bool = option(False, help="Submit the script with sbatch.")

    def job(self, world_size: int, log_file: Path | None) -> SlurmJob:
        """The job for the launch. Raises UsageError where nodes and tasks contradict a given --world_size."""
        from serving.launch.slurm import SlurmJob

        values = self.values()
        own = {field.name: values[f"slurm_{field.name}"] for field in fields(SlurmJob) if f"slurm_{field.name}" in values}
        own["tasks_per_node"] = own["tasks_per_node"] or -(-world_size // own["nodes"])
        job = SlurmJob(**own, output=str(log_file) if self.given("log_file") else None)
        if self.given("world_size") and job.tasks != world_size:
            raise click.UsageError(
                f"--world_size {world_size}: {job.nodes} nodes of {job.tasks_per_node} tasks are {job.tasks}"
            )
        return job
