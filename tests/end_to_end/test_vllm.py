"""The five models over vLLM in another environment: with a fake in it, or the real one (`make test-vllm`)."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy
from serving.launch.server import Server
from serving.repository.pipeline import RepositorySpec
from tests.end_to_end.test_bench import assert_all_done, bench, manifest
from tests.end_to_end.triton_calls import generate
from tests.serving.engines.vllm_python import ARGUMENTS, checkpoint, vllm_python


def _model(folder: Path) -> Path:
    """A checkpoint with the demo engine's tokenizer."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO_ENGINE_DIR / name, folder)
    return checkpoint(folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("vllm")
    model = _model(folder)
    options = EngineOptions(engine_python=vllm_python(folder), engine_arg=ARGUMENTS)
    spec = RepositorySpec(model, model, engine="vllm", engine_options=options)
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
    assert not psutil.wait_procs(below, timeout=20)[1]
