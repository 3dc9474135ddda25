"""Whole runs against servers of chat completions that cut answers, or end and announce them in their own ways."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from bench_errors import ExitStatus
from harness.cli import run
from harness.records.record import FAILURES
from harness.records.run_folder import RunFolder
from tests.harness.threaded_http import threaded_http

_TOKENIZER = str(Path(__file__).parents[4] / "serving" / "demo_engine")
_LENGTHS = ["--input_mean", "4", "--input_stdev", "0", "--output_mean", "5", "--output_stdev", "0"]
_USAGE = {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 5}}
_DONE = "[DONE]"
_REQUESTS = 12

Event = dict[str, Any] | str
Answer = Callable[[int], Sequence[Event]]
"""The events of an answer, by the number of the request; that of the probe is 0, and the load's begin with 1."""


def _chunk(index: int = 0, reason: str | None = None, **delta: Any) -> Event:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": reason}]}


_TOKENS = [_chunk(role="assistant", content=""), *(_chunk(content=f" w{k}") for k in range(5))]
_WHOLE = [*_TOKENS, _chunk(reason="length"), _USAGE, _DONE]
_CUT = [*_TOKENS[:3], _DONE]


@dataclass
class Chat:
    """A running server: its port, and the bodies of the requests for chat completions, the probe's first."""

    port: int
    bodies: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def _chat(answer: Answer, models: Sequence[str] = ("m",)) -> Iterator[Chat]:
    """A server that sends the events of ``answer`` and ends each message in order, and that lists ``models``."""
    numbers, chat = itertools.count(), Chat(0)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200 if self.path == "/v1/models" else 404, json.dumps({"data": [{"id": name} for name in models]}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            chat.bodies.append(body)
            events = answer(next(numbers))
            if isinstance(events, str):
                self._send(404, events)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in events:
                data = b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode() + b"\n\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")

        def _send(self, status: int, text: str) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    with threaded_http(Handler) as port:
        chat.port = port
        yield chat


@dataclass(frozen=True)
class Measured:
    """A run: its exit status, outcomes, rows, and findings by their codes."""

    status: int
    outcomes: dict[str, int]
    rows: list[dict[str, Any]]
    findings: dict[str, dict[str, Any]]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Measured]:
    """Measure a server one request after the other, after a probe and no warm-up but it."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def measure(chat: Chat, *options: str) -> Measured:
        line = ["token_norm_dist", "-i", "openai", "--url", f"127.0.0.1:{chat.port}", *_LENGTHS, "--tokenizer_dir", _TOKENIZER]
        line += ["--num_requests", str(_REQUESTS), "--concurrency", "1", "--workers", "1", "--run_dir", str(tmp_path / "r")]
        status = run([*line, *options])
        rows = RunFolder(tmp_path / "r").read_requests().to_pylist()
        summary = json.loads((tmp_path / "r" / "summary.json").read_text())
        findings = {finding["code"]: finding for finding in summary["findings"]}
        outcomes = Counter(row["outcome"] for row in rows)
        assert {kind: n for kind, n in outcomes.items() if kind in FAILURES} == summary["requests"]["by_kind"]
        return Measured(status, dict(outcomes), rows, findings)

    return measure


def test_answers_that_were_cut_fail_though_their_streams_ended_in_order(measured: Callable[..., Measured]) -> None:
    with _chat(lambda number: _CUT if number % 3 else _WHOLE) as chat:
        found = measured(chat)
    warmed_up = sum(number % 3 > 0 for number in range(len(chat.bodies) - _REQUESTS, len(chat.bodies)))
    assert found.outcomes == {"incomplete": warmed_up, "done": _REQUESTS - warmed_up}
    assert found.status == ExitStatus.FAILED
    errors = found.findings["errors"]
    assert (errors["severity"], errors["evidence"]["by_kind"]) == ("invalid", {"incomplete": warmed_up})
    assert "without a finish_reason" in errors["evidence"]["first_error"]
    assert {row["finish_reason"] for row in found.rows if row["outcome"] == "done"} == {"length"}
    assert not found.findings.keys() & {"finish_reason_missing", "end_marker_missing"}


def test_a_server_that_never_sends_a_finish_reason_is_told_apart(measured: Callable[..., Measured]) -> None:
    with _chat(lambda number: [*_TOKENS, _USAGE, _DONE]) as chat:
        found = measured(chat)
    assert found.outcomes == {"done": _REQUESTS}
    missing = found.findings["finish_reason_missing"]
    assert (missing["severity"], missing["evidence"]) == ("note", {"requests": _REQUESTS})
    assert "errors" not in found.findings


def test_the_probe_shows_a_server_that_cuts_every_answer_of_the_load(measured: Callable[..., Measured]) -> None:
    with _chat(lambda number: _CUT if number else _WHOLE) as chat:
        found = measured(chat)
    assert found.outcomes == {"incomplete": _REQUESTS}
    assert {"nothing_done", "errors"} <= found.findings.keys()


def test_a_stream_without_done_is_complete_by_its_finish_reason(measured: Callable[..., Measured]) -> None:
    with _chat(lambda number: _WHOLE[:-1]) as chat:
        found = measured(chat)
    assert found.outcomes == {"done": _REQUESTS}
    assert [row["output_tokens"] for row in found.rows] == [5] * _REQUESTS
    note = found.findings["end_marker_missing"]
    assert (note["severity"], note["evidence"]) == ("note", {"requests": _REQUESTS, "share": 1.0})
    assert not found.findings.keys() & {"errors", "warm_up_failed", "finish_reason_missing"}


def test_a_stream_without_done_and_without_a_finish_reason_is_cut(measured: Callable[..., Measured]) -> None:
    with _chat(lambda number: _TOKENS[:3] if number % 2 else _WHOLE) as chat:
        found = measured(chat)
    assert found.outcomes == {"stream_cut": _REQUESTS // 2, "done": _REQUESTS // 2}
    assert found.findings["errors"]["evidence"]["first_error"] == "the stream ended without [DONE]"


_CALL = {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"}}]}


@pytest.mark.parametrize(
    "answer",
    [
        [
            _chunk(role="assistant", content=None),
            _chunk(content="Hm"),
            _chunk(**_CALL),
            _chunk(reason="tool_calls"),
            _USAGE,
            _DONE,
        ],
        [*_TOKENS, *(_chunk(1, content=" v") for _ in range(2)), _chunk(1, "stop"), _chunk(reason="length"), _USAGE, _DONE],
        [{"choices": [], "prompt_filter_results": []}, *_TOKENS[:-1], _chunk(reason="stop", content=" w"), _USAGE, _DONE],
        [*_TOKENS, _chunk(reason="length") | {"usage": _USAGE["usage"]}, _DONE],
        [*_TOKENS, _chunk(reason="length"), {"choices": [{"index": 0, "delta": {}}]}, _USAGE, _DONE],
    ],
    ids=["tool calls", "two choices", "empty choices", "usage with the reason", "a chunk behind the reason"],
)
def test_complete_answers_of_every_shape_are_complete(measured: Callable[..., Measured], answer: list[Event]) -> None:
    with _chat(lambda number: answer) as chat:
        found = measured(chat)
    assert found.outcomes == {"done": _REQUESTS}
    assert not found.findings.keys() & {"errors", "finish_reason_missing", "end_marker_missing"}


def test_answers_of_which_one_choice_was_cut_fail(measured: Callable[..., Measured]) -> None:
    whole: list[Event] = [*_TOKENS, _chunk(1, content=" v"), _chunk(1, "stop"), _chunk(reason="length"), _USAGE, _DONE]
    cut: list[Event] = [*_TOKENS, _chunk(1, content=" v"), _chunk(1, "stop"), _USAGE, _DONE]
    with _chat(lambda number: cut if number % 2 else whole) as chat:
        found = measured(chat, "--extra_body", '{"n": 2}')
    assert found.outcomes == {"incomplete": _REQUESTS // 2, "done": _REQUESTS // 2}


def test_requests_that_are_cancelled_as_planned_are_not_incomplete(measured: Callable[..., Measured]) -> None:
    with _chat(lambda number: _WHOLE) as chat:
        found = measured(chat, "--cancel", "90%:after=2tokens")
    assert set(found.outcomes) <= {"withdrawn", "done"}  # a busy client may read the end of an answer with its second token
    assert found.outcomes["withdrawn"] > 0


@pytest.mark.parametrize(("models", "shown"), [([], "none"), (["unknown"], "unknown")])
def test_a_model_that_is_not_listed_is_used_with_a_warning(
    measured: Callable[..., Measured], capsys: pytest.CaptureFixture[str], models: list[str], shown: str
) -> None:
    with _chat(lambda number: _WHOLE, models) as chat:
        found = measured(chat, "--model", "mine")
    assert found.outcomes == {"done": _REQUESTS}
    assert {body["model"] for body in chat.bodies} == {"mine"}
    warning = f"Warning: --model mine: the server does not list it in /v1/models, which has {shown}; it is used"
    assert capsys.readouterr().err.count(warning) == 1


def test_the_body_of_an_error_is_in_its_message(measured: Callable[..., Measured]) -> None:
    body = "<html>\n<h1>no route\x1b[0m to m</h1>" + "x" * 400
    with _chat(lambda number: body if number % 3 == 1 else _WHOLE) as chat:
        found = measured(chat)
    assert found.outcomes["server_error"] > 0
    shown = ("<html> <h1>no route\ufffd[0m to m</h1>" + "x" * 400)[:300]
    assert {row["error"] for row in found.rows if row["outcome"] == "server_error"} == {f"HTTP status 404: {shown}"}
