"""``bench config``: what it prints is what ``--config`` reads, and gives the same requests at the same times."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_cli import run
from bench_cli.config import configuration
from bench_cli.measurement.dataset import command as dataset
from bench_cli.measurement.token_norm_dist import command as token_norm_dist
from bench_errors import ExitStatus
from bench_records.manifest import Manifest, Workload
from bench_records.run_folder import RunFolder
from tests.harness.scripted_server import ScriptedServer


def _measure(server: ScriptedServer, folder: Path, *line: str) -> Manifest:
    of_target = ["--url", server.address, "--model", "scripted"]
    assert run([*line, *of_target, "--run_dir", str(folder)]) in (ExitStatus.VALID, ExitStatus.INVALID)
    return RunFolder(folder).read_manifest()


@pytest.mark.parametrize(
    "line",
    [
        ["--isl", "12:3", "--osl", "4", "--request_rate", "200", "--num_requests", "9", "--seed", "7", "--slo", "e2e<=60s"],
        ["--isl", "normal:mean=30,stdev=9,min=10,max=40", "--osl", "zipf:exponent=1.5,min=1,max=9", "--num_requests", "9"],
        ["--isl", "histogram:example", "--osl", "constant:tokens=4", "--num_requests", "9"],
        ["--output_mean", "3", "--concurrency", "2", "--num_requests", "5", "--no_ignore_eos", "--fail_if", "p99_e2e>60s"],
    ],
)
def test_a_run_by_the_printed_file_has_the_same_schedule_and_options(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: list[str]
) -> None:
    first = _measure(server, tmp_path / "first", "token_norm_dist", "--vocab_size", "100", *line)
    capsys.readouterr()
    assert run(["config", str(tmp_path / "first")]) == ExitStatus.VALID
    (tmp_path / "bench.toml").write_text(capsys.readouterr().out, encoding="utf-8")
    second = _measure(server, tmp_path / "second", "token_norm_dist", "--config", str(tmp_path / "bench.toml"))
    assert second.schedule == first.schedule
    assert {**second.options, "run_dir": None} == {**first.options, "run_dir": None}


@given(st.text(min_size=1))
def test_any_text_comes_back_as_it_was(text: str) -> None:
    manifest = Manifest(options={"model": text, "slo": [text]})
    printed = configuration(manifest, dataset)
    assert tomllib.loads(printed) == {"model": text, "slo": [text]}
    assert all(character.isprintable() or character == "\n" for character in printed)


def test_values_at_their_default_are_comments_and_unknown_ones_are_left_out() -> None:
    options = {"seed": 0, "workers": None, "request_rate": -1.0, "undecided": "fail", "run_dir": "/x", "engine_settings": None}
    lines = configuration(Manifest(options=options), dataset).splitlines()
    assert lines == [
        "# bench dataset --config FILE", 'undecided = "fail"', "", "# At their defaults:", "# request_rate = -1.0", "# seed = 0"
    ]  # fmt: skip


def test_files_that_the_run_wrote_are_left_out() -> None:
    written = {"run_dir": "/x", "plots": "/p", "engine_settings": {"step_log": "/steps.csv", "max_num_tokens": 512}}
    assert tomllib.loads(configuration(Manifest(options=written), dataset)) == {"max_num_tokens": 512}


def test_options_of_engine_and_workload_are_spelled_as_on_the_command_line() -> None:
    manifest = Manifest(
        workload=Workload(parameters={"dataset": "/data/p.json", "repeat_dataset": True}, requests=9),
        options={"engine_settings": {"max_num_tokens": 512}, "extra_body": {"temperature": 0}, "protocol": "http"},
    )
    assert tomllib.loads(configuration(manifest, dataset)) == {
        "dataset": "/data/p.json",
        "repeat_dataset": True,
        "max_num_tokens": 512,
        "extra_body": '{"temperature": 0}',
        "protocol": "http",
    }


def test_a_secret_is_a_line_that_a_repeat_refuses() -> None:
    manifest = Manifest(options={"header": ["Authorization: (not written down)"]})
    printed = configuration(manifest, token_norm_dist)
    assert '\nheader = ["Authorization: (not written down)"]' in printed


def test_a_folder_that_is_no_run_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", str(tmp_path)]) != ExitStatus.VALID
    error = capsys.readouterr().err
    assert str(tmp_path) in error
    assert "Traceback" not in error
