"""The locustfile against the real pipeline."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from serving.launch.server import Server
from tests.harness.test_locustfile import run_locust

pytestmark = pytest.mark.skipif(importlib.util.find_spec("locust") is None, reason="the extra [distributed] is not installed")


@pytest.mark.parametrize("model", ["ensemble", pytest.param("tensorrt_llm_bls", marks=pytest.mark.slow)])
def test_users_stream_from_the_models_that_take_text(decoupled_server: Server, tmp_path: Path, model: str) -> None:
    ended = run_locust(
        tmp_path, "-u", "2", "-r", "2", "-t", "2s", "--model", model, "--host", f"http://{decoupled_server.addresses.http}"
    )
    assert ended.status == 0, ended.text
    requests = ended.number("E2E", "Request Count")
    assert ended.number("E2E", "Failure Count") == 0
    assert ended.number("TTFT", "Request Count") == ended.number("tokens", "Request Count") == requests > 0
    assert ended.lines["TTFT"]["Name"] == model
    assert ended.number("TTFT", "Average Response Time") <= ended.number("E2E", "Average Response Time")
