"""``bench generate``: usage errors, inputs, and the check of results, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_cli import run
from bench_cli.generate.expectation import Expectation, find_problem, generated_ids
from bench_cli.generate.options import MANY_VALUED, repeated
from bench_cli.generate.requests import parse_prompts, read_token_ids
from bench_errors import ExitStatus
from harness.clients.triton.model import TritonModel
from serving.client.request import GenerationRequest
from serving.client.triton import GeneratedSequence, GenerationResult

CORE = TritonModel("tensorrt_llm", True, frozenset({"input_ids"}), frozenset({"output_ids"}), ())
PROMPT = ["generate", "-p", "hello"]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["generate"], "give either --prompt"),
        ([*PROMPT, "--input_tokens_csv", "ids.csv"], "give either --prompt"),
        ([*PROMPT, "--stop_after_ms", "5"], "--stop_after_ms needs --request_id"),
        ([*PROMPT, "--stop_via_request_cancel"], "--stop_via_request_cancel needs --stop_after_ms"),
        ([*PROMPT, "--embedding_bias_words", "a", "b", "--embedding_bias_weights", "1"], "differ in number"),
        ([*PROMPT, "--check_output"], "--check_output needs"),
        ([*PROMPT, "-c", "--expected_outputs", '["x"]', "-b", "2"], "--check_output compares one beam"),
        ([*PROMPT, "--expected_outputs", '["x"]'], "--expected_outputs needs --check_output"),
        ([*PROMPT, "--output_tokens_csv", "ids.csv"], "--output_tokens_csv needs --check_output"),
        ([*PROMPT, "--correctness_threshold", "0.5"], "--correctness_threshold needs --check_output"),
        ([*PROMPT, "--url", "localhost:1", "-s", "-r", "none.pem"], "--root_certificates: none.pem cannot be read"),
        ([*PROMPT, "--ssl"], "--ssl is for a server at --url"),
        ([*PROMPT, "-C", "gzip"], "--grpc_compression_algorithm is for a server at --url"),
        ([*PROMPT, "--url", "localhost:1", "--no_decoupled_mode"], "--decoupled_mode is for the embedded pipeline"),
        ([*PROMPT, "--guided_decoding_guide", "a+"], "go together"),
        ([*PROMPT, "--url", "localhost:1", "--engine_dir", "x"], "--engine_dir is for the embedded pipeline"),
        ([*PROMPT, "--url", "localhost:1", "-r", "roots.pem"], "add --ssl"),
        ([*PROMPT, "--url", "http://localhost"], "is no gRPC address"),
        ([*PROMPT, "-o", "99999999999"], "--request_output_len 99999999999: must lie between"),
        ([*PROMPT, "--seed", "-1"], "--seed -1: must lie between 0 and"),
        ([*PROMPT, "--temperature", "warm"], "--temperature"),
        ([*PROMPT, "--nosuch"], "--nosuch"),
    ],
)
def test_usage_errors_are_one_sentence(capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    assert run(argv) == ExitStatus.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    [sentence] = [line for line in captured.err.splitlines() if line.startswith("Error: ")]
    assert message in sentence


def test_missing_server_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*PROMPT, "--url", "127.0.0.1:1"]) == ExitStatus.FAILED
    captured = capsys.readouterr()
    assert captured.err.startswith("Error: --url 127.0.0.1:1: no server answers there")
    assert captured.out == ""


def test_several_values_follow_one_option() -> None:
    argv = ["-p", "x", "--stop_words", "a", "b", "-S", "--embedding-bias-weights", "-5", "-0.5e3", "--stop_words=c", "d"]
    assert repeated(argv) == [
        "-p", "x", "--stop_words", "a", "--stop_words", "b", "-S",
        "--embedding-bias-weights", "-5", "--embedding-bias-weights", "-0.5e3", "--stop_words=c", "d",
    ]  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from([f"--{name}" for name in MANY_VALUED]), st.sampled_from(["-S", "a", "-1", "--url"]))))
def test_repetition_adds_only_options_and_is_idempotent(argv: list[str]) -> None:
    once = repeated(argv)
    assert repeated(once) == once
    rest = list(once)
    for word in argv:
        assert word in rest
        rest.remove(word)
    assert set(rest) <= {f"--{name}" for name in MANY_VALUED}


@pytest.mark.parametrize(
    ("text", "prompts"),
    [("hello", ("hello",)), ('["a", "b"]', ("a", "b")), ("[not json", ("[not json",)), ("", ("",)), ("5", ("5",))],
)
def test_prompts(text: str, prompts: tuple[str, ...]) -> None:
    assert parse_prompts(text) == prompts


@pytest.mark.parametrize("text", ["[]", "[1]", '["a", null]'])
def test_invalid_lists_of_prompts(text: str) -> None:
    with pytest.raises(click.UsageError, match="--prompt: a JSON list must contain texts"):
        parse_prompts(text)


def test_token_ids_are_the_first_line(tmp_path: Path) -> None:
    file = tmp_path / "ids.csv"
    file.write_text("1, 2,-3,\n4\n")
    assert read_token_ids("--input_tokens_csv", file) == (1, 2, -3)


@pytest.mark.parametrize("content", ["", "\n1", "1,x", "1.5", "4294967296", "\xff"])
def test_invalid_token_ids(tmp_path: Path, content: str) -> None:
    file = tmp_path / "ids.csv"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(click.UsageError, match="--draft_tokens_csv: "):
        read_token_ids("--draft_tokens_csv", file)


def _result(*tokens: int, **more: Any) -> GenerationResult:
    return GenerationResult({(0, 0): GeneratedSequence([list(tokens)])}, outputs={"output_ids"}, responses=1, **more)


def _problem(request: GenerationRequest, result: GenerationResult, **expectation: Any) -> str | None:
    ids = generated_ids(request, CORE, None, result)
    return find_problem(request, result, ids, Expectation(**expectation), index=0)


REQUEST = GenerationRequest(input_ids=((5, 6),), scalars={"request_output_len": 3})


def test_the_prompt_is_not_counted_among_the_generated() -> None:
    assert generated_ids(REQUEST, CORE, None, _result(5, 6, 7, 8)) == [[7, 8]]
    excluding = TritonModel("tensorrt_llm", True, CORE.inputs, CORE.outputs, (("exclude_input_in_output", "true"),))
    assert generated_ids(REQUEST, excluding, None, _result(7, 8)) == [[7, 8]]
    streamed = GenerationRequest(input_ids=((5, 6),), scalars={"streaming": True})
    assert generated_ids(streamed, CORE, None, _result(5, 6)) == [[5, 6]]


def test_problems_of_a_result() -> None:
    assert _problem(REQUEST, _result(5, 6, 7)) is None
    assert _problem(REQUEST, _result(5, 6, error="no room")) == "no room"
    assert _problem(REQUEST, GenerationResult()) == "the request ended without an answer"
    # upstream: a stopped request must have fewer tokens than requested
    assert _problem(REQUEST, _result(5, 6, 7, 8, 9), early_stop=True) is not None
    assert _problem(REQUEST, _result(5, 6, 7, 8, 9, stopped=True), early_stop=True) is not None
    assert _problem(REQUEST, _result(5, 6, 7, stopped=True), early_stop=True) is None
    named = GenerationRequest(input_ids=((5,),), requested_outputs=("output_ids", "cum_log_probs"))
    assert _problem(named, _result(5, 6)) is not None


@pytest.mark.parametrize(("threshold", "passes"), [(1.0, False), (0.7, False), (0.6, True), (0.0, True)])
def test_token_ids_are_compared_by_their_share(threshold: float, passes: bool) -> None:
    problem = _problem(REQUEST, _result(5, 6, 7, 8, 9), tokens=(7, 8, 1), threshold=threshold)
    assert (problem is None) == passes
    assert problem is None or problem == "--check_output: 2 of 3 token ids are as expected"


def test_texts_are_compared_prompt_by_prompt() -> None:
    sequences = {(0, 0): GeneratedSequence(texts=["a"]), (1, 0): GeneratedSequence(texts=["b"])}
    result = GenerationResult(sequences, responses=2)
    request = GenerationRequest(prompts=("p", "q"))
    assert _problem(request, result, texts=("a", "b")) is None
    assert _problem(request, result, texts=("a", "x")) == "--check_output: the answer to prompt 1 is 'b', not 'x'"
    assert "2 texts" not in str(_problem(request, result, texts=("a",)))
    assert _problem(request, result, texts=("a",)) is not None
