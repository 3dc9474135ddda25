"""The five models over vLLM in another environment: with a fake in it, or the real one (`make test-vllm`)."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import tritonclient.grpc as grpcclient

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec
from tests.end_to_end.test_bench import assert_all_done, bench, manifest
from tests.end_to_end.triton_calls import (
    core_inputs,
    flag,
    generate,
    generated_tokens,
    ids_of,
    int32,
    metrics_page,
    stream,
    value_of,
    wait_until_busy,
    wait_until_idle,
    wire,
)
from tests.serving.engines.vllm_python import ARGUMENTS, checkpoint, vllm_python

_INSTANCES = 3
_STOP = {"input_ids": int32(0), "input_lengths": int32(0), "request_output_len": int32(0), "stop": flag(True)}


def _model(folder: Path) -> Path:
    """A checkpoint with the demo engine's tokenizer."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO_ENGINE_DIR / name, folder)
    return checkpoint(folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("später")  # Python in Triton's stub has ASCII file names
    model = _model(folder)
    options = EngineOptions(engine_python=vllm_python(folder), engine_arg=ARGUMENTS)
    spec = RepositorySpec(model, model, engine="vllm", engine_options=options, core_instance_count=_INSTANCES)
    with deploy(spec, choose_addresses(), folder / "server.log") as server:
        yield server


def _core(server: Server, input_ids: list[int], tokens: int, **more: object) -> list[int]:
    body = {"input_ids": input_ids, "input_lengths": len(input_ids), "request_output_len": tokens, **more}
    status, answer = generate(server, "tensorrt_llm", body, "generate_stream")
    assert status == 200
    events = [json.loads(line.removeprefix("data: ")) for line in answer.splitlines() if line.startswith("data: ")]
    output_ids = [event["output_ids"] for event in events]  # Triton writes a single token without a list
    return [token for ids in output_ids for token in (ids if isinstance(ids, list) else [ids])]


def test_answers_repeat_the_ids_that_were_sent_and_stream_the_same_tokens(server: Server) -> None:
    prompt = [200, 7000 % 3072, 2, 3071, 5]
    whole = _core(server, prompt, 12)
    assert whole[:5] == prompt
    assert len(whole) == 17
    assert _core(server, prompt, 12, streaming=True) == whole[5:]


def test_memory_that_the_engine_does_not_report_is_absent_from_the_metrics(server: Server) -> None:
    assert "nv_trt_llm_runtime_memory_metrics{" not in wait_until_idle(server)


def test_instances_share_an_engine_and_count_their_answers_together(server: Server) -> None:
    before = wait_until_idle(server)
    names = ("nv_llm_input_token_len_sum", "nv_llm_output_token_len_count")
    inputs = [core_inputs(range(100 + number, 110 + number), 20 + number, streaming=flag(True)) for number in range(12)]
    answers = [ids_of(answer) for answer in stream(server, "tensorrt_llm", inputs)]
    assert answers == [ids_of(stream(server, "tensorrt_llm", [alone])[0]) for alone in inputs]
    tokens = 2 * sum(len(answer) for answer in answers)
    expected = [value_of(before, name) + grown for name, grown in zip(names, (24 * 10, 24), strict=True)]
    end_s = time.monotonic() + 120
    while [value_of(page := metrics_page(server), name) for name in names] != expected:
        assert time.monotonic() < end_s, page
    assert generated_tokens(wait_until_idle(server)) - generated_tokens(before) == tokens
    processes = psutil.Process(server.supervisor_pid).children(recursive=True)
    lines = [" ".join(process.cmdline()) for process in processes]
    assert len([line for line in lines if "tensorrt_llm_0_" in line]) == _INSTANCES


def test_a_stop_reaches_the_requests_of_every_instance(server: Server) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    wait_until_idle(server)
    with grpcclient.InferenceServerClient(server.addresses.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(2 * _INSTANCES):
            long = core_inputs(range(30 + number, 50 + number), 4000, streaming=flag(False))
            client.async_stream_infer("tensorrt_llm", wire(long), request_id="mine", enable_empty_final_response=True)
        wait_until_busy(server, 2 * _INSTANCES)
        client.async_stream_infer("tensorrt_llm", wire(_STOP), request_id="mine", enable_empty_final_response=True)
        lengths = []
        finals = 0
        while finals < 2 * _INSTANCES + 1:
            result, error = answers.get(timeout=120)
            assert error is None
            finals += result.get_response().parameters["triton_final_response"].bool_param
            lengths += [len(ids_of([result]))] if result.get_response().outputs else []
        client.stop_stream()
    assert max(lengths) < 4000


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_text_passes_through_all_models(server: Server, model: str) -> None:
    body = {"text_input": "Grüße an die Welt", "max_tokens": 9, "exclude_input_in_output": True}
    status, answer = generate(server, model, body, "generate_stream")
    assert status == 200
    assert "error" not in answer
    assert json.loads(answer.splitlines()[0].removeprefix("data: "))["text_output"]


def test_what_vllm_lacks_is_refused(server: Server) -> None:
    body = {"input_ids": [100, 101], "input_lengths": 2, "request_output_len": 3, "beam_width": 2}
    _, answer = generate(server, "tensorrt_llm", body, "generate_stream")
    assert "beam_width: the vllm engine does not support it" in answer


def test_a_run_deploys_it_and_records_it(tmp_path: Path) -> None:
    arguments = [word for argument in ARGUMENTS for word in ("--engine_arg", argument)]
    engine = ("--engine", "vllm", "--engine_python", vllm_python(tmp_path), "--model_dir", str(_model(tmp_path)), *arguments)
    result = bench("dataset", *engine, *("--num_requests", "12", "--request_rate", "20", "--run_dir", "run"), cwd=tmp_path)
    assert_all_done(result, tmp_path / "run")
    assert manifest(tmp_path / "run")["server"]["engine"]["engine"] == "vllm"


def test_no_process_outlives_a_killed_server(server: Server) -> None:
    """The last test of this file: it ends the server."""
    supervisor = psutil.Process(server.supervisor_pid)
    below = supervisor.children(recursive=True)
    triton = next(process for process in below if process.name() == "tritonserver")
    assert [process for process in below if "host.py" in " ".join(process.cmdline())]
    os.kill(triton.pid, signal.SIGKILL)
    assert not psutil.wait_procs(below, timeout=120)[1]
