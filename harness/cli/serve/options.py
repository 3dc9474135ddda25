"""The options of ``bench serve``, and which of them belong to which launcher."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import cloup

from harness.cli.engine_options import ENGINE_OPTION_NAMES, engine_group, given

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)
_PORT = click.IntRange(1, 65535)
_COUNT = click.IntRange(1, 4096)
_TOKENS = click.IntRange(1, 2**31 - 1)

EMBEDDED = "embedded"
LAUNCHERS = (EMBEDDED, "tritonserver", "mpirun", "slurm", "docker")

_launcher = cloup.option_group(
    "Launcher",
    cloup.option(
        "--launcher",
        type=click.Choice(LAUNCHERS),
        show_default="embedded; mpirun with --world_size or --multi_model",
        help="What brings the models up. embedded: the five models over the CPU engine, on the server that came with bench. "
        "tritonserver, mpirun, docker: the repository of --model_repo in one process, in one rank a GPU, in a container. "
        "slurm: a script for sbatch.",
    ),
    cloup.option("--slurm", is_flag=True, help="The same as --launcher slurm."),
    cloup.option("--docker", is_flag=True, help="The same as --launcher docker."),
    cloup.option("--no_mpi", is_flag=True, help="The same as --launcher tritonserver."),
    cloup.option("--dry_run", is_flag=True, help="Print the exact command or script, and do nothing."),
)

_model = cloup.option_group(
    "Model",
    cloup.option(
        "--model_repo",
        type=_FOLDER,
        help="embedded: write the repository here and keep it (default: temporary). Else: serve it.",
    ),
    cloup.option(
        "--engine",
        type=click.Choice(["openvino", "tensorrt_llm"]),
        default="openvino",
        help="What runs the network: OpenVINO on the CPU, or TensorRT-LLM's LLM API on a GPU.",
    ),
    cloup.option("--engine_dir", type=_FOLDER, help="Engine folder made by 'bench engine build'. Default: the demo engine."),
    cloup.option("--tokenizer_dir", type=_FOLDER, help="Tokenizer folder. Default: the engine's."),
    cloup.option("--decoupled_mode/--no_decoupled_mode", default=True, help="Deploy decoupled models, which can stream."),
    cloup.option("--triton_max_batch_size", type=click.IntRange(1, 2**31 - 1), default=128, help="Triton's batch size limit."),
    cloup.option("--exclude_input_in_output", is_flag=True, help="Leave the prompt out of unstreamed answers by default."),
    cloup.option("--accumulate_tokens", is_flag=True, help="tensorrt_llm_bls streams the whole text so far each time."),
    help="All but --model_repo shape the embedded repository; another says these things itself.",
)

_addresses = cloup.option_group(
    "Addresses",
    cloup.option(
        "--host",
        default="127.0.0.1",
        help="Address to listen on. Another than loopback opens the server to whoever reaches it: Triton has no login.",
    ),
    cloup.option("--http_port", type=_PORT, show_default="embedded: a free port; else 8000", help="HTTP port."),
    cloup.option("--grpc_port", type=_PORT, show_default="embedded: a free port; else 8001", help="gRPC port."),
    cloup.option("--metrics_port", type=_PORT, show_default="embedded: a free port; else 8002", help="Port of /metrics."),
)

_processes = cloup.option_group(
    "Processes (all launchers but embedded)",
    cloup.option(
        "--tritonserver",
        show_default="found on this machine; in a container NVIDIA's",
        help="The server program. Found: /opt/tritonserver/bin/tritonserver, else on PATH, else the one that came with bench.",
    ),
    cloup.option("--world_size", type=_COUNT, default=1, help="Ranks, tp_size x pp_size of the engine: one GPU each."),
    cloup.option("--tensorrt_llm_model_name", default="tensorrt_llm", help="Models that ranks above 0 load, parted by commas."),
    cloup.option("--oversubscribe", is_flag=True, help="mpirun may start more ranks than it sees slots."),
    cloup.option("--trtllm_llmapi_launch", is_flag=True, help="Start each rank through trtllm-llmapi-launch."),
    cloup.option(
        "--multi_model", is_flag=True, help="Orchestrator: several TensorRT-LLM models, each with workers that it spawns."
    ),
    cloup.option("--disable_spawn_processes", is_flag=True, help="Orchestrator that meets workers started beside it."),
    cloup.option("--gpu_count", type=_COUNT, show_default="what nvidia-smi lists", help="GPUs, where --multi_model spawns."),
    cloup.option(
        "--multimodal_gpu0_cuda_mem_pool_bytes",
        type=click.IntRange(min=0),
        default=0,
        help="Triton's CUDA pool on GPU 0, for tensors between multimodal models; 0 leaves Triton's own.",
    ),
)

_container = cloup.option_group(
    "Container (docker, slurm)",
    cloup.option("--container_image", show_default="docker: NVIDIA's of 25.06; slurm: none", help="Image to run in."),
    cloup.option(
        "--container_mount",
        multiple=True,
        metavar="HOST:CONTAINER",
        help="A folder the container sees: engines, tokenizers. The repository is mounted where it lies. Repeatable.",
    ),
    cloup.option("--container_name", show_default="inflight-bench-<gRPC port>", help="docker: the container's name."),
    cloup.option("--shm_size", default="2g", help="docker: shared memory, through which tensors pass between models."),
)

_slurm = cloup.option_group(
    "Slurm",
    cloup.option("--slurm_nodes", type=_COUNT, default=1, help="Nodes."),
    cloup.option(
        "--slurm_tasks_per_node", type=_COUNT, show_default="world_size / nodes", help="Ranks on each node: its GPUs."
    ),
    cloup.option("--slurm_time", help="Time limit, as Slurm writes it: 1:30:00."),
    cloup.option("--slurm_account", help="Account."),
    cloup.option("--slurm_partition", help="Partition."),
    cloup.option("--slurm_job_name", default="tritonserver", help="Name of the job."),
    cloup.option("--slurm_mpi", default="pmix", help="srun's --mpi."),
    cloup.option("--slurm_script", type=_FILE, default=Path("tritonserver.sbatch"), help="Where the script is written."),
    cloup.option("--submit", is_flag=True, help="Hand the script to sbatch."),
)

_running = cloup.option_group(
    "Running",
    cloup.option(
        "--background", is_flag=True, help="Return when it is ready; see 'bench serve status' and 'bench serve stop'."
    ),
    cloup.option("--name", default="default", help="Name of a server in the background."),
    cloup.option(
        "--ready_timeout",
        type=click.FloatRange(min=1),
        show_default="embedded: 180; else 600",
        help="Seconds to wait until it is ready.",
    ),
    cloup.option(
        "--exit_timeout", type=click.IntRange(1, 3600), default=10, help="Seconds that requests have left at the end."
    ),
    cloup.option("--log", is_flag=True, help="Verbose log (rank 0)."),
    cloup.option("--log_file", type=_FILE, default=Path("triton_log.txt"), help="Server's log."),
)

_GROUPS = (_launcher, _model, engine_group, _addresses, _processes, _container, _slurm, _running)

_SERVED = LAUNCHERS[1:]
_BELONGS_TO: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            *("engine", "engine_dir", "tokenizer_dir", "decoupled_mode", "triton_max_batch_size"),
            *("exclude_input_in_output", "accumulate_tokens"),
            *ENGINE_OPTION_NAMES,
        ),
        (EMBEDDED,),
    ),
    **dict.fromkeys(("tritonserver", "trtllm_llmapi_launch", "multimodal_gpu0_cuda_mem_pool_bytes"), _SERVED),
    **dict.fromkeys(("world_size", "tensorrt_llm_model_name"), _SERVED),
    **dict.fromkeys(("multi_model", "disable_spawn_processes", "gpu_count"), ("mpirun", "slurm", "docker")),
    "oversubscribe": ("mpirun", "docker"),
    **dict.fromkeys(("container_image", "container_mount"), ("docker", "slurm")),
    **dict.fromkeys(("container_name", "shm_size"), ("docker",)),
    **dict.fromkeys(
        (
            *("slurm_nodes", "slurm_tasks_per_node", "slurm_time", "slurm_account", "slurm_partition", "slurm_job_name"),
            *("slurm_mpi", "slurm_script", "submit"),
        ),
        ("slurm",),
    ),
    **dict.fromkeys(("background", "name", "ready_timeout"), (EMBEDDED, "tritonserver", "mpirun", "docker")),
}


def serve_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate the group with every option of the bare command."""
    for group in reversed(_GROUPS):
        function = group(function)
    return function


def choose_launcher(values: dict[str, Any]) -> str:
    """The launcher that the options name, in words or by a flag. Raises UsageError when they name two."""
    flags = {"--slurm": "slurm", "--docker": "docker", "--no_mpi": "tritonserver"}
    named = {name for flag, name in flags.items() if values[flag[2:]]}
    if values["launcher"]:
        named.add(values["launcher"])
    if len(named) > 1:
        raise click.UsageError(f"--launcher is named twice: {' and '.join(sorted(named))}")
    if named:
        return str(named.pop())
    asks_for_mpi = any(given(name) for name in ("world_size", "multi_model", "oversubscribe"))
    return "mpirun" if asks_for_mpi else EMBEDDED


def check_belonging(launcher: str) -> None:
    """Raise UsageError for an option that was given and that the launcher does not know."""
    for name, launchers in _BELONGS_TO.items():
        if launcher not in launchers and given(name):
            raise click.UsageError(f"--{name}: not with --launcher {launcher}; it belongs to {', '.join(launchers)}")
