"""``bench workload``: import, show, write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from tests.reports.markup import checked
from workloads.readers.detect import FORMATS, read_workload_file
from workloads.table.writers import WRITTEN_FORMATS

_TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:{minute:02}:00.5000000,{100 * minute + 1},{minute + 1}\n" for minute in range(11)
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(_TRACE + "bad,1,1\n")
    return path


def test_an_imported_workload_is_shown_as_its_origin(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "workload.parquet"
    assert run(["workload", "import", str(trace), "-o", str(output)]) == ExitStatus.VALID
    captured = capsys.readouterr()
    assert "11 rows of azure" in captured.out
    assert 'trace.csv: 1 row was not read; for example line 13: "TIMESTAMP" must be a time' in captured.err
    assert read_workload_file(output).workload.facts.rejected_rows == 1
    run(["workload", "show", str(trace)])
    of_origin = capsys.readouterr().out
    assert run(["workload", "show", str(output)]) == ExitStatus.VALID
    assert capsys.readouterr().out == of_origin
    shown = {tuple(part.strip() for part in line.rsplit("  ", 1)) for line in of_origin.splitlines()}
    assert {("rows", "11"), ("rows not read", "1"), ("duration, s", "600.00"), ("CV of gaps", "0.00")} <= shown


def test_the_page_has_the_numbers_and_a_picture_of_each_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, page = tmp_path / "trace.jsonl", tmp_path / "page.html"
    rows = [
        {"timestamp": 500.0 * k, "input_length": 40, "output_length": 5, "type": "<script>", "turn": 1}
        | {"chat_id": k, "parent_chat_id": k - 1 if k % 3 else -1, "hash_ids": [0, k, k + 100]}
        for k in range(30)
    ]
    trace.write_text("\n".join(map(json.dumps, rows)))
    assert run(["workload", "show", str(trace), "--html", str(page)]) == ExitStatus.VALID
    text = checked(page.read_text())
    for name in ("arrivals", "tokens", "gaps", "lengths-tokens", "prefixes", "turns"):
        assert f'data-picture="{name}"' in text
    assert "30 requests of 10 conversations in 14,500 s" in text
    assert "prefix sharing" in capsys.readouterr().out


def test_text_without_arrivals_has_a_page(tmp_path: Path) -> None:
    dataset, page = tmp_path / "d.jsonl", tmp_path / "page.html"
    dataset.write_text('{"prompt": "one two"}\n')
    assert run(["workload", "show", str(dataset), "--html", str(page)]) == ExitStatus.VALID
    assert 'data-picture="lengths-words"' in page.read_text()


@pytest.mark.parametrize(
    ("ends", "sentence"),
    [("00:00.3", "2 requests in 0.30 s: 3.33 a second."), ("04:10.0", "2 requests in 250 s: 0.004 a second.")],
)
def test_short_traces_and_low_rates_are_no_zeros(tmp_path: Path, ends: str, sentence: str) -> None:
    trace, page = tmp_path / "t.csv", tmp_path / "page.html"
    rows = f"2023-11-16 18:00:00.0,1,1\n2023-11-16 18:{ends},2,1\nbad,1,1\n"
    trace.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    assert run(["workload", "show", str(trace), "--html", str(page)]) == ExitStatus.VALID
    text = page.read_text()
    assert sentence in text
    assert "1 row of the file is not in it." in text
    assert "<b>1.50</b> <small>tokens</small>" in text


def test_requests_at_one_time_have_a_page(tmp_path: Path) -> None:
    trace, page = tmp_path / "t.csv", tmp_path / "page.html"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2023-11-16 18:00:00,1,1\n" * 3)
    assert run(["workload", "show", str(trace), "--html", str(page)]) == ExitStatus.VALID
    assert 'data-picture="lengths-tokens"' in page.read_text()


def test_a_dataset_is_written_in_another_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset, output = tmp_path / "d.json", tmp_path / "o.jsonl"
    turns = [{"from": speaker, "value": speaker} for speaker in ("human", "gpt", "human", "gpt")]
    dataset.write_text(json.dumps([{"conversations": turns}]))
    assert run(["workload", "write", str(dataset), "--format", "custom", "-o", str(output)]) == ExitStatus.VALID
    captured = capsys.readouterr()
    assert "Left out: 1 of 2 rows, which custom cannot express." in captured.err
    assert output.read_text() == '{"prompt": "human"}\n'


def test_nothing_is_left_of_a_file_that_cannot_be_written(trace: Path, tmp_path: Path) -> None:
    output = tmp_path / "o.json"
    assert run(["workload", "write", str(trace), "--format", "upstream", "-o", str(output)]) == ExitStatus.USAGE
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trace.csv"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["show", "nowhere.csv"], "does not exist"),
        (["show", "trace.csv", "--format", "csv"], "--format"),
        (["show", "trace.csv", "--strict"], "trace.csv, line 13"),
        (["show", "trace.csv", "--format", "mooncake"], "holds no usable row"),
        (["write", "trace.csv", "--format", "csv", "-o", "x"], "none of azure"),
    ],
)
def test_mistakes_are_usage_errors_that_name_the_option_or_file(
    trace: Path, arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trace.parent)
    assert run(["workload", *arguments]) == ExitStatus.USAGE
    assert problem in capsys.readouterr().err


def test_the_help_names_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    run(["workload", "show", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ", ".join(FORMATS) in shown
    run(["workload", "write", "--help"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in WRITTEN_FORMATS)


def test_requests_are_generated_from_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "chunk-3-trace.csv").write_text("0,5,1,Gamma,1,0.2\n600,5,1,Gamma,1,0.2\n")
    lengths = {"0": {"input_tokens": "{64: 1}", "output_tokens": "{8: 1}"}}
    (tmp_path / "chunk-3-dataset.json").write_text(json.dumps(lengths))
    output = tmp_path / "w.parquet"
    arguments = ["workload", "synthesize", str(tmp_path), "--duration", "100", "--seed", "4", "-o", str(output)]
    assert run(arguments) == ExitStatus.VALID
    assert "requests of 1 client. Written" in capsys.readouterr().out
    workload = read_workload_file(output).workload
    assert 400 < len(workload) < 600
    assert set(workload.table["request_class"].to_pylist()) == {"chunk-3"}
    beyond = ["workload", "synthesize", str(tmp_path), "--start", "900", "--duration", "7200", "-o", str(output)]
    assert run(beyond) == ExitStatus.VALID
    assert "The clients' rates end at second 1200: --duration 7200 is cut to 300 s." in capsys.readouterr().err
    workload = read_workload_file(output).workload
    assert workload.facts.source == f"{tmp_path.name}, seed 0, 300 s from 900 s"
    assert workload.table["arrival_ns"].to_pylist()[-1] < 300e9


def test_a_trace_is_scaled_and_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, output = tmp_path / "m.jsonl", tmp_path / "w.parquet"
    rows = [{"timestamp": 1000 * k, "input_length": 1100, "output_length": 4, "hash_ids": [0, 1, 9 + k]} for k in range(6)]
    trace.write_text("\n".join(map(json.dumps, rows)))
    arguments = ["workload", "synthesize", str(trace), "--prefix_factor", "2", "--start", "1", "--duration", "3"]
    assert run([*arguments, "-o", str(output)]) == ExitStatus.VALID
    captured = capsys.readouterr()
    assert "3 requests of m.jsonl. Written" in captured.out
    assert "would have 64.3% of the prompt tokens; without --prefix_factor 62.1%." in captured.err
    workload = read_workload_file(output).workload
    assert workload.table["arrival_ns"].to_pylist() == [0, 10**9, 2 * 10**9]
    assert workload.table["input_tokens"].to_pylist() == [2124] * 3
    assert workload.facts.source == "m.jsonl, --prefix_factor 2"
    assert run(["workload", "write", str(output), "--format", "mooncake", "-o", str(tmp_path / "again.jsonl")]) == 0
    assert run(["workload", "show", str(tmp_path / "again.jsonl"), "--strict"]) == ExitStatus.VALID


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--seed", "3"], "--seed draws requests of clients"),
        (["--prefix_factor", "2"], "trace.csv has no block hashes"),
        (["--start", "9999"], "--start 9999: the last request of trace.csv arrives before it"),
    ],
)
def test_what_cannot_be_synthesized_is_refused(
    trace: Path, options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["workload", "synthesize", str(trace), *options]) != ExitStatus.VALID
    assert problem in capsys.readouterr().err


def _agents(path: Path) -> Path:
    """Four requests, each of which waits for the one before it; only the first has a time."""
    lengths = {"input_length": 8, "output_length": 2, "hash_ids": [0]}
    rows = [lengths | {"request_id": "0", "timestamp": 0}]
    rows += [lengths | {"request_id": str(k), "wait_for": [str(k - 1)], "delay": 1000} for k in range(1, 4)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize(("duration", "untimed"), [("1", 0), ("2.5", 2), ("9", 3)])
def test_a_trace_of_agents_that_is_cut_counts_the_times_that_it_lacks(tmp_path: Path, duration: str, untimed: int) -> None:
    output = tmp_path / "w.parquet"
    arguments = ["workload", "synthesize", str(_agents(tmp_path / "a.jsonl")), "--duration", duration, "-o", str(output)]
    assert run(arguments) == ExitStatus.VALID
    assert read_workload_file(output).workload.facts.untimed_rows == untimed


def test_what_comes_after_a_second_of_a_trace_of_agents_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "workload",
        "synthesize",
        str(_agents(tmp_path / "a.jsonl")),
        "--start",
        "1",
        "-o",
        str(tmp_path / "w.parquet"),
    ]
    assert run(arguments) == ExitStatus.USAGE
    assert "3 of 4 requests have no time of their own, so what comes after --start is unknown" in capsys.readouterr().err


def test_turns_after_one_that_is_cut_off_are_left_out_with_their_prompts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A part of a trace has the turns that ``bench trace`` sends of it: the others would lack what was said before."""
    rows = [
        {"timestamp": 0, "session_id": "a", "prompt": "What is a queue?"},
        {"timestamp": 5_000, "session_id": "a", "prompt": "And then?"},
        {"timestamp": 6_000, "session_id": "b", "prompt": "What is a batch?"},
        {"timestamp": 7_000, "session_id": "b", "prompt": "And a chunk?"},
    ]
    trace, output = tmp_path / "trace.jsonl", tmp_path / "w.parquet"
    trace.write_text("\n".join(map(json.dumps, rows)))
    assert run(["workload", "synthesize", str(trace), "--start", "2", "-o", str(output)]) == ExitStatus.VALID
    assert capsys.readouterr().err == "1 turn is left out, since its conversation began before --start.\n"
    table = read_workload_file(output).workload.table
    assert table["prompt"].to_pylist() == ["What is a batch?", "And a chunk?"]
    assert table["parent"].to_pylist() == [None, 0]
    assert table["arrival_ns"].to_pylist() == [4_000_000_000, 5_000_000_000]


def test_clients_need_a_duration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "chunk-3-trace.csv").write_text("0,5,1,Gamma,1,0.2\n")
    assert run(["workload", "synthesize", str(tmp_path)]) == ExitStatus.USAGE
    assert "has clients, of which requests are drawn: give --duration" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--format", "azure"], ["--field", "prompt=p"], ["--strict"]])
def test_options_of_traces_are_refused_for_clients(
    tmp_path: Path, option: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "chunk-3-trace.csv").write_text("0,5,1,Gamma,1,0.2\n")
    assert run(["workload", "synthesize", str(tmp_path), "--duration", "5", *option]) == ExitStatus.USAGE
    assert f"{option[0]} says how a trace is read" in capsys.readouterr().err
