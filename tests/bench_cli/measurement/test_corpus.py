"""``bench dataset --isl``: a text corpus cut into prompts of exact lengths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from tests.harness.scripted_server import ScriptedServer

_ROOT = Path(__file__).parents[3]
_TOKENIZER = _ROOT / "serving" / "demo_engine"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text((_ROOT / "README.md").read_text(encoding="utf-8"), encoding="utf-8")
    return path


def _measure(server: ScriptedServer, folder: Path, corpus: Path, *options: str, model: str = "text") -> int:
    line = ["dataset", "--dataset", str(corpus), "--url", server.address, "--model", model, "--run_dir", str(folder)]
    return run([*line, "--warmup_requests", "0", "--tokenizer_dir", str(_TOKENIZER), *options])


@pytest.mark.parametrize("model", ["text", "scripted"])
@pytest.mark.parametrize("pieces", ["consecutive", "random"])
def test_prompts_have_the_lengths_of_the_law(
    server: ScriptedServer, tmp_path: Path, corpus: Path, model: str, pieces: str
) -> None:
    options = ("--isl", "uniform:min=20,max=40", "--osl", "3", "--pieces", pieces, "--num_requests", "12")
    _measure(server, tmp_path / "r", corpus, *options, model=model)
    rows = RunFolder(tmp_path / "r").read_requests()
    lengths = rows["requested_input_tokens"].to_pylist()
    assert len(lengths) == 12
    assert all(20 <= length <= 40 for length in lengths)
    assert rows["requested_output_tokens"].to_pylist() == [3] * 12
    workload = RunFolder(tmp_path / "r").read_document()[0]["workload"]
    assert (workload["isl"], workload["osl"], workload["pieces"]) == ("uniform:min=20,max=40", "3", pieces)
    law = json.loads((tmp_path / "r" / "summary.json").read_text())["length_laws"]["input"]
    assert law["asked"]["mean"] == 30.0
    assert law["sent"]["mean"] == sum(lengths) / 12


def test_without_a_number_the_whole_corpus_is_sent(server: ScriptedServer, tmp_path: Path, corpus: Path) -> None:
    _measure(server, tmp_path / "r", corpus, "--isl", "200", "--output_tokens", "2")
    workload = RunFolder(tmp_path / "r").read_document()[0]["workload"]
    assert len(RunFolder(tmp_path / "r").read_requests()) == workload["corpus_tokens"] // 200


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--osl", "5"], "--osl applies to prompts cut from a text; it needs --isl"),
        (["--pieces", "random"], "--pieces applies to prompts cut from a text; it needs --isl"),
        (["--isl", "9", "--osl", "5", "--output_tokens", "5"], "--osl and --output_tokens both set"),
        (["--isl", "9", "--repeat_dataset", "--num_requests", "5"], "--repeat_dataset cannot be combined with --isl"),
        (["--isl", "9", "--op_tokens_per_word", "2"], "--op_tokens_per_word cannot be combined with --isl"),
        (["--isl", "9", "--output_factor", "2"], "has prompts of its own"),
        (["--isl", "9", "--pieces", "random"], "--pieces random needs --num_requests"),
        (["--isl", "9000000"], "no prompt can be cut from it"),
        (["--isl", "uniform:min=5"], "max is missing"),
    ],
)
def test_options_of_a_corpus_that_contradict_are_refused(
    server: ScriptedServer, tmp_path: Path, corpus: Path, options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _measure(server, tmp_path / "r", corpus, *options) != ExitStatus.VALID
    assert problem in capsys.readouterr().err.replace("\n", " ")


def test_a_file_that_is_no_text_is_not_cut(server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "a"}\n')
    assert _measure(server, tmp_path / "r", prompts, "--isl", "9") == ExitStatus.USAGE
    assert "--isl cuts prompts from a text corpus" in capsys.readouterr().err


def test_a_text_with_too_few_pieces_has_more_at_random_places(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "short.txt"
    corpus.write_text("A text that is long enough for a few prompts, and no more than these.", encoding="utf-8")
    options = ("--isl", "5", "--osl", "2", "--num_requests", "50")
    _measure(server, tmp_path / "r", corpus, *options)
    printed = capsys.readouterr().err
    assert "prompts, which are all sent. --pieces random cuts more of a text." in printed
    assert "--repeat_dataset" not in printed
    _measure(server, tmp_path / "more", corpus, *options, "--pieces", "random")
    assert "there are only" not in capsys.readouterr().err
