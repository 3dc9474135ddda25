"""The lengths of ``bench token_norm_dist``: what is given, and what is upstream's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cli import run
from harness.records.run_folder import RunFolder
from tests.harness.scripted_server import ScriptedServer

_LENGTHS = ("input_mean", "input_stdev", "output_mean", "output_stdev")


def _workload(server: ScriptedServer, folder: Path, *options: str) -> dict[str, Any]:
    target = ["--url", server.address, "--model", "scripted", "--vocab_size", "100", "--run_dir", str(folder)]
    run(["token_norm_dist", *target, "--warmup_requests", "1", "--num_requests", "4", *options])
    workload: dict[str, Any] = RunFolder(folder).read_manifest()["workload"]
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
