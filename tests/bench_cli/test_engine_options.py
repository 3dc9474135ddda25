"""Options of the engine: what belongs to one engine is refused with another, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench_cli import run
from bench_cli.declared import Call
from bench_cli.engine_options import EngineSettings
from bench_errors import ExitStatus
from serving.engines.step_log import StepLog


@pytest.mark.parametrize("verb", ["serve", "dataset"])
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--engine_python", "/p"], "--engine_python: not with --engine openvino; only --engine vllm has it"),
        (["--engine_arg", "a=1"], "--engine_arg: not with --engine openvino; only --engine vllm has it"),
        (["--tensor_parallel_size", "2"], "--tensor_parallel_size: not with --engine openvino; only --engine vllm has it"),
        (["--core_instance_count", "2"], "--core_instance_count: not with --engine openvino; only --engine vllm has it"),
        (["--engine", "vllm", "--step_log", "s"], "--step_log: not with --engine vllm; only --engine openvino has it"),
        (
            ["--engine", "vllm", "--min_step_time", "8ms"],
            "--min_step_time: not with --engine vllm; only --engine openvino has it",
        ),
        (["--min_step_time", "8"], "--min_step_time '8': write the least time of a step, such as 8ms"),
        (["--engine", "vllm"], "--engine_dir: the demo engine is for OpenVINO; give a folder for --engine vllm"),
        (["--engine", "vllm", "--max_beam_width", "2"], "--max_beam_width: not with --engine vllm; it has no beam search"),
        (["--engine", "vllm", "--max_queue_size", "0"], "--max_queue_size: not with --engine vllm; its queue has no limit"),
        (["--engine", "vllm", "--batch_scheduler_policy", "max_utilization"], "pauses requests when the cache is full"),
        (
            ["--engine", "vllm", "--draft_engine_dir", "d"],
            "--draft_engine_dir: not with --engine vllm; it takes no draft tokens",
        ),
        (
            ["--engine", "tensorrt_llm", "--draft_engine_dir", "d"],
            "--draft_engine_dir: not with --engine tensorrt_llm; it takes no draft tokens",
        ),
        (
            ["--engine", "tensorrt_llm", "--max_beam_width", "2"],
            "--max_beam_width: not with --engine tensorrt_llm; it has no beam search here",
        ),
        (
            ["--engine", "tensorrt_llm", "--max_queue_size", "4"],
            "--max_queue_size: not with --engine tensorrt_llm; its queue has no limit",
        ),
    ],
)
def test_an_option_of_another_engine_is_refused(
    verb: str,
    options: list[str],
    problem: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([verb, *options]) == ExitStatus.USAGE
    assert problem in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("verb", ["serve", "dataset"])
@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("missing/steps.csv", "it cannot be written (No such file or directory)"),
        ("letter.txt", "the file is no step log"),
        ("/dev/null", "it is not a regular file"),
    ],
)
def test_a_step_log_that_cannot_be_written_is_refused_before_anything_starts(
    verb: str, path: str, problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "letter.txt").write_text("Dear reader")
    assert run([verb, "--step_log", path]) == ExitStatus.USAGE
    text = " ".join(capsys.readouterr().err.split())
    assert f"--step_log {tmp_path / path}: {problem}; name another file" in text


@pytest.mark.parametrize("verb", ["serve", "dataset"])
def test_a_step_log_of_another_engine_is_refused_before_anything_starts(
    verb: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    other = StepLog(tmp_path / "steps.csv", {})
    assert run([verb, "--step_log", "steps.csv"]) == ExitStatus.USAGE
    other.close()
    text = " ".join(capsys.readouterr().err.split())
    assert f"--step_log {tmp_path}/steps.csv: another engine writes to it; name another file" in text
    assert not list(tmp_path.rglob("*triton*"))


def test_vllm_needs_its_python(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["serve", "--engine", "vllm", "--model_dir", str(tmp_path)]) == ExitStatus.FAILED
    assert "--engine vllm needs --engine_python, the Python of an environment with vLLM" in capsys.readouterr().err


def test_an_option_of_the_engine_is_refused_with_a_url(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dataset", "--url", "localhost:1", "--engine", "vllm"]) == ExitStatus.USAGE
    assert "--engine configures the embedded pipeline" in " ".join(capsys.readouterr().err.split())


def test_the_python_of_a_virtual_environment_stays_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / "venv" / "python"
    link.parent.mkdir()
    link.symlink_to("/bin/true")
    monkeypatch.chdir(tmp_path)
    settings = EngineSettings(engine="vllm", engine_python="venv/python", call=Call())
    assert settings.options().engine_python == str(link)
