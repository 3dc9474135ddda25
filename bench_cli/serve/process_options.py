"""Options of the server processes of ``bench serve``: processes, container and Slurm job.

``serving.launch.options`` and ``serving.launch.slurm`` have the dataclasses that these groups fill.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from bench_cli.engine_options import given, options_from

if TYPE_CHECKING:
    from serving.launch.options import ContainerOptions, ProcessOptions
    from serving.launch.slurm import SlurmJob

_COUNT = click.IntRange(1, 4096)


def _comma_separated(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


processes_group = cloup.option_group(
    "Processes (all launchers but embedded)",
    cloup.option(
        "--tritonserver",
        show_default="the first one on this machine; in a container NVIDIA's",
        help="Server program. Searched: /opt/tritonserver/bin/tritonserver, then PATH, then the one installed with bench.",
    ),
    cloup.option("--world_size", type=_COUNT, default=1, help="Ranks, tp_size x pp_size of the engine: one GPU each."),
    cloup.option(
        "--tensorrt_llm_model_name",
        default="tensorrt_llm",
        callback=_comma_separated,
        help="Models that ranks above 0 load, separated by commas.",
    ),
    cloup.option("--oversubscribe", is_flag=True, help="mpirun may start more ranks than it has slots."),
    cloup.option("--trtllm_llmapi_launch", is_flag=True, help="Start each rank through trtllm-llmapi-launch."),
    cloup.option("--multi_model", is_flag=True, help="Orchestrator: several TensorRT-LLM models, each with spawned workers."),
    cloup.option("--disable_spawn_processes", is_flag=True, help="Orchestrator whose workers are started beside it."),
    cloup.option("--gpu_count", type=_COUNT, show_default="from nvidia-smi", help="GPUs for the workers of --multi_model."),
    cloup.option(
        "--multimodal_gpu0_cuda_mem_pool_bytes",
        type=click.IntRange(min=0),
        default=0,
        help="Triton's CUDA pool on GPU 0, for tensors between multimodal models; 0: Triton's default.",
    ),
)


def read_process_options(values: Mapping[str, Any]) -> ProcessOptions:
    """The options of ``processes_group``, with the number of GPUs where the orchestrator spawns workers."""
    from serving.launch.find_tritonserver import count_gpus
    from serving.launch.options import ProcessOptions

    processes = options_from(ProcessOptions, values)
    if processes.spawns_processes and processes.gpu_count is None:
        return replace(processes, gpu_count=count_gpus())
    return processes


container_group = cloup.option_group(
    "Container (docker, slurm)",
    cloup.option("--container_image", show_default="docker: NVIDIA's of 25.06; slurm: none", help="Container image."),
    cloup.option(
        "--container_mount",
        multiple=True,
        metavar="HOST:CONTAINER",
        help="Folder to mount: engines, tokenizers. The repository is mounted under its own path. Repeatable.",
    ),
    cloup.option("--container_name", show_default="inflight-bench-<gRPC port>", help="docker: the container's name."),
    cloup.option("--shm_size", default="2g", help="docker: size of the shared memory, which carries tensors between models."),
)


def read_container_options(values: Mapping[str, Any]) -> ContainerOptions:
    """The options of ``container_group``."""
    from serving.launch.options import ContainerOptions

    return options_from(ContainerOptions, values)


@dataclass(frozen=True)
class SlurmOptions:
    """A Slurm job, the path of its script, and whether to submit it."""

    job: SlurmJob
    slurm_script: Path
    submit: bool


slurm_group = cloup.option_group(
    "Slurm",
    cloup.option("--slurm_nodes", type=_COUNT, default=1, help="Nodes."),
    cloup.option("--slurm_tasks_per_node", type=_COUNT, show_default="world_size / nodes", help="Ranks per node: its GPUs."),
    cloup.option("--slurm_time", help="Time limit in Slurm's format: 1:30:00."),
    cloup.option("--slurm_account", help="Account."),
    cloup.option("--slurm_partition", help="Partition."),
    cloup.option("--slurm_job_name", default="tritonserver", help="Name of the job."),
    cloup.option("--slurm_mpi", default="pmix", help="srun's --mpi."),
    cloup.option(
        "--slurm_script",
        type=click.Path(path_type=Path, dir_okay=False),
        default=Path("tritonserver.sbatch"),
        help="File for the script.",
    ),
    cloup.option("--submit", is_flag=True, help="Submit the script with sbatch."),
)


def read_slurm_options(values: Mapping[str, Any]) -> SlurmOptions:
    """The options of ``slurm_group``: a field of SlurmJob has the name of its option, less the prefix ``slurm_``.

    Raises UsageError where nodes and tasks contradict --world_size.
    """
    from serving.launch.slurm import SlurmJob

    own = {field.name: values[f"slurm_{field.name}"] for field in fields(SlurmJob) if f"slurm_{field.name}" in values}
    world_size = values["world_size"]
    own["tasks_per_node"] = own["tasks_per_node"] or -(-world_size // own["nodes"])
    job = SlurmJob(**own, output=str(values["log_file"]) if given("log_file") else None)
    if given("world_size") and job.tasks != world_size:
        raise click.UsageError(f"--world_size {world_size}: {job.nodes} nodes of {job.tasks_per_node} tasks are {job.tasks}")
    return SlurmOptions(job, values["slurm_script"], values["submit"])
