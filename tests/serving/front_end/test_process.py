"""The front end's process without a server: its readiness, its end, and what keeps it from starting."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.front_end.settings import FrontEndSettings, front_end_command
from tests.free_port import free_addresses

_WAIT_S = 120.0
_BODY = json.dumps({"model": "demo", "prompt": [5], "max_tokens": 1})


def _settings(tokenizer_dir: Path = DEMO_ENGINE_DIR) -> FrontEndSettings:
    free = free_addresses()
    http, metrics = f"http://{free.host}:9", f"http://{free.metrics}/metrics"
    return FrontEndSettings(free.host, free.http_port, free.grpc, http, metrics, "demo", str(tokenizer_dir))


@pytest.fixture
def running() -> Iterator[tuple[FrontEndSettings, subprocess.Popen[bytes]]]:
    settings = _settings()
    process = subprocess.Popen(front_end_command(settings))
    try:
        yield settings, process
    finally:
        process.kill()
        process.wait()


def _ask(settings: FrontEndSettings, method: str, path: str, body: str | None = None) -> tuple[int, str]:
    """Status and message of the answer, once the process listens."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        connection = http.client.HTTPConnection(settings.host, settings.port, timeout=_WAIT_S)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, json.load(answer)["error"]["message"]
        except ConnectionError:
            assert time.monotonic() < deadline, "it does not listen"
            time.sleep(0.05)
        finally:
            connection.close()


def test_front_end_is_not_ready_without_its_server_and_ends_on_signals(
    running: tuple[FrontEndSettings, subprocess.Popen[bytes]],
) -> None:
    settings, process = running
    assert _ask(settings, "GET", "/health") == (503, "the model is not ready")
    assert _ask(settings, "GET", "/metrics") == (502, "Triton's metrics do not answer")
    refused = (503, "the model is not ready: it is starting, ending or overloaded")
    assert _ask(settings, "POST", "/v1/completions", _BODY) == refused
    process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + _WAIT_S
    while (answer := _ask(settings, "POST", "/v1/completions", _BODY)) != (503, "the server is ending"):
        assert answer == refused
        assert time.monotonic() < deadline
    assert process.poll() is None
    process.terminate()
    assert process.wait(_WAIT_S) == 0


@pytest.mark.parametrize("problem", ["port", "tokenizer"])
def test_front_end_that_cannot_start_ends_with_a_sentence(problem: str, tmp_path: Path) -> None:
    settings = _settings(tmp_path if problem == "tokenizer" else DEMO_ENGINE_DIR)
    with socket.create_server((settings.host, settings.port if problem == "port" else 0)):
        ended = subprocess.run(front_end_command(settings), capture_output=True, text=True, timeout=_WAIT_S)
    assert ended.returncode == 1
    assert any(line.startswith("The OpenAI front end cannot start: ") for line in ended.stderr.splitlines())
    assert "Traceback" not in ended.stderr
