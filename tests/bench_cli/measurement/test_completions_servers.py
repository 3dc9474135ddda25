"""Whole runs against servers of OpenAI's completions, by token ids and by text."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run
from bench_cli.tokenizers import open_tokenizer
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from harness.clients.openai_client import request_uuid
from tests.harness.chat_server import DONE, Chat, Event, chat_server

_TOKENIZER = Path(__file__).parents[3] / "serving" / "demo_engine"
_LENGTHS = ["--isl", "4", "--osl", "5"]
_REQUESTS = 12
_WARM_UP = 2


def _chunk(text: str, reason: str | None = None) -> dict[str, Any]:
    return {"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": reason}]}


def _usage(prompt_tokens: int) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": 5}}


def _whole(prompt_tokens: int = 4) -> list[Event]:
    return [*(_chunk(f" w{k}") for k in range(4)), _chunk(" w4", "length"), _usage(prompt_tokens), DONE]


def _by_number(number: int) -> Sequence[Event]:
    """The answer to a request by token ids of a server that adds nothing: the trial request has one token."""
    return _whole(4 if number else 1)


@dataclass(frozen=True)
class Measured:
    """A run: its exit status, manifest, outcomes, rows, and the codes of its findings."""

    status: int
    manifest: dict[str, Any]
    outcomes: dict[str, int]
    rows: list[dict[str, Any]]
    findings: set[str]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Measured]:
    """Measure a server one request after the other, after a trial request and a short warm-up."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)

    def measure(chat: Chat, *options: str, verb: Sequence[str] = ("token_norm_dist", *_LENGTHS)) -> Measured:
        line = [*verb, "-i", "openai_completions", "--url", f"127.0.0.1:{chat.port}", "--num_requests", str(_REQUESTS)]
        line += ["--concurrency", "1", "--workers", "1", "--warmup_requests", str(_WARM_UP), "--run_dir", "r"]
        status = run([*line, *options])
        folder = RunFolder(tmp_path / "r")
        rows = folder.read_requests().to_pylist()
        findings = {finding["code"] for finding in json.loads(folder.summary.read_text())["findings"]}
        outcomes = Counter(row["outcome"] for row in rows)
        return Measured(status, folder.read_document()[0], dict(outcomes), rows, findings)

    return measure


def _prompts(chat: Chat) -> list[Any]:
    return [body["prompt"] for body in chat.bodies]


def _of_load(values: list[Any]) -> list[Any]:
    return values[-_REQUESTS:]


def test_with_a_tokenizer_prompts_are_token_ids_of_exactly_the_requested_lengths(measured: Callable[..., Measured]) -> None:
    with chat_server(_by_number) as chat:
        found = measured(chat, "--tokenizer", str(_TOKENIZER))
    assert found.outcomes == {"done": _REQUESTS}
    assert set(chat.paths) == {"/v1/completions"}
    assert [len(prompt) for prompt in _prompts(chat)] == [1, *[4] * (_WARM_UP + _REQUESTS)]
    assert all(type(token) is int for prompt in _prompts(chat) for token in prompt)
    assert len({tuple(prompt) for prompt in _of_load(_prompts(chat))}) == _REQUESTS
    counts = {(row["input_tokens"], row["requested_input_tokens"], row["server_counted_input"]) for row in found.rows}
    assert counts == {(4, 4, True)}
    assert {(row["output_tokens"], tuple(row["token_counts"]), row["finish_reason"]) for row in found.rows} == {
        (5, (1, 1, 1, 1, 1), "length")
    }
    target = found.manifest["target"]
    assert (target["protocol"], target["token_ids"], target["template_tokens"]) == ("openai_completions", True, 0)
    assert target["retokenised_ratio"] is not None  # the answers are text
    assert not found.findings & {"errors", "input_tokens_disagree", "finish_reason_missing", "end_marker_missing"}


def test_with_a_tokenizer_prompts_can_be_text_of_the_same_lengths(measured: Callable[..., Measured]) -> None:
    tokenizer = open_tokenizer(_TOKENIZER)
    with chat_server(lambda number: _whole(5 if number else 2)) as chat:  # it adds one token, as of a beginning
        found = measured(chat, "--tokenizer", str(_TOKENIZER), "--prompt_as", "text")
    assert found.outcomes == {"done": _REQUESTS}
    encoded = [tokenizer.encode(prompt, add_special_tokens=False) for prompt in _of_load(_prompts(chat))]
    assert [len(ids) for ids in encoded] == [4] * _REQUESTS
    target = found.manifest["target"]
    assert (target["token_ids"], target["template_tokens"], found.manifest["options"]["prompt_as"]) == (False, 1, "text")
    assert {row["input_tokens"] for row in found.rows} == {5}
    assert "input_tokens_disagree" not in found.findings


def test_without_a_tokenizer_prompts_are_text(measured: Callable[..., Measured], capsys: pytest.CaptureFixture[str]) -> None:
    with chat_server(_by_number) as chat:
        found = measured(chat)
    assert found.outcomes == {"done": _REQUESTS}
    assert all(type(prompt) is str for prompt in _prompts(chat))
    assert "No tokenizer of the model m is known" in capsys.readouterr().err
    assert (found.manifest["target"]["token_ids"], found.manifest["workload"]["text_tokenizer"]) == (False, "shipped")


def test_token_ids_need_no_tokenizer_where_the_vocabulary_is_given(measured: Callable[..., Measured]) -> None:
    with chat_server(_by_number) as chat:
        found = measured(chat, "--prompt_as", "ids", "--vocab_size", "300")
    assert found.outcomes == {"done": _REQUESTS}
    prompts = _of_load(_prompts(chat))
    assert [len(prompt) for prompt in prompts] == [4] * _REQUESTS
    assert max(token for prompt in prompts for token in prompt) < 300
    assert (found.manifest["target"]["template_tokens"], found.manifest["target"]["retokenised_ratio"]) == (0, None)


def test_a_vocabulary_without_a_form_is_a_mistake_that_names_both_remedies(
    measured: Callable[..., Measured], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(_by_number) as chat:
        line = ["token_norm_dist", "-i", "openai_completions", "--url", f"127.0.0.1:{chat.port}", "--vocab_size", "300"]
        assert run([*line, "--run_dir", str(tmp_path / "r")]) == ExitStatus.USAGE
    message = "--vocab_size needs the tokenizer of the model m: give --tokenizer_dir, or --prompt_as ids"
    assert message in capsys.readouterr().err


def test_prompts_of_a_file_are_sent_as_the_ids_that_the_tokenizer_gives_them(
    measured: Callable[..., Measured], tmp_path: Path
) -> None:
    texts = [f"What is number {k} of these?" for k in range(_REQUESTS)]
    lines = [json.dumps({"prompt": text, "output_tokens": 5}) for text in texts]
    (tmp_path / "own.jsonl").write_text("\n".join(lines))
    with chat_server(_by_number) as chat:
        found = measured(chat, "--tokenizer", str(_TOKENIZER), verb=("dataset", "--dataset", "own.jsonl"))
    assert found.outcomes == {"done": _REQUESTS}
    tokenizer = open_tokenizer(_TOKENIZER)
    assert _of_load(_prompts(chat)) == [list(tokenizer.encode(text)) for text in texts]


def test_requests_name_the_run_and_their_number_and_those_before_it_do_not(measured: Callable[..., Measured]) -> None:
    with chat_server(_by_number) as chat:
        found = measured(chat, "--tokenizer", str(_TOKENIZER))
    run_id = found.manifest["run_id"]
    assert chat.request_ids == [*[None] * (1 + _WARM_UP), *(request_uuid(run_id, row["index"]) for row in found.rows)]
    ids = [uuid.UUID(name) for name in chat.request_ids if name is not None]  # llama-cpp-python's server takes no others
    assert {(name.version, name.variant) for name in ids} == {(4, uuid.RFC_4122)}
    assert len(set(ids)) == len(found.rows)


def test_answers_that_were_cut_fail(measured: Callable[..., Measured]) -> None:
    with chat_server(lambda number: [_chunk(" w0"), DONE] if number % 2 else _by_number(number)) as chat:
        found = measured(chat, "--tokenizer", str(_TOKENIZER))
    assert found.outcomes == {"incomplete": _REQUESTS // 2, "done": _REQUESTS // 2}


def test_an_answer_is_cancelled_as_planned(measured: Callable[..., Measured]) -> None:
    with chat_server(_by_number) as chat:
        found = measured(chat, "--tokenizer", str(_TOKENIZER), "--cancel", "90%:after=2tokens")
    assert set(found.outcomes) <= {"withdrawn", "done"}  # a busy client may read the end of an answer with its second token
    assert found.outcomes["withdrawn"] > 0


def test_a_model_that_is_not_listed_is_used_with_a_warning(
    measured: Callable[..., Measured], capsys: pytest.CaptureFixture[str]
) -> None:
    with chat_server(_by_number, ["other"]) as chat:
        found = measured(chat, "--model", "mine", "--tokenizer", str(_TOKENIZER))
    assert found.outcomes == {"done": _REQUESTS}
    assert {body["model"] for body in chat.bodies} == {"mine"}
    assert "Warning: --model mine: the server does not list mine in /v1/models, which has other" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["ids", "text"])
def test_the_error_of_a_server_that_takes_no_token_ids_is_shown_with_the_remedy(
    measured: Callable[..., Measured], capsys: pytest.CaptureFixture[str], form: str
) -> None:
    with chat_server(lambda number: '{"error": {"message": "prompt must be a string"}}') as chat:
        line = ["token_norm_dist", *_LENGTHS, "-i", "openai_completions", "--url", f"127.0.0.1:{chat.port}", "--run_dir", "r"]
        assert run([*line, "--tokenizer", str(_TOKENIZER), "--prompt_as", form]) == ExitStatus.FAILED
    shown = capsys.readouterr().err
    assert "every warm-up request failed; the first error: server_error: HTTP status 404: prompt must be a string" in shown
    assert ("needs --prompt_as text" in shown) is (form == "ids")
