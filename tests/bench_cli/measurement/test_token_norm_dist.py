"""The lengths of ``bench token_norm_dist``: what is given, and what is upstream's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench_cli import run
from bench_cli.measurement import drawing_progress
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from tests.harness.scripted_server import ScriptedServer
from workloads.elements.random_streams import Stream
from workloads.lengths.families import Uniform
from workloads.table.workload import Workload, WorkloadFacts

_LENGTHS = ("input_mean", "input_stdev", "output_mean", "output_stdev")


def _workload(server: ScriptedServer, folder: Path, *options: str) -> dict[str, Any]:
    target = ["--url", server.address, "--model", "scripted", "--vocab_size", "100", "--run_dir", str(folder)]
    run(["token_norm_dist", *target, "--warmup_requests", "1", "--num_requests", "4", *options])
    workload: dict[str, Any] = RunFolder(folder).read_document()[0]["workload"]
    return workload


def test_without_lengths_they_are_upstreams_and_named_on_the_first_line(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = _workload(server, tmp_path)
    assert [workload[name] for name in _LENGTHS] == [128, 5, 20, 2]
    assert capsys.readouterr().err.startswith("Lengths: N(128, 5) tokens in, N(20, 2) out; --isl and --osl set them.")
    requested = RunFolder(tmp_path).read_requests().column("requested_output_tokens").to_pylist()
    assert all(10 <= tokens <= 30 for tokens in requested)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--input_mean 40", [40, 0, 20, 2]),
        ("--input_stdev 9", [128, 9, 20, 2]),
        ("--output_mean 7 --output_stdev 1", [128, 5, 7, 1]),
        ("--input_mean 40 --output_stdev 0", [40, 0, 20, 0]),
    ],
)
def test_of_lengths_given_in_part_a_mean_alone_is_constant_and_the_rest_is_upstreams(
    server: ScriptedServer, tmp_path: Path, options: str, expected: list[float]
) -> None:
    workload = _workload(server, tmp_path, *options.split())
    assert [workload[name] for name in _LENGTHS] == expected


def test_lengths_that_are_all_given_need_no_line(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _workload(server, tmp_path, *["--input_mean", "4", "--input_stdev", "1", "--output_mean", "5", "--output_stdev", "0"])
    assert "Lengths:" not in capsys.readouterr().err


# ---- laws


def _columns(folder: Path) -> list[list[int]]:
    table = RunFolder(folder).read_requests()
    return [table.column(name).to_pylist() for name in ("requested_input_tokens", "requested_output_tokens")]


def test_a_law_is_recorded_with_the_moments_of_what_it_draws(server: ScriptedServer, tmp_path: Path) -> None:
    workload = _workload(server, tmp_path, "--isl", "uniform:min=10,max=20", "--osl", "6±1")
    assert workload["isl"] == "uniform:min=10,max=20"
    assert (workload["output_mean"], workload["output_stdev"]) == (6, 1)
    lengths = RunFolder(tmp_path).read_document()[0]["lengths"]
    assert lengths["input"] == {"law": "uniform:min=10,max=20", "mean": 15.0, "stdev": pytest.approx(10**0.5)}
    assert lengths["output"] == {"law": "6±1", "mean": pytest.approx(6.5), "stdev": pytest.approx((1 + 1 / 12) ** 0.5)}
    assert all(10 <= tokens <= 20 for tokens in _columns(tmp_path)[0])


@pytest.mark.parametrize(
    ("law", "line"),
    [
        ("5:20", "Lengths: N(5, 20) tokens out have mean 11.43 and deviation 13.18, because none is shorter than 1."),
        (
            "normal:mean=20,stdev=20,min=1,max=40",
            "Lengths: N(20, 20) within 1..40 tokens out have mean 20.5 and deviation 10.79, "
            "because those outside 1..40 are drawn again.",
        ),
        ("lognormal:mean=9,stdev=9,max=9", "because those outside 1..9 are drawn again."),
        ("20:2", None),
        ("20:8", None),
        ("7.3", None),
        ("20.5:0.1", None),
        ("lognormal:mean=20,stdev=9", None),
        ("uniform:min=1,max=9", None),
    ],
)
def test_what_bounds_do_to_a_mean_is_one_line_before_the_run(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], law: str, line: str | None
) -> None:
    _workload(server, tmp_path, "--isl", "4", "--osl", law)
    printed = [printed_line for printed_line in capsys.readouterr().err.splitlines() if printed_line.startswith("Lengths:")]
    assert len(printed) == (line is not None)
    assert line is None or line in printed[0]


def test_a_file_of_lengths_and_a_trace_are_empirical_laws(server: ScriptedServer, tmp_path: Path) -> None:
    (tmp_path / "inputs.txt").write_text("# tokens\n7\n9\n", encoding="utf-8")
    (tmp_path / "trace.csv").write_text(_TRACE, encoding="utf-8")
    _workload(server, tmp_path / "run", "--isl", f"empirical:{tmp_path}/inputs.txt", "--osl", f"empirical:{tmp_path}/trace.csv")
    inputs, outputs = _columns(tmp_path / "run")
    assert set(inputs) <= {7, 9}
    assert set(outputs) <= {3, 5}


_TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,11,3\n2023-11-16 18:00:01,22,5\n"


def test_pairs_of_a_trace_stay_together_and_are_recorded(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trace.csv").write_text(_TRACE, encoding="utf-8")
    workload = _workload(server, tmp_path / "run", "--length_pairs", f"{tmp_path}/trace.csv")
    assert set(zip(*_columns(tmp_path / "run"), strict=True)) <= {(11, 3), (22, 5)}
    assert workload["length_pairs"] == f"{tmp_path}/trace.csv"
    assert RunFolder(tmp_path / "run").read_document()[0]["lengths"]["output"]["mean"] == 4
    assert "Lengths:" not in capsys.readouterr().err


def test_a_length_of_0_is_drawn_as_1_and_reported(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = {"input_tokens": [11, 22], "output_tokens": [0, 0]}
    Workload.of_columns(WorkloadFacts("mooncake", "t"), 2, columns).write(tmp_path / "trace.parquet")
    _workload(server, tmp_path / "run", "--length_pairs", f"{tmp_path}/trace.parquet")
    assert "2 lengths of 0 tokens are drawn as 1" in capsys.readouterr().err
    assert set(_columns(tmp_path / "run")[1]) == {1}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--length_pairs", "{trace}", "--isl", "4"], "--length_pairs sets both lengths: leave --isl out"),
        (["--length_pairs", "{trace}", "--output_mean", "4"], "leave --output_mean out"),
        (["--length_pairs", "{text}"], "--length_pairs {text}: no row has both lengths in tokens"),
        (["--isl", "empirical:{text}"], "the file has no input lengths in tokens"),
        (["--isl", "empirical:{numbers}"], "{numbers}, line 2: 'x' is no length in tokens"),
        (["--isl", "histogram:{numbers}"], "{numbers}: is no JSON"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_before_a_folder_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    contents = {"trace": ("trace.csv", _TRACE), "text": ("text.txt", "Once upon a time.\n"), "numbers": ("n.txt", "5\nx\n")}
    files = {name: tmp_path / file for name, (file, _) in contents.items()}
    for name, (_, content) in contents.items():
        files[name].write_text(content, encoding="utf-8")
    line = [option.format(**files) for option in options]
    assert run(["token_norm_dist", *line, "--run_dir", str(tmp_path / "run")]) == ExitStatus.USAGE
    error = capsys.readouterr().err
    assert words.format(**files) in error.splitlines()[-1]
    assert not (tmp_path / "run").exists()


def test_prompts_drawn_after_the_last_one_of_a_duration_are_not_counted_as_dropped(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More are drawn than the duration needs, so that those that are left fill it."""
    target = ["--url", server.address, "--model", "scripted", "--vocab_size", "100", "--run_dir", str(tmp_path / "run")]
    load = ["--request_rate=400", "--duration=0.5", "--isl=uniform:min=1,max=40", "--osl=1", "--max_input_len=30"]
    run(["token_norm_dist", *target, "--warmup_requests", "1", *load])
    document = RunFolder(tmp_path / "run").read_document()[0]
    sent = RunFolder(tmp_path / "run").read_requests().num_rows
    drawn = Uniform(1, 40).draw(10_000, 0, Stream.INPUT_LENGTHS)
    last = int(np.flatnonzero(drawn <= 30)[sent - 1])
    assert document["workload"]["dropped_too_long"] == last + 1 - sent
    assert f"Dropped {last + 1 - sent:,} prompts that are too long." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ("--concurrency 2 --duration 0.2", True),
        ("--concurrency 2 --duration 0.2 --num_requests 30", False),
        ("--request_rate 100 --duration 0.2", False),
    ],
)
def test_a_long_drawing_for_users_says_how_to_draw_fewer(
    server: ScriptedServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    load: str,
    expected: bool,
) -> None:
    monkeypatch.setattr(drawing_progress, "_FIRST_AFTER_S", 0.0)  # as if each took long
    target = ["--url", server.address, "--model", "scripted", "--vocab_size", "100", "--run_dir", str(tmp_path / "run")]
    run(["token_norm_dist", *target, "--warmup_requests", "1", "--isl", "4", "--osl", "5", *load.split()])
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Drawing prompts: ")]
    assert line.endswith("for a slower target --num_requests N draws fewer.") == expected
