"""What a Triton server says of itself. That the real server says it: tests/end_to_end/test_repeating.py."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from bench_records.manifest import Deployment
from harness.clients.transport.url import Origin
from harness.clients.triton.deployment import grpc_deployment, http_deployment
from tests.free_port import closed_port
from tests.harness.scripted_server import ScriptedServer, scripted_server
from tests.harness.threaded_http import threaded_http

_CONFIG = {
    "name": "tensorrt_llm",
    "max_batch_size": 0,
    "unknown_field": 3,
    "input": [{"name": "input_ids", "data_type": "TYPE_INT32", "dims": [-1]}],
    "parameters": {"max_num_sequences": {"string_value": "256"}},
    "model_transaction_policy": {"decoupled": True},
}


@contextmanager
def _triton(answer: Callable[[str], Any]) -> Iterator[Origin]:
    """A server whose ``answer`` to a path is JSON, bytes, or None for a status 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = answer(self.path)
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(404 if said is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with threaded_http(Handler) as port:
        yield Origin("http", "127.0.0.1", port)


def test_a_server_over_grpc_has_the_configuration_of_each_model_that_it_gives(tmp_path: Path) -> None:
    with scripted_server(tmp_path / "log", setting="256") as server:
        said = grpc_deployment(server.address, 5.0)
    assert said is not None
    assert (said.server, said.version, said.extensions) == ("script", "1.0", ("model_configuration",))
    assert said.models is not None
    assert list(said.models) == ["scripted", "text"]  # by name, and without the one that is gone
    config = said.models["scripted"]
    assert config["parameters"] == {"engine": "script", "max_num_sequences": "256"}
    assert config["model_transaction_policy"] == {"decoupled": True}
    assert [tensor["name"] for tensor in config["input"]][:2] == ["input_ids", "input_lengths"]  # type: ignore[index, attr-defined]


def test_a_server_that_has_no_such_calls_has_said_nothing(server: ScriptedServer) -> None:
    assert grpc_deployment(server.address, 5.0) is None


@pytest.mark.parametrize("seconds", [1.0, 0.0])
def test_no_server_has_said_nothing(seconds: float) -> None:
    port = closed_port()
    assert grpc_deployment(f"127.0.0.1:{port}", seconds) is None
    assert http_deployment(Origin("http", "127.0.0.1", port), (), seconds) is None


def test_a_server_over_http_gives_the_documents_that_grpc_gives() -> None:
    answers = {
        "/v2": {"name": "triton", "version": "2.51.0", "extensions": ["statistics"]},
        "/v2/models/stats": {"model_stats": [{"name": "tensorrt_llm", "version": "1"}, {"name": "a b", "version": "1"}]},
        "/v2/models/tensorrt_llm/config": _CONFIG,
    }
    with _triton(answers.get) as origin:
        said = http_deployment(origin, (), 5.0)
    config = {
        "name": "tensorrt_llm",
        "input": [{"name": "input_ids", "data_type": "TYPE_INT32", "dims": ["-1"]}],
        "parameters": {"max_num_sequences": "256"},
        "model_transaction_policy": {"decoupled": True},
    }
    assert said == Deployment(server="triton", version="2.51.0", extensions=("statistics",), models={"tensorrt_llm": config})


@pytest.mark.parametrize(
    "broken", [b"[" * 100_000, b"no JSON", 5, [], {"name": 3}, [{"version": "1"}], {"input": 7}, {"parameters": [1]}]
)
def test_an_answer_that_is_none_is_left_out(broken: Any) -> None:
    with _triton(lambda _: broken) as origin:
        said = http_deployment(origin, (), 5.0)
    assert said is None or not said.models
    listed = {"model_stats": [{"name": "m"}]}
    with _triton(lambda path: broken if path.endswith("config") else listed if "stats" in path else None) as origin:
        said = http_deployment(origin, (), 5.0)
    assert said is not None
    assert "m" not in (said.models or {})


def test_a_server_with_many_large_models_is_recorded_in_part() -> None:
    listed = {"model_stats": [{"name": f"m{number:03}"} for number in range(300)]}
    config = {"name": "m", "parameters": {"text": {"string_value": "x" * 30_000}}}
    with _triton(lambda path: config if path.endswith("config") else listed if "stats" in path else None) as origin:
        said = http_deployment(origin, (), 20.0)
    assert said is not None
    assert said.models is not None
    assert 30 < len(said.models) < 40
    assert next(iter(said.models)) == "m000"
