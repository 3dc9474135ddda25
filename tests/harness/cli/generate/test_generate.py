"""``bench generate`` before it speaks to anybody: what is refused, and how words on the command line are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_errors import ExitStatus
from harness.cli import run
from harness.cli.generate.inputs import ids_of_csv, prompts_of
from harness.cli.generate.options import MANY_VALUED, repeated
from harness.cli.generate.output import Expected, generated, verdict
from serving.client.request import Ask, ServedModel
from serving.client.triton import Generation, Sequence

CORE = ServedModel("tensorrt_llm", True, frozenset({"input_ids"}), frozenset({"output_ids"}), {})
PROMPT = ["generate", "-p", "hello"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["generate"], "give either --prompt"),
        ([*PROMPT, "--input_tokens_csv", "ids.csv"], "give either --prompt"),
        ([*PROMPT, "--stop_after_ms", "5"], "--stop_after_ms needs --request_id"),
        ([*PROMPT, "--stop_via_request_cancel"], "--stop_via_request_cancel needs --stop_after_ms"),
        ([*PROMPT, "--embedding_bias_words", "a", "b", "--embedding_bias_weights", "1"], "differ in number"),
        ([*PROMPT, "--check_output"], "--check_output needs"),
        ([*PROMPT, "-c", "--expected_outputs", '["x"]', "-b", "2"], "--check_output compares one beam"),
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
def test_usage_errors_are_one_sentence(capsys: pytest.CaptureFixture[str], argv: list[str], said: str) -> None:
    assert run(argv) == ExitStatus.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    [sentence] = [line for line in captured.err.splitlines() if line.startswith("Error: ")]
    assert said in sentence


def test_a_server_that_is_not_there_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*PROMPT, "--url", "127.0.0.1:1"]) == ExitStatus.FAILED
    captured = capsys.readouterr()
    assert captured.err.startswith("Error: --url 127.0.0.1:1: nobody answers there")
    assert captured.out == ""


def test_several_values_after_one_option() -> None:
    argv = ["-p", "x", "--stop_words", "a", "b", "-S", "--embedding-bias-weights", "-5", "-0.5e3", "--stop_words=c", "d"]
    assert repeated(argv) == [
        "-p", "x", "--stop_words", "a", "--stop_words", "b", "-S",
        "--embedding-bias-weights", "-5", "--embedding-bias-weights", "-0.5e3", "--stop_words=c", "d",
    ]  # fmt: skip


@given(st.lists(st.one_of(st.sampled_from([f"--{name}" for name in MANY_VALUED]), st.sampled_from(["-S", "a", "-1", "--url"]))))
def test_repeating_adds_nothing_but_options_and_settles(argv: list[str]) -> None:
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
    assert prompts_of(text) == prompts


@pytest.mark.parametrize("text", ["[]", "[1]", '["a", null]'])
def test_lists_that_are_no_prompts(text: str) -> None:
    with pytest.raises(click.UsageError, match="--prompt: a JSON list must hold texts"):
        prompts_of(text)


def test_ids_are_the_first_line(tmp_path: Path) -> None:
    file = tmp_path / "ids.csv"
    file.write_text("1, 2,-3,\n4\n")
    assert ids_of_csv("--input_tokens_csv", file) == (1, 2, -3)


@pytest.mark.parametrize("content", ["", "\n1", "1,x", "1.5", "4294967296", "\xff"])
def test_ids_that_are_none(tmp_path: Path, content: str) -> None:
    file = tmp_path / "ids.csv"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(click.UsageError, match="--draft_tokens_csv: "):
        ids_of_csv("--draft_tokens_csv", file)


def _answer(*tokens: int, **more: Any) -> Generation:
    return Generation({(0, 0): Sequence([list(tokens)])}, outputs={"output_ids"}, responses=1, **more)


def _verdict(ask: Ask, answer: Generation, expected: Expected = Expected(), **more: Any) -> str | None:  # noqa: B008
    settings: dict[str, Any] = {"number": 0, "threshold": 1.0, "stopping": False, **more}
    return verdict(ask, answer, generated(ask, CORE, None, answer), expected, **settings)


ASK = Ask(input_ids=((5, 6),), scalars={"request_output_len": 3})


def test_the_prompt_is_not_counted_among_the_generated() -> None:
    assert generated(ASK, CORE, None, _answer(5, 6, 7, 8)) == [[7, 8]]
    excluding = ServedModel("tensorrt_llm", True, CORE.inputs, CORE.outputs, {"exclude_input_in_output": "true"})
    assert generated(ASK, excluding, None, _answer(7, 8)) == [[7, 8]]
    streamed = Ask(input_ids=((5, 6),), scalars={"streaming": True})
    assert generated(streamed, CORE, None, _answer(5, 6)) == [[5, 6]]


def test_verdicts() -> None:
    assert _verdict(ASK, _answer(5, 6, 7)) is None
    assert _verdict(ASK, _answer(5, 6, error="no room")) == "no room"
    assert _verdict(ASK, Generation()) == "the request ended without an answer"
    assert _verdict(ASK, _answer(5, 6, 7, 8, 9), stopping=True) is not None  # upstream: fewer tokens than asked, or it failed
    assert _verdict(ASK, _answer(5, 6, 7, 8, 9, stopped=True), stopping=True) is not None
    assert _verdict(ASK, _answer(5, 6, 7, stopped=True), stopping=True) is None
    assert _verdict(Ask(input_ids=((5,),), requested_outputs=("output_ids", "cum_log_probs")), _answer(5, 6)) is not None


@pytest.mark.parametrize(("threshold", "passes"), [(1.0, False), (0.7, False), (0.6, True), (0.0, True)])
def test_token_ids_are_compared_by_their_share(threshold: float, passes: bool) -> None:
    said = _verdict(ASK, _answer(5, 6, 7, 8, 9), Expected(tokens=(7, 8, 1)), threshold=threshold)
    assert (said is None) == passes
    assert said is None or said == "--check_output: 2 of 3 token ids are as expected"


def test_texts_are_compared_prompt_by_prompt() -> None:
    answer = Generation({(0, 0): Sequence(texts=["a"]), (1, 0): Sequence(texts=["b"])}, responses=2)
    ask = Ask(prompts=("p", "q"))
    assert _verdict(ask, answer, Expected(texts=("a", "b"))) is None
    assert _verdict(ask, answer, Expected(texts=("a", "x"))) == "--check_output: the answer to prompt 1 is 'b', not 'x'"
    assert "2 texts" not in str(_verdict(ask, answer, Expected(texts=("a",))))
    assert _verdict(ask, answer, Expected(texts=("a",))) is not None
