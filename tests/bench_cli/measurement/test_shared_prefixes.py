"""Shared prefixes from the command line: the options, the reuse that a server reports beside its limit, and emptied caches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from bench_cli import run
from bench_cli.tokenizers import open_tokenizer
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from tests.harness.scripted_server import ScriptedServer
from tests.harness.threaded_http import threaded_http

_TOKENIZER_DIR = Path(__file__).parents[3] / "serving" / "demo_engine"
_GROUPS = ["--prefix_groups", "4", "--prefix_len", "24"]
_LENGTHS = ["--isl", "8±2", "--osl", "2"]
_DIGEST = "c10b5420a215e2fdfab03f1c17018497ce5e78effb57df99fad75ff0a844728e"  # of a version without shared prefixes


# ---- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--prefix_groups 4", "--prefix_groups needs --prefix_len"),
        ("--prefix_len 4", "--prefix_len needs --prefix_groups"),
        ("--prompts_per_group 4", "--prompts_per_group needs --prefix_groups"),
        ("--prefix_zipf 1 --system_prompt_len 4", "--prefix_zipf needs --prefix_groups"),
        ("--prefix_groups 4 --prefix_len 4 --prefix_zipf 1 --prompts_per_group 3", "give one of them"),
        (
            "--prefix_groups 4 --prefix_len 4 --prompts_per_group 3 --num_requests 13",
            "are 12 requests; leave --num_requests out",
        ),
        ("--prefix_groups 4 --prefix_len 64 --max_input_len 64", "--max_input_len 64: prompts begin with 64 shared tokens"),
        ("--prefix_groups 0 --prefix_len 64", "prefix_groups"),
        ("--prefix_groups 2 --prefix_len 0", "prefix_len"),
        ("--prefix_groups 2 --prefix_len 8 --prefix_zipf -1", "prefix_zipf"),
        ("--prefix_groups 1000000 --prefix_len 8 --prompts_per_group 1000000", "prompts of all groups are too many"),
        ("--prefix_groups 1 --prefix_len 9999999 --system_prompt_len 9999999", "together at most 10,000,000 tokens"),
        ("--prefix_group 2 --prefix_len 8", "--prefix_group"),
    ],
)
def test_options_that_contradict_each_other_are_one_sentence_before_anything_is_deployed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: str, message: str
) -> None:
    assert run(["token_norm_dist", *options.split(), "--run_dir", str(tmp_path / "run")]) == ExitStatus.USAGE
    error = capsys.readouterr().err
    assert message in error
    assert "Deploying" not in error
    assert "Traceback" not in error
    assert not (tmp_path / "run").exists()


def _measure_ids(server: ScriptedServer, folder: Path, *options: str) -> dict[str, Any]:
    target = ["--url", server.address, "--model", "scripted", "--vocab_size", "100000", "--run_dir", str(folder)]
    run(["token_norm_dist", *target, *_LENGTHS, "--warmup_requests", "1", *options])
    return RunFolder(folder).read_document()[0]


def test_a_number_of_prompts_per_group_sets_the_number_of_requests(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--system_prompt_len", "8", "--prompts_per_group", "3", "--request_rate", "100"]
    workload = _measure_ids(server, tmp_path, *_GROUPS, *options)["workload"]
    assert workload["requests"] == 12
    assert [workload[name] for name in ("prefix_groups", "prefix_len", "prompts_per_group", "system_prompt_len")] == [
        4,
        24,
        3,
        8,
    ]
    assert "a prefix of 24 tokens, one of 4 groups of 3 prompts" in workload["description"]
    tokens = sum(RunFolder(tmp_path).read_requests()["requested_input_tokens"].to_pylist())
    assert workload["shared_prefix_limit"] == (8 * (4 * 3 - 1) + 24 * 4 * (3 - 1)) / tokens
    error = capsys.readouterr().err
    assert f"have {tokens / 12:,.1f} tokens in all (mean)" in error
    assert f"An infinite prefix cache would have {workload['shared_prefix_limit']:.1%} of the prompt tokens." in error


def test_the_law_of_the_lengths_is_that_of_whole_prompts_with_any_law(server: ScriptedServer, tmp_path: Path) -> None:
    target = ["--url", server.address, "--model", "scripted", "--vocab_size", "100000", "--run_dir", str(tmp_path)]
    traffic = ["--histogram_key", "example", "--num_requests", "5", "--request_rate", "100", "--warmup_requests", "1"]
    run(["token_from_histogram", *target, *traffic, *_GROUPS])
    manifest = RunFolder(tmp_path).read_document()[0]
    assert manifest["lengths"]["input"]["law"].startswith("24 + ")
    assert not manifest["lengths"]["output"]["law"].startswith("24")
    law = json.loads((tmp_path / "summary.json").read_text())["length_laws"]["input"]
    assert law["asked"]["mean"] == manifest["lengths"]["input"]["mean"] > 24
    assert manifest["workload"]["prefix_groups"] == 4


def test_a_run_without_the_options_is_what_it_was(server: ScriptedServer, tmp_path: Path) -> None:
    manifest = _measure_ids(server, tmp_path, "--num_requests", "5", "--request_rate", "100")
    assert manifest["schedule"]["digest"] == _DIGEST
    assert not [
        name for name, value in manifest["workload"].items() if "prefix" in name and name != "repeated_prefix" and value
    ]
    assert manifest["prefix_cache_reset"] is None


# ---- a server that reports its cache


@dataclass
class _Server:
    """Serves OpenAI's chat completions with a prefix cache that keeps everything, and counts as SGLang or vLLM does."""

    omits_zero: bool
    url: str = ""
    cached: set[tuple[int, ...]] = field(default_factory=set)
    log: list[str] = field(default_factory=list)
    has_reset: bool = True

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        if path == "/v1/models":
            return 200, b'{"data": [{"id": "m"}]}'
        if path == "/reset_prefix_cache" and self.has_reset:
            self.log.append("reset")
            self.cached.clear()
            return 200, b""
        if path != "/v1/chat/completions":
            return 404, b""
        self.log.append("chat")
        asked = json.loads(body)
        return 200, json.dumps(self._answer(asked["messages"][0]["content"], asked["max_tokens"])).encode()

    def _answer(self, text: str, tokens: int) -> dict[str, Any]:
        ids = tuple(open_tokenizer(_TOKENIZER_DIR).encode(text, add_special_tokens=False))
        known = next((n for n in range(len(ids) - 1, 0, -1) if ids[:n] in self.cached), 0)
        self.cached |= {ids[:n] for n in range(1, len(ids) + 1)}
        details = None if known == 0 and self.omits_zero else {"cached_tokens": known}
        usage = {"prompt_tokens": len(ids), "completion_tokens": tokens, "prompt_tokens_details": details}
        return {"choices": [{"message": {"role": "assistant", "content": "a" * tokens}}], "usage": usage}


@contextmanager
def _serving(served: _Server) -> Iterator[_Server]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            status, body = served.answer(self.path, self.rfile.read(int(self.headers["Content-Length"] or 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    with threaded_http(Handler) as port:
        served.url = f"http://127.0.0.1:{port}"
        yield served


def _chat(server: _Server, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Exit status and summary of a run of 20 requests, one after the other."""
    target = ["-i", "openai", "--url", server.url, "--no_streaming", "--tokenizer_dir", str(_TOKENIZER_DIR)]
    load = ["--num_requests", "20", "--concurrency", "1", "--warmup_requests", "2", "--telemetry_period", "0"]
    status = run(["token_norm_dist", *target, *load, *_LENGTHS, *_GROUPS, "--run_dir", str(folder), *options])
    summary = folder / "summary.json"
    return status, json.loads(summary.read_text()) if summary.exists() else {}


@pytest.mark.parametrize("omits_zero", [False, True])
def test_the_cached_tokens_of_the_answers_stand_beside_the_limit_and_reach_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], omits_zero: bool
) -> None:
    with _serving(_Server(omits_zero)) as server:
        _, summary = _chat(server, tmp_path / "run", "--full")
    cache = summary["prefix_cache"]
    of_groups = 24 * (20 - 4)
    assert cache["limit_share"] == pytest.approx(of_groups / cache["usage"]["prompt_tokens"])
    rows = RunFolder(tmp_path / "run").read_requests(["cached_input_tokens", "input_tokens"]).to_pylist()
    assert sum(row["input_tokens"] for row in rows) == cache["usage"]["prompt_tokens"]
    # own parts and warm-up requests may share a token or two by chance
    assert of_groups <= cache["usage"]["cached_tokens"] <= of_groups + 20
    assert cache["usage"]["requests"] == 20
    unreported = sum(row["cached_input_tokens"] is None for row in rows)
    assert cache["usage"]["reporting_requests"] == 20 - unreported
    assert (unreported > 0) <= omits_zero
    assert (cache["server_share"], cache["server_unit"]) == (None, None)
    shown = capsys.readouterr().out
    assert "Found by the server, by its answers, of tokens (%)" in shown
    assert "An infinite cache, of tokens (%)" in shown
    page = (tmp_path / "run" / "report.html").read_text()
    assert "An infinite cache, of tokens (%)" in page
    assert ("answers had no count" in page) == (unreported > 0)


def test_the_cache_is_emptied_before_the_first_request_and_again_between_warm_up_and_run(tmp_path: Path) -> None:
    with _serving(_Server(omits_zero=False)) as server:
        first = _chat(server, tmp_path / "first", "--reset_prefix_cache")[1]
        assert server.log == ["reset", "chat", "chat", "chat", "reset", *["chat"] * 20]  # the first is the trial request
        again = _chat(server, tmp_path / "again", "--reset_prefix_cache")[1]
        warm = _chat(server, tmp_path / "warm")[1]
    cached = [summary["prefix_cache"]["usage"]["cached_tokens"] for summary in (first, again, warm)]
    assert cached[0] == cached[1] < cached[2]
    assert RunFolder(tmp_path / "first").read_document()[0]["prefix_cache_reset"] == "POST /reset_prefix_cache"


def test_a_server_that_cannot_empty_its_cache_is_an_error_before_anything_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with _serving(_Server(omits_zero=False, has_reset=False)) as server:
        status, _ = _chat(server, tmp_path / "run", "--reset_prefix_cache")
        assert (status, server.log) == (ExitStatus.FAILED, [])
    assert "has neither vLLM's /reset_prefix_cache (start it with VLLM_SERVER_DEV_MODE=1)" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_prefixes_by_the_shipped_tokenizer_have_no_limit_in_the_models_tokens(tmp_path: Path) -> None:
    with _serving(_Server(omits_zero=False)) as server:
        target = ["-i", "openai", "--url", server.url, "--no_streaming", "--run_dir", str(tmp_path)]
        run(["token_norm_dist", *target, *_LENGTHS, *_GROUPS, "--num_requests", "6", "--concurrency", "1"])
    workload = RunFolder(tmp_path).read_document()[0]["workload"]
    assert (workload["shared_prefix_limit"], workload["shared_prefix_common"], workload["text_tokenizer"]) == (
        None,
        None,
        "shipped",
    )
    assert json.loads((tmp_path / "summary.json").read_text())["prefix_cache"]["limit_share"] is None
