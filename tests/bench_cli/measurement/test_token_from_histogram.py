"""``bench token_from_histogram``: upstream's histograms and those of a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench_cli import run
from bench_errors import ExitStatus
from bench_records.run_folder import RunFolder
from tests.harness.scripted_server import ScriptedServer


def _measure(server: ScriptedServer, folder: Path, *options: str) -> RunFolder:
    target = ["--url", server.address, "--model", "scripted", "--vocab_size", "100", "--run_dir", str(folder)]
    assert run(["token_from_histogram", *target, "--warmup_requests", "1", *options]) in (0, ExitStatus.INVALID)
    return RunFolder(folder)


def _lengths(folder: RunFolder) -> list[tuple[int, int]]:
    table = folder.read_requests()
    names = ("requested_input_tokens", "requested_output_tokens")
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def test_upstreams_key_sends_as_many_requests_as_asked_within_its_buckets(server: ScriptedServer, tmp_path: Path) -> None:
    folder = _measure(server, tmp_path / "run", "--histogram_key", "example", "--num_requests", "40")
    lengths = _lengths(folder)
    assert len(lengths) == 40
    assert all(151 <= inputs <= 275 and 6 <= outputs <= 30 for inputs, outputs in lengths)
    manifest = folder.read_document()[0]
    assert manifest["workload"]["histogram_key"] == "example"
    assert manifest["lengths"]["input"]["law"] == "histogram:example"
    assert manifest["lengths"]["input"]["mean"] == pytest.approx(
        (163 * 220 + 188 * 225 + 213 * 150 + 238 * 150 + 263 * 140) / 885
    )


def test_a_file_has_the_buckets_of_both_sides(server: ScriptedServer, tmp_path: Path) -> None:
    path = tmp_path / "lengths.json"
    path.write_text(json.dumps({"input": [[4, 5, 1], [9, 9, 2]], "output": [[2, 3, 1]]}), encoding="utf-8")
    folder = _measure(server, tmp_path / "run", "--histogram", str(path), "--num_requests", "30")
    assert {inputs for inputs, _ in _lengths(folder)} == {4, 5, 9}
    assert {outputs for _, outputs in _lengths(folder)} == {2, 3}
    workload = folder.read_document()[0]["workload"]
    assert workload["histogram"] == str(path)
    assert workload["input_lengths_digest"] != workload["output_lengths_digest"]


def test_the_printed_configuration_sends_the_same_schedule(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = _measure(server, tmp_path / "first", "--histogram_key", "example", "--num_requests", "9")
    capsys.readouterr()
    run(["config", str(first.path)])
    (tmp_path / "bench.toml").write_text(capsys.readouterr().out, encoding="utf-8")
    second = _measure(server, tmp_path / "second", "--config", str(tmp_path / "bench.toml"))
    assert second.read_document()[0]["schedule"] == first.read_document()[0]["schedule"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"input": [[4, 5, 1]]}', 'has no "output"'),
        ('{"input": [[4, 5, 0]], "output": [[2, 3, 1]]}', "the histogram is empty"),
        ('{"input": [[5, 4, 1]], "output": [[2, 3, 1]]}', "[5, 4, 1] is no [min, max, count]"),
    ],
)
def test_a_damaged_file_is_refused_before_a_folder_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    path = tmp_path / "lengths.json"
    path.write_text(content, encoding="utf-8")
    assert run(["token_from_histogram", "--histogram", str(path), "--run_dir", str(tmp_path / "run")]) == ExitStatus.USAGE
    assert words in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "run").exists()
