"""Several ranks under ``mpirun``, and the orchestrator's environment.

Leader mode, the default: one ``tritonserver`` a GPU, each a rank; rank 0 leads and serves, the others never return from loading
their engine. Orchestrator mode: one server that spawns its workers, or meets workers that were started beside it.
Source: upstream's ``scripts/launch_triton_server.py``. It also ends the list with a
``:``; here a ``:`` only stands between ranks.
"""

from __future__ import annotations

from itertools import chain

from serving.launch.tritonserver import TritonServer, rank_command


def mpirun_command(server: TritonServer, world_size: int, oversubscribe: bool = False) -> tuple[str, ...]:
    """``mpirun`` over ``world_size`` ranks of one program each, parted by a lone ``:``."""
    ranks = [("-n", "1", *rank_command(server, rank)) for rank in range(world_size)]
    parted = chain(ranks[0], *((":", *rank) for rank in ranks[1:]))
    return ("mpirun", "--allow-run-as-root", *(["--oversubscribe"] if oversubscribe else []), *parted)


def orchestrator_environment(spawn_processes: bool) -> dict[str, str]:
    """What tells TensorRT-LLM to orchestrate, and whether it spawns its workers itself."""
    return {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1" if spawn_processes else "0"}
