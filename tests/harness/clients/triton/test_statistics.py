"""Triton's statistics of its models. That the real server's are read and add up: tests/end_to_end/test_watching.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench_records.manifest import PhaseTotal
from harness.clients.transport.url import HttpUrl
from harness.clients.triton.statistics import ByModel, StatisticsError, grpc_statistics, http_statistics, settled
from tests.faults.peer_server import peer_server
from tests.harness.clients.transport import http2_peer
from tests.harness.metrics_server import metrics_server
from tests.harness.scripted_server import ScriptedServer


def _model(name: str, version: str, success: int, ns: int) -> dict[str, Any]:
    return {
        "name": name,
        "version": version,
        "inference_count": success,
        "execution_count": success // 2,
        "inference_stats": {"success": {"count": success, "ns": ns}, "queue": {"count": success, "ns": ns // 10}},
    }


def _ask(answer: Any) -> ByModel:
    with metrics_server(lambda number: (200, json.dumps(answer).encode())) as server:
        return http_statistics(HttpUrl("http", "127.0.0.1", server.port, "/v2/models/stats"))


def test_versions_of_a_model_are_added_up() -> None:
    found = _ask({"model_stats": [_model("b", "1", 6, 600), _model("a", "1", 2, 20), _model("b", "2", 4, 400)]})
    assert list(found) == ["a", "b"]
    assert found["b"].success == PhaseTotal(10, 1000)
    assert found["b"].queue == PhaseTotal(10, 100)
    assert (found["b"].inference_count, found["b"].execution_count) == (10, 5)
    assert found["b"].fail == PhaseTotal(0, 0)  # what a server leaves out has not happened


_ENDLESS = {"model_stats": [_model("a", "1", 1, 1) | {"inference_count": float("inf")}]}
_NEGATIVE = {"model_stats": [_model("a", "1", -1, 1)]}
_MIXED = {"model_stats": [_model("a", "1", 1, 1), _model("b", "1", 1, 1) | {"name": 7}]}


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        {"model_stats": [{}]},
        {"model_stats": [{"name": "a"}]},
        {"model_stats": None},
        5,
        _ENDLESS,
        _NEGATIVE,
        _MIXED,
    ],
)
def test_an_answer_that_is_none(answer: Any) -> None:
    with pytest.raises(StatisticsError, match="cannot be read"):
        _ask(answer)


def test_an_answer_nested_without_end() -> None:
    with metrics_server(lambda number: (200, b"[" * 100_000)) as server, pytest.raises(StatisticsError):
        http_statistics(HttpUrl("http", "127.0.0.1", server.port, "/v2/models/stats"))


def test_a_server_without_statistics(server: ScriptedServer) -> None:
    with pytest.raises(StatisticsError, match="UNIMPLEMENTED"):
        grpc_statistics(server.address)


def test_no_server() -> None:
    with metrics_server(lambda number: (200, b"")) as server:
        pass
    with pytest.raises(StatisticsError):
        http_statistics(HttpUrl("http", "127.0.0.1", server.port, "/v2/models/stats"))
    with pytest.raises(StatisticsError, match="UNAVAILABLE"):
        grpc_statistics(f"127.0.0.1:{server.port}")


def test_counts_that_still_come_in_are_waited_for_but_not_without_end() -> None:
    counts = iter([7, 8, 9, 9, 9, 9])
    assert settled(lambda: {"a": {"success": next(counts)}}) == {"a": {"success": 9}}
    endless = iter(range(1000))
    assert settled(lambda: {"a": {"success": next(endless)}})["a"]["success"] < 20


def test_an_answer_that_ends_within_its_message() -> None:
    script = http2_peer.answering(http2_peer.end_within_a_message)
    with peer_server(script) as address, pytest.raises(StatisticsError, match="without a message"):
        grpc_statistics(address)
