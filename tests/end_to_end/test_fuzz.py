"""A short run of ``benchmarks/fuzz_server.py``: others are unaffected by malformed requests, and no batch failed in the log."""

from pathlib import Path

import pytest

from benchmarks.fuzz_server import complaints_of, fuzz
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.repository.pipeline import RepositorySpec


@pytest.mark.parametrize("decoupled", [True, False])
@pytest.mark.slow
def test_malformed_requests_get_an_error_and_others_are_unaffected(tmp_path: Path, decoupled: bool) -> None:
    log = tmp_path / "server.log"
    with deploy(RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, decoupled_mode=decoupled), choose_addresses(), log) as server:
        findings = fuzz(server, decoupled, count=400, seed_number=11, beside=5)
    assert findings.broken == []
    assert findings.outcomes["error"] > 200
    assert findings.good_answers > 5
    assert complaints_of(log) == []
