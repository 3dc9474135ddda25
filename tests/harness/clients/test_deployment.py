"""What a server of OpenAI's protocol says of itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench_records.manifest import Deployment
from harness.clients.deployment import openai_deployment
from harness.clients.openai_chat import DEFAULT_PATH
from harness.clients.transport.url import Origin
from tests.free_port import closed_port
from tests.harness.metrics_server import metrics_server

_ENTRY = {
    "id": "m",
    "object": "model",
    "created": 1_700_000_000,
    "max_model_len": 4096,
    "root": "/models/m",
    "permission": [{}],
}


def _said(answers: list[Any]) -> Deployment | None:
    """What is said by a server that gives these ``answers`` in turn, to the question for its version and for its models."""
    with metrics_server(lambda number: (200, json.dumps(answers[number]).encode())) as server:
        origin = Origin("http", "127.0.0.1", server.port)
        said = openai_deployment(origin, DEFAULT_PATH, {"X-Team": "a"}, 5.0)
        assert server.gets == ["/version", "/v1/models"]
        assert {headers["X-Team"] for headers in server.headers} == {"a"}
        return said


def test_the_version_and_the_plain_values_of_each_model_are_kept() -> None:
    said = _said([{"version": "0.32.0"}, {"data": [_ENTRY, {"id": "a", "huge": 1 << 70, "loaded": True}, {"no": "id"}, 3]}])
    models = {"a": {"id": "a", "loaded": True}, "m": {"id": "m", "max_model_len": 4096, "root": "/models/m"}}
    assert said == Deployment(version="0.32.0", models=models)


@pytest.mark.parametrize("answers", [[{}, {}], [[], []], [{"version": 3}, {"data": "m"}], ["v", None]])
def test_other_answers_say_nothing(answers: list[Any]) -> None:
    assert _said(answers) is None


def test_no_server_has_said_nothing() -> None:
    assert openai_deployment(Origin("http", "127.0.0.1", closed_port()), DEFAULT_PATH, {}, 1.0) is None


def test_texts_of_a_server_are_cut() -> None:
    said = _said([{"version": "9" * 100_000}, {"data": [{"id": "m" * 100_000, "root": "r" * 100_000}]}])
    assert said is not None
    assert len(str(said)) < 10_000
