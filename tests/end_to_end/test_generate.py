"""The command ``bench generate`` against the real server."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from serving.launch.server import Server
from tests.end_to_end.triton_calls import core_inputs, generated_tokens, ids_of, stream, wait_until_busy, wait_until_idle
from tests.faults.bench_program import Ran, run_bench

BENCH = [str(Path(sys.executable).parent / "bench"), "generate"]


def generate(*arguments: str, server: Server) -> Ran:
    """The command in this process, so that its imports happen once for all tests."""
    return run_bench("generate", "--url", server.addresses.grpc, *arguments)


def shown(stdout: str, label: str) -> str:
    [line] = [line for line in stdout.splitlines() if line.startswith(f"{label}: ")]
    return line.removeprefix(f"{label}: ")


@pytest.fixture
def ids_csv(tmp_path: Path) -> str:
    (tmp_path / "ids.csv").write_text("30,31,32,33\n")
    return str(tmp_path / "ids.csv")


def test_without_a_url_the_pipeline_is_deployed_for_the_call() -> None:
    asked = [*BENCH, "-p", "What is machine learning?", "-o", "8"]
    result = subprocess.run(asked, capture_output=True, text=True, timeout=200)
    assert result.returncode == 0, result.stderr
    assert shown(result.stdout, "Output beam 0").startswith("What is machine learning?")


def test_core_model_with_ids_prints_exactly_the_tokens(decoupled_server: Server, ids_csv: str, tmp_path: Path) -> None:
    [answers] = stream(decoupled_server, "tensorrt_llm", [core_inputs([30, 31, 32, 33], 8)])
    expected = ids_of(answers)
    for streaming in ([], ["--streaming"]):
        result = generate("--input_tokens_csv", ids_csv, "-o", "8", "--end_id", "-1", *streaming, server=decoupled_server)
        assert result.returncode == 0, result.stderr
        prompt = [] if streaming else [30, 31, 32, 33]
        assert shown(result.stdout, "Output sequence") == str(prompt + expected)
    (tmp_path / "expected.csv").write_text(",".join(map(str, expected)))
    check = ["--check_output", "--output_tokens_csv", str(tmp_path / "expected.csv")]
    checked = ["--input_tokens_csv", ids_csv, "-o", "8", "--end_id", "-1", *check]
    assert generate(*checked, server=decoupled_server).returncode == 0
    (tmp_path / "expected.csv").write_text("1,2,3,4,5,6,7,8")
    refused = generate(*checked, server=decoupled_server)
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: --check_output: ")


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls", "tensorrt_llm"])
def test_streamed_text_equals_the_unstreamed_text(decoupled_server: Server, model: str) -> None:
    prompt = ["-m", model, "-p", "Naïve café 🌅?", "-o", "30", "--end_id", "-1", "--exclude_input_in_output"]
    whole = generate(*prompt, server=decoupled_server)
    streamed = generate(*prompt, "-S", server=decoupled_server)
    assert (whole.returncode, streamed.returncode) == (0, 0), whole.stderr + streamed.stderr
    text = whole.stdout.partition("Output beam 0: ")[2].partition("\nOutput sequence")[0].rstrip("\n")
    assert len(text) > 30
    assert streamed.stdout.partition("Output: ")[2].partition("\nOutput sequence")[0].rstrip("\n") == text


def test_prompts_of_a_list_are_sent_one_by_one(plain_server: Server) -> None:
    result = generate("-p", '["first", "second"]', "-o", "3", server=plain_server)
    assert result.returncode == 0, result.stderr
    outputs = [line for line in result.stdout.splitlines() if line.startswith("Output beam 0: ")]
    assert [output.split()[3][:5] for output in outputs] == ["first", "secon"]


@pytest.mark.parametrize("how", [["--request_id", "77"], ["--stop_via_request_cancel"]])
def test_stopping_early_frees_the_engine(decoupled_server: Server, ids_csv: str, how: list[str]) -> None:
    asked = ["--input_tokens_csv", ids_csv, "-o", "4000", "--end_id", "-1", "-S", "--stop_after_ms", "400", *how]
    before = generated_tokens(wait_until_idle(decoupled_server))
    result = generate(*asked, server=decoupled_server)
    assert result.returncode == 0, result.stderr
    assert "Stopped early." in result.stdout
    assert 0 < len(shown(result.stdout, "Output sequence").split(",")) < 4000
    assert generated_tokens(wait_until_idle(decoupled_server)) - before < 2000


def test_stop_without_running_request_is_a_failure(decoupled_server: Server, ids_csv: str) -> None:
    asked = ["--input_tokens_csv", ids_csv, "-o", "2", "--stop_after_ms", "60000", "--request_id", "78"]
    result = generate(*asked, server=decoupled_server)
    assert result.returncode == 1
    assert "--stop_after_ms: the answer was complete before the stop" in result.stderr


def test_ctrl_c_cancels_the_request(decoupled_server: Server, ids_csv: str) -> None:
    asked = [
        *BENCH,
        "--url",
        decoupled_server.addresses.grpc,
        "--input_tokens_csv",
        ids_csv,
        "-o",
        "4000",
        "--end_id",
        "-1",
        "-S",
    ]
    before = generated_tokens(wait_until_idle(decoupled_server))
    process = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    wait_until_busy(decoupled_server)
    os.killpg(process.pid, signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert stderr.strip().endswith("interrupted")
    assert "Traceback" not in stderr
    assert generated_tokens(wait_until_idle(decoupled_server)) - before < 2000


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_error_of_the_server_is_printed_and_is_a_failure(plain_server: Server, model: str) -> None:
    result = generate("-m", model, "-p", "hello", "-o", "0", server=plain_server)
    assert result.returncode == 1
    assert "request_output_len must be at least 1, not 0" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_streaming_is_rejected_for_a_model_without_support(plain_server: Server) -> None:
    result = generate("-p", "hello", "-S", server=plain_server)
    assert result.returncode == 1
    assert "decoupled" in result.stderr
