"""``bench`` against models that others wrote, on the real server: vllm_backend's, and that of TensorRT-LLM's LLM API.

Their engines are replaced by ``counting_model.py``, which has their tensors and rules; the server and the client are real.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tritonclient.grpc import model_config_pb2

from bench_records.run_folder import RunFolder
from harness.clients.protocol import Client, Response
from harness.clients.server_times import ServerTimes
from harness.clients.triton import grpc as triton_grpc
from harness.clients.triton import http as triton_http
from harness.clients.triton.grpc import TritonGrpcClient
from harness.clients.triton.http import TritonHttpClient
from harness.clients.triton.http_infer import TritonHttpInferClient
from harness.protocols.triton_http import TritonHttp
from harness.recording.accumulated_text import in_pieces
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import embedded_plan
from serving.launch.run import running
from serving.launch.server import Server
from serving.repository.llmapi import LLMAPI_INPUTS, LLMAPI_OUTPUTS
from serving.repository.model_config import add_parameters, add_tensors, write_config
from serving.repository.tensors import parse_tensors
from tests.end_to_end.test_bench import assert_all_done, bench
from workloads.elements.request import Request

_VLLM_INPUTS = """
text_input                  STRING 1
image?                      STRING -1
stream?                     BOOL   1
sampling_parameters?        STRING 1
exclude_input_in_output?    BOOL   1
return_finish_reason?       BOOL   1
return_cumulative_logprob?  BOOL   1
return_logprobs?            BOOL   1
return_num_input_tokens?    BOOL   1
return_num_output_tokens?   BOOL   1
"""
_VLLM_OUTPUTS = """
text_output         STRING -1
finish_reason       STRING -1
cumulative_logprob  FP32   -1
logprobs            STRING -1
num_input_tokens    UINT32 1
num_output_tokens   UINT32 -1
"""
_MODELS = {
    "vllm_model": ("vllm", True, _VLLM_INPUTS, _VLLM_OUTPUTS),
    "tensorrt_llm": ("llmapi", True, LLMAPI_INPUTS, LLMAPI_OUTPUTS),
    "whole": ("llmapi", False, LLMAPI_INPUTS, LLMAPI_OUTPUTS),
}


@dataclass(frozen=True)
class Deployed:
    """The server, and the log of each model."""

    server: Server
    folder: Path

    @property
    def grpc(self) -> str:
        return self.server.addresses.grpc

    @property
    def http(self) -> str:
        return self.server.addresses.http

    def ended(self, model: str) -> list[tuple[int, str]]:
        """The tokens of every answer so far, and how it ended."""
        log = self.folder / f"{model}.log"
        rows = [line.split(" ") for line in log.read_text().splitlines()] if log.exists() else []
        return [(int(tokens), end) for _, tokens, end in rows]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    folder = tmp_path_factory.mktemp("models_of_others")
    for name, (rules, decoupled, inputs, outputs) in _MODELS.items():
        config = model_config_pb2.ModelConfig(name=name, backend="python", max_batch_size=0)
        config.model_transaction_policy.decoupled = decoupled
        add_tensors(config, parse_tensors(inputs), parse_tensors(outputs))
        add_parameters(config, {"rules": rules, "log": folder / f"{name}.log"})
        version = write_config(config, folder / "repository")
        shutil.copy(Path(__file__).with_name("counting_model.py"), version / "model.py")
    plan = embedded_plan(folder / "repository", choose_addresses(), folder / "server.log", models=tuple(_MODELS))
    with running(plan) as server:
        yield Deployed(server, folder)


async def _ask(client: Client, *requests: Request) -> list[list[Response]]:
    connection = await client.connect(10.0)

    async def one(number: int, request: Request) -> list[Response]:
        bodies: list[bytes] = []
        await connection.exchange(client.encode(number, request), lambda _, arrived: bodies.extend(arrived), 60.0)
        return [client.decode(body) for body in bodies]

    answers = await asyncio.gather(*(one(number, request) for number, request in enumerate(requests)))
    await connection.close()
    return list(answers)


def _text(responses: Sequence[Response]) -> str:
    assert not [response.error for response in responses if response.error is not None]
    return "".join(response.text or "" for response in in_pieces(responses))


def _clients(deployed: Deployed, name: str, streaming: bool) -> list[Client]:
    """A client of each protocol that can be used."""
    origin = TritonHttp().address(deployed.http, None)
    by_grpc, by_http = triton_grpc.inspect_model(deployed.grpc, name), triton_http.inspect_model(origin, name, {})
    assert by_grpc == by_http
    clients: list[Client] = [TritonGrpcClient(deployed.grpc, by_grpc, streaming), TritonHttpClient(origin, by_http, streaming)]
    return clients if by_http.decoupled else [*clients, TritonHttpInferClient(origin, by_http, False)]


@pytest.mark.parametrize(
    ("model", "streaming"),
    [("vllm_model", True), ("vllm_model", False), ("tensorrt_llm", True), ("tensorrt_llm", False), ("whole", False)],
)
def test_every_protocol_gets_the_whole_answer_and_the_counts(deployed: Deployed, model: str, streaming: bool) -> None:
    long, short = Request(20, prompt="Say it again", ignore_eos=model == "vllm_model"), Request(1, prompt="Say")
    counts = model == "vllm_model"
    for client in _clients(deployed, model, streaming):
        first, second = uvloop.run(_ask(client, long, short))
        assert _text(first) == "".join(f" {number}" for number in range(20))
        assert _text(second) == " 0"
        contents = [response for response in first if response.text]
        assert len(contents) == (20 if streaming else 1)
        assert [response.server_tokens for response in contents] == [20 // len(contents) if counts else None] * len(contents)
        assert {response.server_input_tokens for response in contents} == {3 if counts else None}
        assert [reason for response in first for reason in response.finish_reasons] == ([] if counts else ["length"])


def test_an_answer_ends_with_its_sequence_unless_vllm_is_asked_to_ignore_it(deployed: Deployed) -> None:
    early = Request(9, prompt="early")
    for client in _clients(deployed, "vllm_model", True):
        ended, ignored = uvloop.run(_ask(client, early, replace(early, ignore_eos=True)))
        assert (_text(ended), len(_text(ignored).split())) == (" 0 1 2", 9)


def test_an_answer_of_the_llm_api_says_why_it_ended(deployed: Deployed) -> None:
    for client in _clients(deployed, "tensorrt_llm", True):
        (answer,) = uvloop.run(_ask(client, Request(9, prompt="early")))
        assert (_text(answer), [response.finish_reasons for response in answer if response.finish_reasons]) == (
            " 0 1 2",
            [("stop",)],
        )


def test_times_that_are_sent_as_texts_are_read(deployed: Deployed) -> None:
    for client in _clients(deployed, "tensorrt_llm", True):
        asking: Any = type(client)(**{**_fields(client), "model": _fields(client)["model"].asking_for_times()})
        (answer,) = uvloop.run(_ask(asking, Request(3, prompt="Say")))
        times = [response.server_times for response in answer if response.server_times is not None]
        assert times == [ServerTimes(queue_ns=30_000, prefill_ns=50_000, decode_ns=220_000, arrival_ns=1_000)]


def _fields(client: Any) -> dict[str, Any]:
    return {name: getattr(client, name) for name in client.__struct_fields__}


@pytest.mark.parametrize("protocol", ["grpc", pytest.param("http", marks=pytest.mark.slow)])
@pytest.mark.parametrize("model", ["vllm_model", "tensorrt_llm"])
def test_a_run_counts_what_the_model_counted(deployed: Deployed, tmp_path: Path, model: str, protocol: str) -> None:
    prompts = [f"Say {number}" for number in range(9)] + ["explode"]
    (tmp_path / "prompts.jsonl").write_text(
        "".join(json.dumps({"prompt": prompt, "output_tokens": 30}) + "\n" for prompt in prompts)
    )
    before = len(deployed.ended(model))
    url = deployed.grpc if protocol == "grpc" else f"http://{deployed.http}"
    result = bench(
        "dataset", "--dataset", "prompts.jsonl", "-i", protocol, "--url", url, "--model", model, "--request_rate", "40",
        "--cancel", "20%:after=5tokens", "--tokenizer_dir", str(DEMO_ENGINE_DIR), "--warmup_requests", "1",
        "--run_dir", "run", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 1, result.stderr  # one request fails
    rows = RunFolder(tmp_path / "run").read_requests().to_pylist()
    ended = deployed.ended(model)[before:]
    assert [row["error"] for row in rows if row["outcome"] == "server_error"] == ["Error generating stream: the engine is gone"]
    assert [tokens for tokens, end in ended if end == "failed"] == [2]
    done, withdrawn = ([row for row in rows if row["outcome"] == outcome] for outcome in ("done", "withdrawn"))
    assert (len(done) + len(withdrawn), len(withdrawn) > 0) == (9, True)
    whole = [tokens for tokens, end in ended if end == "done"]
    assert set(whole) == {30}
    warm_up = 1
    if protocol == "grpc":  # over HTTP, the server sees a closed connection some responses later, perhaps too late
        assert len(whole) == len(done) + warm_up
        assert sum(end == "cancelled" for _, end in ended) == len(withdrawn)
    source = "server" if model == "vllm_model" else "chunks"
    assert {(row["output_tokens"], row["output_tokens_source"]) for row in done} == {(30, source)}
    assert {len(row["token_times_ns"]) for row in done} == {30}
    assert {row["prompt_echoed"] for row in done} == {False}


@pytest.mark.slow
def test_random_prompts_ignore_the_end_by_vllm_alone(deployed: Deployed, tmp_path: Path) -> None:
    asked = (
        "token_norm_dist", "-i", "grpc", "--url", deployed.grpc, "--tokenizer_dir", str(DEMO_ENGINE_DIR), "--isl", "9",
        "--osl", "4", "--num_requests", "5", "--request_rate", "50", "--warmup_requests", "1",
    )  # fmt: skip
    for model, ignored in (("vllm_model", True), ("tensorrt_llm", False)):
        assert_all_done(bench(*asked, "--model", model, "--run_dir", model, cwd=tmp_path), tmp_path / model)
        rows = RunFolder(tmp_path / model).read_requests().to_pylist()
        assert {row["ignore_eos"] for row in rows} == {ignored}
    refused = bench(*asked, "--model", "tensorrt_llm", "--ignore_eos", "--run_dir", "refused", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--ignore_eos: the model tensorrt_llm has no input for it" in refused.stderr


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_model_that_is_missing_is_refused_with_those_that_the_server_has(
    deployed: Deployed, tmp_path: Path, protocol: str
) -> None:
    url = deployed.grpc if protocol == "grpc" else f"http://{deployed.http}"
    result = bench("dataset", "-i", protocol, "--url", url, "--model", "nosuch", cwd=tmp_path)
    assert result.returncode == 1
    assert "--model nosuch: the server at " in result.stderr
    assert "; it has tensorrt_llm, vllm_model, whole" in result.stderr


def test_infer_of_a_decoupled_model_is_refused_by_its_name(deployed: Deployed, tmp_path: Path) -> None:
    result = bench("dataset", "-i", "http_infer", "--url", f"http://{deployed.http}", "--model", "vllm_model", cwd=tmp_path)
    assert result.returncode == 1
    assert "--model vllm_model: it is decoupled" in result.stderr
