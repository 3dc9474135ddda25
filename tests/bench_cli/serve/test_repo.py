"""``bench serve repo`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from bench_cli import run
from bench_errors import ExitStatus
from serving.engines.openvino.folder import DEMO_ENGINE_DIR


@pytest.fixture
def engine(tmp_path: Path) -> str:
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "rank0.engine").touch()
    (folder / "config.json").write_text(json.dumps({"build_config": {"max_batch_size": 16, "max_beam_width": 1}}))
    return str(folder)


def _core(repository: Path) -> Any:
    text = (repository / "tensorrt_llm" / "config.pbtxt").read_text()
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def _parameters(repository: Path) -> dict[str, str]:
    return {key: value.string_value for key, value in _core(repository).parameters.items()}


def test_ngc_repository_has_the_given_parameters(tmp_path: Path, engine: str) -> None:
    output = tmp_path / "repository"
    status = run(
        ["serve", "repo", "--target", "ngc", "--output_dir", str(output), "--engine-dir", engine, "--tokenizer_dir",
         str(DEMO_ENGINE_DIR), "--kv_cache_free_gpu_mem_fraction", "0.8", "--max-queue-size", "7", "--no_decoupled_mode"]
    )  # fmt: skip
    assert status == ExitStatus.VALID
    core = _core(output)
    assert _parameters(output)["kv_cache_free_gpu_mem_fraction"] == "0.8"
    assert (core.max_batch_size, core.model_transaction_policy.decoupled) == (16, False)
    assert core.dynamic_batching.default_queue_policy.max_queue_size == 7


def test_embedded_repository_accepts_the_parameters_of_its_engine(tmp_path: Path) -> None:
    output = tmp_path / "repository"
    status = run(
        ["serve", "repo", "--target", "embedded", "--output_dir", str(output), "--max_tokens_in_paged_kv_cache", "640",
         "--enable_kv_cache_reuse", "false", "--max_num_sequences", "5", "--exclude_input_in_output", "true",
         "--batch_scheduler_policy", "max_utilization", "--kv_cache_free_gpu_mem_fraction", "0.5", "--max_queue_size", "9"]
    )  # fmt: skip
    assert status == ExitStatus.VALID
    parameters = _parameters(output)
    assert parameters["gpt_model_path"] == parameters["tokenizer_dir"] == str(DEMO_ENGINE_DIR)
    assert parameters["max_tokens_in_paged_kv_cache"] == "640"
    assert parameters["enable_kv_cache_reuse"] == "false"
    assert parameters["max_num_sequences"] == "5"
    assert parameters["exclude_input_in_output"] == "true"
    assert parameters["batch_scheduler_policy"] == "max_utilization"
    assert parameters["kv_cache_free_gpu_mem_fraction"] == "0.5"
    assert parameters["max_queue_size"] == "9"


def test_llmapi_repository_has_the_model(tmp_path: Path) -> None:
    output = tmp_path / "repository"
    command = ["serve", "repo", "--target", "llmapi", "--output_dir", str(output), "--model", "org/model"]
    assert run([*command, "--set", "tensor_parallel_size=2"]) == ExitStatus.VALID
    yaml = (output / "tensorrt_llm" / "1" / "model.yaml").read_text()
    assert 'model: "org/model"\ntensor_parallel_size: 2\n' in yaml


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "ngc"], "--tokenizer_dir must be given"),
        (["--target", "ngc", "--tokenizer_dir", "."], "--engine_dir must be given"),
        (["--target", "llmapi"], "--model must be given"),
        (["--target", "nosuch"], "--target"),
        (["--target", "embedded", "--medusa_choices", "{0}"], "--medusa_choices: the target embedded has no such option"),
        (["--target", "embedded", "--engine_dir", "."], "holds no OpenVINO engine"),
        (["--target", "embedded", "--accumulate_tokens", "--no_decoupled_mode"], "accumulate_tokens"),
        (["--target", "llmapi", "--model", "m", "--engine_dir", "."], "--engine_dir: the target llmapi has no such option"),
        (["--target", "llmapi", "--model", "m", "--set", "nosuch=1"], "--set nosuch"),
        (["--target", "ngc", "--set", "dtype=auto"], "--set: the target ngc has no such option"),
        (["--target", "ngc", "--kv_cache_free_gpu_mem_fraction", "1.5"], "--kv_cache_free_gpu_mem_fraction must be a number"),
        (["--target", "ngc", "--enable_trt_overlap", "true"], "--enable_trt_overlap: "),
        (["--target", "ngc", "--worker_path", "/w"], "executor_worker_path"),
    ],
)
def test_usage_error_is_one_sentence_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert run(["serve", "repo", "--output_dir", str(tmp_path / "repository"), *options]) == ExitStatus.USAGE
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("Error: ") == 1
    assert captured.out == ""
    assert not (tmp_path / "repository").exists()
