"""A short run of ``benchmarks/cancel_soak.py``: cancelled requests leak nothing, the others get exactly their output."""

import asyncio
from pathlib import Path

import pytest

from benchmarks.cancel_soak import SHARES, soak
from benchmarks.fuzz_server import complaints_of
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.repository.pipeline import RepositorySpec

# Triton 24.10 may keep a reference to a cancelled request that the model has answered, and then does not unload the model.
_UNLOADING = ("Exit timeout expired", "Non-graceful termination")


@pytest.mark.slow
def test_cancelled_requests_leak_nothing(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    options = EngineOptions(max_tokens_in_paged_kv_cache=32_768)
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, engine_options=options)
    with deploy(spec, choose_addresses(), log) as server:
        for model, (_, stop_share) in SHARES.items():
            findings = asyncio.run(soak(server, model, cancels=20, stop_share=stop_share, in_flight=16, seed=5))
            assert findings.broken == []
            assert findings.ended["not cancelled: whole"] == 20
            assert findings.ended["client: part"] > 0
    complaints = [line for line in complaints_of(log) if not any(text in line for text in _UNLOADING)]
    assert complaints == []
