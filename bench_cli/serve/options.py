"""The options of ``bench serve`` by concern, and the launchers that each option applies to.

A concern's option group and the dataclass that it fills are in one file; a field has the name of its option.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import cloup

from bench_cli.engine_options import ENGINE_OPTION_NAMES, engine_group, given, options_from
from bench_cli.serve.pipeline_options import PipelineOptions, model_group, read_pipeline_options
from bench_cli.serve.process_options import (
    SlurmOptions,
    container_group,
    processes_group,
    read_container_options,
    read_process_options,
    read_slurm_options,
    slurm_group,
)
from bench_cli.serve.proxy_options import ProxyOptions, proxy_group
from bench_cli.serve.running_options import AddressOptions, RunningOptions, addresses_group, running_group

if TYPE_CHECKING:
    from serving.launch.options import ContainerOptions, ProcessOptions

EMBEDDED = "embedded"
SLURM = "slurm"
LAUNCHERS = (EMBEDDED, "tritonserver", "mpirun", SLURM, "docker")


@dataclass(frozen=True)
class ServeOptions:
    """The options of one ``bench serve``. ``model_repo`` None: a temporary repository, of the embedded launcher alone."""

    launcher: str
    dry_run: bool
    model_repo: Path | None
    pipeline: PipelineOptions
    addresses: AddressOptions
    proxy: ProxyOptions
    running: RunningOptions
    processes: ProcessOptions
    container: ContainerOptions
    slurm: SlurmOptions


_launcher_group = cloup.option_group(
    "Launcher",
    cloup.option(
        "--launcher",
        type=click.Choice(LAUNCHERS),
        show_default="embedded; mpirun with --world_size or --multi_model",
        help="How to start the models. embedded: the five models over the CPU engine, on the server installed with bench. "
        "tritonserver, mpirun, docker: the repository of --model_repo in one process, in one rank per GPU, in a container. "
        "slurm: a script for sbatch.",
    ),
    cloup.option("--slurm", is_flag=True, help="Same as --launcher slurm."),
    cloup.option("--docker", is_flag=True, help="Same as --launcher docker."),
    cloup.option("--no_mpi", is_flag=True, help="Same as --launcher tritonserver."),
    cloup.option("--dry_run", is_flag=True, help="Print the exact command or script, and do nothing."),
)

_GROUPS = (
    _launcher_group, model_group, engine_group, addresses_group, proxy_group, processes_group, container_group, slurm_group,
    running_group,
)  # fmt: skip

_PROCESS_LAUNCHERS = LAUNCHERS[1:]
_BELONGS_TO: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *("engine", "engine_dir", "tokenizer_dir", "decoupled_mode", "triton_max_batch_size"),
            *("exclude_input_in_output", "accumulate_tokens"),
            *ENGINE_OPTION_NAMES,
        ),
        (EMBEDDED,),
    ),
    **dict.fromkeys(("tritonserver", "trtllm_llmapi_launch", "multimodal_gpu0_cuda_mem_pool_bytes"), _PROCESS_LAUNCHERS),
    **dict.fromkeys(("world_size", "tensorrt_llm_model_name"), _PROCESS_LAUNCHERS),
    **dict.fromkeys(("multi_model", "disable_spawn_processes", "gpu_count"), ("mpirun", SLURM, "docker")),
    "oversubscribe": ("mpirun", "docker"),
    **dict.fromkeys(("container_image", "container_mount"), ("docker", SLURM)),
    **dict.fromkeys(("container_name", "shm_size"), ("docker",)),
    **dict.fromkeys(
        (
            *("slurm_nodes", "slurm_tasks_per_node", "slurm_time", "slurm_account", "slurm_partition", "slurm_job_name"),
            *("slurm_mpi", "slurm_script", "submit"),
        ),
        (SLURM,),
    ),
    **dict.fromkeys(
        ("proxy", "allowed_hosts", "proxy_body_mib", "proxy_connections", "proxy_timeout"),
        (EMBEDDED, "tritonserver", "mpirun", "docker"),
    ),
    **dict.fromkeys(("background", "name", "ready_timeout"), (EMBEDDED, "tritonserver", "mpirun", "docker")),
}


def serve_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the group with every option of the bare command."""
    for group in reversed(_GROUPS):
        function = group(function)
    return function


def read_options(values: Mapping[str, Any]) -> ServeOptions:
    """The options, from the values that click passes. Raises UsageError for options that contradict each other."""
    launcher = _launcher(values)
    for name, launchers in _BELONGS_TO.items():
        if launcher not in launchers and given(name):
            raise click.UsageError(f"--{name}: not with --launcher {launcher}; only with {', '.join(launchers)}")
    running = options_from(RunningOptions, values)
    if given("name") and not running.background:
        raise click.UsageError("--name: only a server in the --background has a name")
    proxy = options_from(ProxyOptions, values)
    proxy.check_risk(values["host"], can_have_proxy=launcher != SLURM)
    return ServeOptions(
        launcher=launcher,
        dry_run=values["dry_run"],
        model_repo=values["model_repo"],
        pipeline=read_pipeline_options(values),
        addresses=options_from(AddressOptions, values),
        proxy=proxy,
        running=running,
        processes=read_process_options(values),
        container=read_container_options(values),
        slurm=read_slurm_options(values),
    )


def _launcher(values: Mapping[str, Any]) -> str:
    """The launcher of --launcher or a flag. Raises UsageError for two different ones."""
    flags = {"slurm": SLURM, "docker": "docker", "no_mpi": "tritonserver"}
    launchers = {launcher for flag, launcher in flags.items() if values[flag]}
    if values["launcher"]:
        launchers.add(values["launcher"])
    if len(launchers) > 1:
        raise click.UsageError(f"--launcher is given twice: {' and '.join(sorted(launchers))}")
    if launchers:
        return str(launchers.pop())
    needs_mpi = any(given(name) for name in ("world_size", "multi_model", "oversubscribe"))
    return "mpirun" if needs_mpi else EMBEDDED
