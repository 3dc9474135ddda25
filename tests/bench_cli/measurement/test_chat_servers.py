"""Whole runs against servers of chat completions that cut answers, or end and announce them in their own ways."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run
from bench_cli.tokenizers import open_tokenizer
from bench_errors import ExitStatus
from bench_records.record import FAILURES
from bench_records.run_folder import RunFolder
from tests.harness.chat_server import CUT, DONE, TOKENS, USAGE, WHOLE, Chat, Event, chat_server, chunk

_TOKENIZER = str(Path(__file__).parents[3] / "serving" / "demo_engine")
_LENGTHS = ["--input_mean", "4", "--input_stdev", "0", "--output_mean", "5", "--output_stdev", "0"]
_REQUESTS = 12


@dataclass(frozen=True)
class Measured:
    """A run: its exit status, outcomes, rows, findings by their codes, and the lengths of its prompts."""

    status: int
    outcomes: dict[str, int]
    rows: list[dict[str, Any]]
    findings: dict[str, dict[str, Any]]
    lengths: dict[str, float]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Measured]:
    """Measure a server one request after the other, after a trial request and no warm-up but it."""
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
        return Measured(status, dict(outcomes), rows, findings, summary["lengths"]["input"])

    return measure


def test_answers_that_were_cut_fail_though_their_streams_ended_in_order(measured: Callable[..., Measured]) -> None:
    with chat_server(lambda number: CUT if number % 3 else WHOLE) as chat:
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
    with chat_server(lambda number: [*TOKENS, USAGE, DONE]) as chat:
        found = measured(chat)
    assert found.outcomes == {"done": _REQUESTS}
    missing = found.findings["finish_reason_missing"]
    assert (missing["severity"], missing["evidence"]) == ("note", {"requests": _REQUESTS})
    assert "errors" not in found.findings


def test_the_trial_request_shows_a_server_that_cuts_every_answer_of_the_load(measured: Callable[..., Measured]) -> None:
    with chat_server(lambda number: CUT if number else WHOLE) as chat:
        found = measured(chat)
    assert found.outcomes == {"incomplete": _REQUESTS}
    assert {"nothing_done", "errors"} <= found.findings.keys()


def test_a_stream_without_done_is_complete_by_its_finish_reason(measured: Callable[..., Measured]) -> None:
    with chat_server(lambda number: WHOLE[:-1]) as chat:
        found = measured(chat)
    assert found.outcomes == {"done": _REQUESTS}
    assert [row["output_tokens"] for row in found.rows] == [5] * _REQUESTS
    note = found.findings["end_marker_missing"]
    assert (note["severity"], note["evidence"]) == ("note", {"requests": _REQUESTS, "share": 1.0})
    assert not found.findings.keys() & {"errors", "warm_up_failed", "finish_reason_missing"}


def test_a_stream_without_done_and_without_a_finish_reason_is_cut(measured: Callable[..., Measured]) -> None:
    with chat_server(lambda number: TOKENS[:3] if number % 2 else WHOLE) as chat:
        found = measured(chat)
    assert found.outcomes == {"stream_cut": _REQUESTS // 2, "done": _REQUESTS // 2}
    assert found.findings["errors"]["evidence"]["first_error"] == "the stream ended without [DONE]"


_CALL = {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"}}]}


@pytest.mark.parametrize(
    "answer",
    [
        [
            chunk(role="assistant", content=None),
            chunk(content="Hm"),
            chunk(**_CALL),
            chunk(reason="tool_calls"),
            USAGE,
            DONE,
        ],
        [*TOKENS, *(chunk(1, content=" v") for _ in range(2)), chunk(1, "stop"), chunk(reason="length"), USAGE, DONE],
        [{"choices": [], "prompt_filter_results": []}, *TOKENS[:-1], chunk(reason="stop", content=" w"), USAGE, DONE],
        [*TOKENS, chunk(reason="length") | {"usage": USAGE["usage"]}, DONE],
        [*TOKENS, chunk(reason="length"), {"choices": [{"index": 0, "delta": {}}]}, USAGE, DONE],
    ],
    ids=["tool calls", "two choices", "empty choices", "usage with the reason", "a chunk behind the reason"],
)
def test_complete_answers_of_every_shape_are_complete(measured: Callable[..., Measured], answer: list[Event]) -> None:
    with chat_server(lambda number: answer) as chat:
        found = measured(chat)
    assert found.outcomes == {"done": _REQUESTS}
    assert not found.findings.keys() & {"errors", "finish_reason_missing", "end_marker_missing"}


def test_answers_of_which_one_choice_was_cut_fail(measured: Callable[..., Measured]) -> None:
    whole: list[Event] = [*TOKENS, chunk(1, content=" v"), chunk(1, "stop"), chunk(reason="length"), USAGE, DONE]
    cut: list[Event] = [*TOKENS, chunk(1, content=" v"), chunk(1, "stop"), USAGE, DONE]
    with chat_server(lambda number: cut if number % 2 else whole) as chat:
        found = measured(chat)
    assert found.outcomes == {"incomplete": _REQUESTS // 2, "done": _REQUESTS // 2}


def test_requests_that_are_cancelled_as_planned_are_not_incomplete(measured: Callable[..., Measured]) -> None:
    with chat_server(lambda number: WHOLE) as chat:
        found = measured(chat, "--cancel", "90%:after=2tokens")
    assert set(found.outcomes) <= {"withdrawn", "done"}  # a busy client may read the end of an answer with its second token
    assert found.outcomes["withdrawn"] > 0


_CANCEL = ("--cancel", "50%:after=2tokens", "--output_mean", "40")
_TOKENS_40: list[Event] = [chunk(role="assistant", content=""), *(chunk(content=f" w{k}") for k in range(40))]
_USAGE_40 = {"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 40}}
_WHOLE_40 = [*_TOKENS_40, chunk(reason="length"), _USAGE_40, DONE]
_EMPTY = chunk(content="")
_PAUSE_S = 0.2  # in which a client has the time to cancel


class Paused(list[Event]):
    """The events of an answer, with a pause before all but the first three with text or a role."""

    pause_s = _PAUSE_S

    def __iter__(self) -> Iterator[Event]:
        sent = 0
        for event in super().__iter__():
            sent += event != _EMPTY
            if sent == 4:
                time.sleep(self.pause_s)
            yield event


class LongPaused(Paused):
    """The same, where each answer has to be cancelled in the pause, however busy the client is."""

    pause_s = 1.5


def _cancelled(found: Measured) -> list[dict[str, Any]]:
    """The cancelled answers, but those whose end a busy client read before it could cancel."""
    return [row for row in found.rows if row["outcome"] == "withdrawn" and row["output_tokens_source"] != "server"]


@pytest.mark.parametrize("warm_up", ["0", "2"])
def test_tokens_of_a_cancelled_answer_are_its_chunks_where_complete_ones_have_one_token_in_each(
    measured: Callable[..., Measured], warm_up: str
) -> None:
    with chat_server(lambda number: Paused(_WHOLE_40)) as chat:
        found = measured(chat, *_CANCEL, "--warmup_requests", warm_up)
    assert _cancelled(found)
    for row in _cancelled(found):
        counted = (row["output_tokens"], row["output_tokens_source"], row["token_counts"])
        assert counted == (row["text_chunks"], "chunks", [1] * row["text_chunks"])
    assert "tokens_counted_from_text" not in found.findings


def test_chunks_without_text_are_no_tokens_of_a_cancelled_answer_where_complete_ones_have_none_in_them(
    measured: Callable[..., Measured],
) -> None:
    answer = [_TOKENS_40[0], *(event for token in _TOKENS_40[1:] for event in (token, _EMPTY)), *_WHOLE_40[-3:]]
    with chat_server(lambda number: Paused(answer)) as chat:
        found = measured(chat, *_CANCEL)
    assert {row["empty_chunks"] for row in found.rows if row["outcome"] == "done"} == {40}
    assert any(row["empty_chunks"] for row in _cancelled(found))
    for row in _cancelled(found):
        counted = (row["output_tokens"], row["output_tokens_source"], row["token_counts"])
        tokens = row["text_chunks"] - row["empty_chunks"]
        assert counted == (tokens, "chunks", [1] * tokens)


def test_a_request_is_cancelled_with_its_token_though_each_chunk_counts_its_own_alone(
    measured: Callable[..., Measured],
) -> None:
    counted = [token | {"usage": {"prompt_tokens": 4, "completion_tokens": 1}} for token in _TOKENS_40[1:]]  # type: ignore[operator]
    with chat_server(lambda number: LongPaused([*counted, chunk(reason="length"), DONE])) as chat:
        found = measured(chat, "--cancel", "90%:after=3tokens", "--output_mean", "40")
    cancelled = [row["output_tokens"] for row in found.rows if row["cancel_after_tokens"] == 3]
    assert found.outcomes["withdrawn"] == len(cancelled) > 0
    assert all(3 <= tokens < 40 for tokens in cancelled)


def test_few_tokens_of_complete_answers_leave_those_of_a_cancelled_one_to_its_text(measured: Callable[..., Measured]) -> None:
    with chat_server(lambda number: Paused(WHOLE)) as chat:
        found = measured(chat, *_CANCEL, "--output_mean", "5")
    assert {row["output_tokens_source"] for row in _cancelled(found)} == {"text"}
    assert found.findings["tokens_counted_from_text"]["evidence"]["requests"] == len(_cancelled(found))


def test_tokens_of_a_server_that_never_counts_are_its_chunks_where_they_are_as_many_as_requested(
    measured: Callable[..., Measured],
) -> None:
    with chat_server(lambda number: Paused([*_TOKENS_40, chunk(reason="length"), DONE])) as chat:
        found = measured(chat, *_CANCEL)
    assert _cancelled(found)
    assert {row["output_tokens_source"] for row in found.rows} == {"chunks"}
    assert {row["output_tokens"] for row in found.rows if row["outcome"] == "done"} == {40}
    assert not found.findings.keys() & {"tokens_counted_from_text", "output_shorter_than_asked", "output_longer_than_asked"}


def test_tokens_that_are_counted_from_text_are_said_to_be(measured: Callable[..., Measured]) -> None:
    joined = [chunk(content=f" w{2 * k} w{2 * k + 1}") for k in range(20)]
    with chat_server(lambda number: Paused([_TOKENS_40[0], *joined, *_WHOLE_40[-3:]])) as chat:
        found = measured(chat, *_CANCEL)
    assert {row["output_tokens_source"] for row in _cancelled(found)} == {"text"}
    assert {row["output_tokens_source"] for row in found.rows if row["outcome"] == "done"} == {"server"}
    finding = found.findings["tokens_counted_from_text"]
    assert (finding["evidence"]["requests"], finding["evidence"]["done"]) == (len(_cancelled(found)), 0)
    assert finding["severity"] == "warning"


@pytest.mark.parametrize(("models", "shown"), [([], "none"), (["unknown"], "unknown")])
def test_a_model_that_is_not_listed_is_used_with_a_warning(
    measured: Callable[..., Measured], capsys: pytest.CaptureFixture[str], models: list[str], shown: str
) -> None:
    with chat_server(lambda number: WHOLE, models) as chat:
        found = measured(chat, "--model", "mine")
    assert found.outcomes == {"done": _REQUESTS}
    assert {body["model"] for body in chat.bodies} == {"mine"}
    warning = f"Warning: --model mine: the server does not list mine in /v1/models, which has {shown}; it is used all the same"
    assert capsys.readouterr().err.count(warning) == 1


def test_a_class_of_a_model_that_is_not_listed_is_sent_with_a_warning(
    measured: Callable[..., Measured], capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(lambda number: WHOLE, ["unknown"]) as chat:
        found = measured(chat, "--class", "a:model=mine", "--class", "b:model=unknown")
    assert found.outcomes == {"done": _REQUESTS}
    assert {body["model"] for body in chat.bodies} >= {"mine", "unknown"}
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "/v1/models" in line]
    assert warning == (
        "Warning: --class a:weight=1,model=mine: "
        "the server does not list mine in /v1/models, which has unknown; it is used all the same"
    )


def test_a_prompt_that_encodes_to_another_length_deviates_from_the_requested_one(
    measured: Callable[..., Measured], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of 700 prompts has no text of its length after 64 tries; with a single try most have none."""
    monkeypatch.setattr("workloads.prompts.exact_text._MAX_TRIES", 1)
    tokenizer = open_tokenizer(Path(_TOKENIZER))

    def counted(number: int) -> list[Event]:
        tokens = len(tokenizer.encode(chat.bodies[number]["messages"][-1]["content"], add_special_tokens=False))
        return [
            *TOKENS,
            chunk(reason="length"),
            {"choices": [], "usage": {"prompt_tokens": tokens, "completion_tokens": 5}},
            DONE,
        ]

    with chat_server(counted) as chat:
        found = measured(chat, "--input_mean", "40")
    assert {row["requested_input_tokens"] for row in found.rows} == {40}
    deviations = [abs(row["input_tokens"] - 40) for row in found.rows]
    assert max(deviations) > 1
    assert found.lengths["mean_requested"] == 40.0
    assert found.lengths["mean_deviation"] == pytest.approx(sum(deviations) / _REQUESTS)
    assert "input_tokens_disagree" in found.findings


def test_the_body_of_an_error_is_in_its_message(measured: Callable[..., Measured]) -> None:
    body = "<html>\n<h1>no route\x1b[0m to m</h1>" + "x" * 400
    with chat_server(lambda number: body if number % 3 == 1 else WHOLE) as chat:
        found = measured(chat)
    assert found.outcomes["server_error"] > 0
    shown = ("<html> <h1>no route\ufffd[0m to m</h1>" + "x" * 400)[:300]
    assert {row["error"] for row in found.rows if row["outcome"] == "server_error"} == {f"HTTP status 404: {shown}"}
