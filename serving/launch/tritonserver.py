"""The command line of one ``tritonserver`` process, alone or as a rank of several.

Source: upstream's ``scripts/launch_triton_server.py``. Differences: each port is given once, the endpoints listen on one host,
and the shared-memory prefix includes the gRPC port, so that two deployments on one machine share no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.launch.addresses import ServerAddresses
from serving.launch.admin_key import restriction_arguments

DEFAULT_EXIT_TIMEOUT_S = 10
DEFAULT_LOADED_MODELS = ("tensorrt_llm",)


@dataclass(frozen=True, slots=True)
class TritonServer:
    """The settings of a ``tritonserver`` process, the same for every rank.

    ``backend_dir`` None leaves Triton's default. ``verbose`` raises the log level of rank 0, which then logs to ``log_file``.
    ``loaded_models`` are the models of ranks above 0. ``gpu0_cuda_pool_bytes`` is rank 0's pool for multimodal tensors (0:
    Triton's default). ``spawning_gpus`` is the number of GPUs without a memory pool, because spawned workers own their memory
    (orchestrator mode); None in every other mode. ``llmapi_launch`` starts the server through ``trtllm-llmapi-launch``.
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
    """The command of one rank. Rank 0 serves every model; the others load only ``loaded_models``.

    ``prefix_rank`` replaces the rank in the shared-memory prefix: a shell variable where the rank is known only at run time.
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
        *restriction_arguments(addresses.restricted_apis),
        *(_first_rank(server) if rank == 0 else _other_rank(server)),
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


def _other_rank(server: TritonServer) -> Sequence[str]:
    return ["--model-control-mode=explicit", *(f"--load-model={name}" for name in server.loaded_models)]


def _spawning(server: TritonServer) -> Sequence[str]:
    """Memory pools of size 0: since Triton 24.06 its pools take memory that the orchestrator's workers need."""
    if server.spawning_gpus is None:
        return []
    pools = [f"--cuda-memory-pool-byte-size={gpu}:0" for gpu in range(server.spawning_gpus)]
    return ["--pinned-memory-pool-byte-size=0", "--enable-peer-access=false", *pools]
