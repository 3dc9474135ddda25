"""The options of ``bench serve`` by concern, and the launchers that each option applies to.

A field has the name of its option.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from bench_cli.declared import Concern, option, part
from bench_cli.engine_options import ENGINE_OPTION_NAMES
from bench_cli.serve.front_end_options import FrontEndOptions
from bench_cli.serve.pipeline_options import PipelineOptions
from bench_cli.serve.process_options import ContainersOptions, ProcessesOptions, SlurmOptions
from bench_cli.serve.proxy_options import ProxyOptions
from bench_cli.serve.running_options import AddressOptions, RunningOptions

if TYPE_CHECKING:
    from serving.launch.slurm import SlurmJob

EMBEDDED = "embedded"
SLURM = "slurm"
LAUNCHERS = (EMBEDDED, "tritonserver", "mpirun", SLURM, "docker")


_PROCESS_LAUNCHERS = LAUNCHERS[1:]
_BELONGS_TO: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *("engine_dir", "tokenizer_dir", "decoupled_mode", "triton_max_batch_size"),
            *("exclude_input_in_output", "accumulate_tokens", "upstream_release", "out_of_vocabulary_ids"),
            *("openai_port", "openai_model"),
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


@dataclass(frozen=True)
class LauncherOptions(Concern, title="Launcher"):
    """How the models are started, in four spellings."""

    launcher: str | None = option(
        None,
        type=click.Choice(LAUNCHERS),
        show_default="embedded; mpirun with --world_size, --multi_model or --oversubscribe",
        common=True,
        help="How to start the models. embedded: the five models over the CPU engine, on the server installed with bench. "
        "tritonserver: one process; mpirun: one rank per GPU; docker: a container; slurm: a script for sbatch. These serve "
        "--model_repo.",
    )
    slurm: bool = option(False, help="Same as --launcher slurm.")
    docker: bool = option(False, help="Same as --launcher docker.")
    no_mpi: bool = option(False, help="Same as --launcher tritonserver.")
    dry_run: bool = option(False, common=True, help="Print the command or script without starting anything.")

    @property
    def chosen(self) -> str:
        """The launcher of --launcher or a flag. Raises UsageError for two different ones."""
        flags = {SLURM: self.slurm, "docker": self.docker, "tritonserver": self.no_mpi}
        launchers = {launcher for launcher, is_set in flags.items() if is_set}
        if self.launcher:
            launchers.add(self.launcher)
        if len(launchers) > 1:
            raise click.UsageError(f"--launcher is given twice: {' and '.join(sorted(launchers))}")
        if launchers:
            return launchers.pop()
        return "mpirun" if self.given("world_size", "multi_model", "oversubscribe") else EMBEDDED


@dataclass(frozen=True)
class ServeOptions(Concern):
    """The options of one ``bench serve``."""

    how: LauncherOptions = part(LauncherOptions)
    pipeline: PipelineOptions = part(PipelineOptions)
    addresses: AddressOptions = part(AddressOptions)
    front_end: FrontEndOptions = part(FrontEndOptions)
    proxy: ProxyOptions = part(ProxyOptions)
    processes: ProcessesOptions = part(ProcessesOptions)
    container: ContainersOptions = part(ContainersOptions)
    slurm: SlurmOptions = part(SlurmOptions)
    running: RunningOptions = part(RunningOptions)

    @property
    def launcher(self) -> str:
        return self.how.chosen

    def slurm_job(self) -> SlurmJob:
        """The job of Slurm. Raises UsageError."""
        return self.slurm.job(self.processes.world_size, self.running.log_file)

    def check(self) -> None:
        """Raise UsageError for options that contradict each other."""
        for name, launchers in _BELONGS_TO.items():
            if self.launcher not in launchers and self.given(name):
                raise click.UsageError(f"--{name}: not with --launcher {self.launcher}; only with {', '.join(launchers)}")
        if self.given("name") and not self.running.background:
            raise click.UsageError("--name: only a server in the --background has a name")
        if self.given("openai_model") and self.front_end.openai_port is None:
            raise click.UsageError("--openai_model: only with --openai_port")
        processes = self.processes
        if self.given("gpu_count") and (not processes.multi_model or processes.disable_spawn_processes):
            raise click.UsageError("--gpu_count: only for the workers that --multi_model spawns")
        if self.launcher == SLURM and self.given("container_mount") and self.container.container_image is None:
            raise click.UsageError("--container_mount: without --container_image the job runs in no container")
        self.proxy.check_used(self.addresses.host, has_front_end=self.front_end.openai_port is not None)
        self.proxy.check_risk(self.addresses.host, can_have_proxy=self.launcher != SLURM)
        self.slurm_job()
