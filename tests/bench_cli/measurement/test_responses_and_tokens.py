"""Whole runs against servers of OpenAI's Responses, and of vLLM's tokens in and out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run
from bench_records.run_folder import RunFolder
from tests.harness.chat_server import DONE, Chat, Event, chat_server

_TOKENIZER = str(Path(__file__).parents[3] / "serving" / "demo_engine")
_REQUESTS = 12

Measure = Callable[..., tuple[dict[str, Any], list[dict[str, Any]], set[str]]]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measure:
    """Measure a server by a protocol; returns the manifest, the rows and the codes of the findings."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)

    def measure(chat: Chat, protocol: str, *options: str) -> tuple[dict[str, Any], list[dict[str, Any]], set[str]]:
        line = ["token_norm_dist", "--isl", "4", "--osl", "5", "-i", protocol, "--url", f"127.0.0.1:{chat.port}"]
        line += ["--num_requests", str(_REQUESTS), "--concurrency", "1", "--workers", "1", "--warmup_requests", "2"]
        run([*line, "--run_dir", "r", *options])
        folder = RunFolder(tmp_path / "r")
        findings = {finding["code"] for finding in json.loads(folder.summary.read_text())["findings"]}
        return folder.read_document()[0], folder.read_requests().to_pylist(), findings

    return measure


def _event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", **fields}


def _ended(status: str = "incomplete") -> dict[str, Any]:
    usage = {"input_tokens": 9, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 0}}
    details = {"incomplete_details": {"reason": "max_output_tokens"}} if status == "incomplete" else {}
    return _event("completed", response={"object": "response", "status": status, "usage": usage, **details})


_DELTAS: list[Event] = [
    _event("created", response={"object": "response", "status": "in_progress"}),
    *(_event("output_text.delta", delta=f" w{k}") for k in range(5)),
    _event("output_text.done", text="all"),
]


def test_responses_are_counted_by_their_usage_and_end_without_a_marker(measured: Measure) -> None:
    with chat_server(lambda _: [*_DELTAS, _ended()]) as chat:
        manifest, rows, findings = measured(chat, "openai_responses", "--tokenizer", _TOKENIZER)
    assert set(chat.paths) == {"/v1/responses"}
    assert all(body["max_output_tokens"] and body["store"] is False for body in chat.bodies)
    assert Counter(row["outcome"] for row in rows) == {"done": _REQUESTS}
    assert {(row["output_tokens"], row["output_tokens_source"], row["input_tokens"]) for row in rows} == {(5, "server", 9)}
    assert {row["finish_reason"] for row in rows} == {"length"}
    assert all(len(row["token_times_ns"]) == 5 for row in rows)
    assert not findings & {"end_marker_missing", "finish_reason_missing", "token_counts_disagree", "token_counts_unknown"}
    assert manifest["target"]["sends_finish_reason"] is True


def test_responses_that_end_without_their_last_event_are_incomplete(measured: Measure) -> None:
    with chat_server(lambda number: _DELTAS if number == 5 else [*_DELTAS, _ended("completed")]) as chat:
        _, rows, _ = measured(chat, "openai_responses", "--tokenizer", _TOKENIZER)
    assert Counter(row["outcome"] for row in rows) == {"done": _REQUESTS - 1, "incomplete": 1}


def _ids(*ids: int, reason: str | None = None) -> dict[str, Any]:
    return {"request_id": "g", "choices": [{"index": 0, "token_ids": list(ids), "finish_reason": reason}], "usage": None}


_TOKENS: list[Event] = [_ids(7), _ids(8, 9), _ids(7), _ids(8, reason="length")]
_USAGE = {"request_id": "g", "choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 5}}


def test_tokens_in_and_out_have_their_exact_lengths(measured: Measure) -> None:
    with chat_server(lambda _: [*_TOKENS, _USAGE, DONE]) as chat:
        manifest, rows, findings = measured(chat, "vllm_tokens", "--vocab_size", "100", "--extra_body", '{"temperature": 0}')
    assert set(chat.paths) == {"/inference/v1/generate"}
    of_load = chat.bodies[-_REQUESTS:]
    assert all(len(body["token_ids"]) == 4 for body in of_load)
    assert all(body["sampling_params"] == {"temperature": 0, "max_tokens": 5, "ignore_eos": True} for body in of_load)
    assert Counter(row["outcome"] for row in rows) == {"done": _REQUESTS}
    assert {(row["output_tokens"], row["output_tokens_source"], row["input_tokens"]) for row in rows} == {(5, "server", 4)}
    assert {tuple(row["token_counts"]) for row in rows} == {(1, 2, 1, 1)}
    assert not findings & {"end_marker_missing", "finish_reason_missing", "token_counts_disagree", "prompt_echoed"}
    assert manifest["target"]["protocol"] == "vllm_tokens"


def test_a_usage_that_contradicts_the_ids_is_found(measured: Measure) -> None:
    with chat_server(lambda _: [*_TOKENS[1:], _USAGE, DONE]) as chat:
        _, _, findings = measured(chat, "vllm_tokens", "--vocab_size", "100")
    assert "token_counts_disagree" in findings
