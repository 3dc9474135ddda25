"""Files of the real server that may hold prompts."""

from __future__ import annotations

import stat

from serving.launch.server import Server
from serving.launch.shared_memory import SHARED_MEMORY
from tests.end_to_end.triton_calls import core_inputs, stream


def test_shared_memory_and_log_are_for_the_servers_user_alone(decoupled_server: Server) -> None:
    stream(decoupled_server, "tensorrt_llm", [core_inputs(range(20, 40), 4)])
    port = decoupled_server.addresses.grpc_port
    regions = list(SHARED_MEMORY.glob(f"inflight_bench_{port}_*_prefix0_*"))
    assert len(regions) == 4
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (*regions, decoupled_server.log)}
    assert modes == {0o600}
