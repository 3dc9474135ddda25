"""The command line of one ``tritonserver`` process, alone or as a rank of several.

Source: upstream's ``scripts/launch_triton_server.py``. Differences: each port is named once, the endpoints listen on one host,
and the shared-memory prefix holds the gRPC port too, so that two deployments on one machine cannot meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.launch.addresses import ServerAddresses

DEFAULT_EXIT_TIMEOUT_S = 10
DEFAULT_LOADED_MODELS = ("tensorrt_llm",)


@dataclass(frozen=True, slots=True)
class TritonServer:
    """What a ``tritonserver`` process is told, the same for every rank.

    ``backend_dir`` None leaves Triton's own. ``verbose`` raises the log's level on rank 0, which ``log_file`` then receives.
    ``loaded_models`` are what ranks above 0 load. ``gpu0_cuda_pool_bytes`` is rank 0's pool for multimodal tensors (0: Triton's
    own). ``spawning_gpus`` is the number of GPUs whose memory pools are left out because worker processes will own them: the
    orchestrator's mode; None in every other. ``llmapi_launch`` starts it through ``trtllm-llmapi-launch``.
    """

    executable: str
    repository: str
    addresses: ServerAddresses
    backend_dir: str | None = None
    exit_timeout_s: int = DEFAULT_EXIT_TIMEOUT_S
    verbose: bool = False
    log_file: str | None = None
    loaded_models: tuple[str, ...] = DEFAULT_LOADED_MODELS
    gpu0_cuda_pool_bytes: int = 0
    spawning_gpus: int | None = None
    llmapi_launch: bool = False


def rank_command(server: TritonServer, rank: int, prefix_rank: str | None = None) -> tuple[str, ...]:
    """The command of one rank. Rank 0 serves every model; the others load ``loaded_models`` and nothing else.

    ``prefix_rank`` stands for the rank in the shared-memory prefix, where only a shell will know it.
    """
    addresses = server.addresses
    prefix = f"inflight_bench_{addresses.grpc_port}_prefix{rank if prefix_rank is None else prefix_rank}_"
    return (
        *(["trtllm-llmapi-launch"] if server.llmapi_launch else []),
        server.executable,
        f"--model-repository={server.repository}",
        *([f"--backend-directory={server.backend_dir}"] if server.backend_dir else []),
        f"--exit-timeout-secs={server.exit_timeout_s}",
        f"--http-address={addresses.host}",
        f"--grpc-address={addresses.host}",
        f"--metrics-address={addresses.host}",
        f"--grpc-port={addresses.grpc_port}",
        f"--http-port={addresses.http_port}",
        f"--metrics-port={addresses.metrics_port}",
        *(_first_rank(server) if rank == 0 else _further_rank(server)),
        *_spawning(server),
        "--disable-auto-complete-config",
        f"--backend-config=python,shm-region-prefix-name={prefix}",
    )


def _first_rank(server: TritonServer) -> Sequence[str]:
    arguments = ["--log-verbose=3"] if server.verbose else []
    if server.verbose and server.log_file:
        arguments.append(f"--log-file={server.log_file}")
    if server.gpu0_cuda_pool_bytes:
        arguments.append(f"--cuda-memory-pool-byte-size=0:{server.gpu0_cuda_pool_bytes}")
    return arguments


def _further_rank(server: TritonServer) -> Sequence[str]:
    return ["--model-control-mode=explicit", *(f"--load-model={name}" for name in server.loaded_models)]


def _spawning(server: TritonServer) -> Sequence[str]:
    """Since Triton 24.06 its own pools would stand in the way of the workers that the orchestrator spawns."""
    if server.spawning_gpus is None:
        return []
    pools = [f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(server.spawning_gpus)]
    return ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false", *pools]
