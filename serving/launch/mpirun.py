"""Commands under ``mpirun``: several ranks, and the orchestrator's environment. One module per launcher.

Leader mode, the default: one ``tritonserver`` per GPU, each a rank; rank 0 leads and serves, the other ranks stay in the load
of their engine. Orchestrator mode: one server that spawns its workers, or that connects to workers started beside it.
Source: upstream's ``scripts/launch_triton_server.py``, which also ends the list with a ``:``; here ``:`` only separates ranks.
"""

from __future__ import annotations

from itertools import chain

from serving.launch.tritonserver import TritonServer, rank_command


def mpirun_command(server: TritonServer, world_size: int, oversubscribe: bool = False) -> tuple[str, ...]:
    """``mpirun`` over ``world_size`` ranks of one program each, separated by ``:``."""
    ranks = [("-n", "1", *rank_command(server, rank)) for rank in range(world_size)]
    separated = chain(ranks[0], *((":", *rank) for rank in ranks[1:]))
    return ("mpirun", "--allow-run-as-root", *(["--oversubscribe"] if oversubscribe else []), *separated)


def orchestrator_environment(spawn_processes: bool) -> dict[str, str]:
    """Variables that make TensorRT-LLM orchestrate, and spawn its workers or not."""
    return {"TRTLLM_ORCHESTRATOR": "1", "TRTLLM_ORCHESTRATOR_SPAWN_PROCESSES": "1" if spawn_processes else "0"}
