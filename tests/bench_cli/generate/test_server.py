"""Inspection of the server of ``bench generate``, against a scripted server in this process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from bench_cli.generate.server import GenerateServer
from harness.clients.triton.model import TritonModel, deployed_tokenizer_dir
from harness.errors import TargetError
from serving.client.triton import TritonClient


class _Service(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]
    def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.name != "tensorrt_llm":
            context.abort(grpc.StatusCode.NOT_FOUND, f"no {request.name}")
        response = service_pb2.ModelConfigResponse()
        response.config.model_transaction_policy.decoupled = True
        response.config.input.add(name="input_ids")
        response.config.output.add(name="output_ids")
        response.config.parameters["tokenizer_dir"].string_value = "/models"
        return response


@pytest.fixture
def server() -> Iterator[GenerateServer]:
    grpc_server = grpc.server(ThreadPoolExecutor(4))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Service(), grpc_server)
    port = grpc_server.add_insecure_port("127.0.0.1:0")
    grpc_server.start()
    try:
        with TritonClient(f"127.0.0.1:{port}") as client:
            yield GenerateServer(client, tokenizer_dir=None)
    finally:
        grpc_server.stop(None)


def test_model_is_inspected_over_the_clients_channel_and_a_missing_one_is_named(server: GenerateServer) -> None:
    model = server.inspect("tensorrt_llm")
    assert (model.decoupled, model.takes_token_ids, model.parameters) == (True, True, (("tokenizer_dir", "/models"),))
    with pytest.raises(TargetError, match=r"--model gpt: the server at .* has no such model"):
        server.inspect("gpt")


def test_missing_server_is_one_sentence() -> None:
    with TritonClient("127.0.0.1:1") as client, pytest.raises(TargetError, match="no server answers there"):
        GenerateServer(client, tokenizer_dir=None).inspect("tensorrt_llm")


def test_deployed_tokenizer_is_searched_in_the_model_then_in_preprocessing(tmp_path: Path) -> None:
    def model(tokenizer_dir: str) -> TritonModel:
        return TritonModel("model", True, frozenset(), frozenset(), (("tokenizer_dir", tokenizer_dir),))

    def missing(name: str) -> TritonModel:
        raise TargetError(f"no {name}")

    def unwanted(name: str) -> TritonModel:
        raise AssertionError("one model too many")

    elsewhere, here = model("/nosuch"), model(str(tmp_path))
    assert deployed_tokenizer_dir(here, unwanted) == tmp_path
    assert deployed_tokenizer_dir(model(""), missing) is None
    assert deployed_tokenizer_dir(elsewhere, lambda name: here if name == "preprocessing" else elsewhere) == tmp_path
    assert deployed_tokenizer_dir(elsewhere, lambda name: elsewhere) is None
    assert deployed_tokenizer_dir(elsewhere, missing) is None
