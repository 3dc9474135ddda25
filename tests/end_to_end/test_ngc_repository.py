"""The Python models of the ngc target on the real server, with the embedded core model instead of the C++ one (needs a GPU)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tritonclient.utils import InferenceServerException

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import embedded_plan
from serving.launch.run import running
from serving.launch.server import Server
from serving.repository.ngc import write_ngc_repository
from serving.repository.ngc_spec import NgcSpec
from serving.repository.pipeline import RepositorySpec, write_repository
from tests.end_to_end.triton_calls import generate, int32, stream, text

_PROMPT = "What is machine learning?"


def _ngc_with_embedded_core(folder: Path, tensor_names: str) -> Path:
    """The ngc target's repository with the embedded target's ``tensorrt_llm``, which declares all tensors of the C++ one."""
    spec = NgcSpec(DEMO_ENGINE_DIR, {"engine_dir": Path("/engine")}, 16, tensor_names=tensor_names, check_paths=False)
    repository = write_ngc_repository(spec, folder / "repository")
    embedded = write_repository(RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, triton_max_batch_size=16), folder / "other")
    shutil.rmtree(repository / "tensorrt_llm")
    shutil.copytree(embedded / "tensorrt_llm", repository / "tensorrt_llm")
    return repository


@pytest.fixture(scope="module", params=["newest", "v0.19"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ngc")
    repository = _ngc_with_embedded_core(folder, request.param)
    for model in ("preprocessing", "postprocessing", "tensorrt_llm_bls"):
        errors = repository / model / "1" / "serving" / "errors.py"
        errors.write_text(f"{errors.read_text()}\nopen({str(folder / model)!r}, 'w').close()\n")
    with running(embedded_plan(repository, choose_addresses(), folder / "server.log")) as server:
        for model in ("preprocessing", "postprocessing", "tensorrt_llm_bls"):
            assert (folder / model).exists()  # the modules in the repository are used, not the installed ones
        yield server


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_models_of_the_repository_serve_text(server: Server, model: str) -> None:
    body = {"text_input": _PROMPT, "max_tokens": 12, "top_k": 1, "return_log_probs": False}
    status, answer = generate(server, model, body)
    assert status == 200, answer
    assert json.loads(answer)["text_output"].startswith(_PROMPT)


def test_bls_pieces_join_without_context_from_the_core_model(server: Server) -> None:
    body = {"text_input": _PROMPT, "max_tokens": 48, "exclude_input_in_output": True}
    _, whole = generate(server, "tensorrt_llm_bls", body)
    status, answer = generate(server, "tensorrt_llm_bls", {**body, "stream": True}, "generate_stream")
    pieces = [json.loads(line.removeprefix("data: "))["text_output"] for line in answer.splitlines() if line]
    assert status == 200
    assert len(pieces) > 1  # tokens that accumulate while a response is sent are joined
    assert "".join(pieces) == json.loads(whole)["text_output"]


def test_ensemble_streams(server: Server) -> None:
    status, answer = generate(server, "ensemble", {"text_input": _PROMPT, "max_tokens": 48, "stream": True}, "generate_stream")
    assert status == 200
    assert len([line for line in answer.splitlines() if line]) > 1


@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_only_the_tensor_names_of_the_containers_version_are_accepted(server: Server, model: str) -> None:
    refused = []
    for name in ("min_tokens", "min_length"):
        inputs = {"text_input": text(_PROMPT), "max_tokens": int32(4), name: int32(1)}
        try:
            stream(server, model, [inputs])
        except InferenceServerException as error:
            refused.append(name)
            assert f"unexpected inference input '{name}'" in str(error)  # noqa: PT017
    assert len(refused) == 1


def test_bad_request_gets_an_error_message(server: Server) -> None:
    status, answer = generate(server, "ensemble", {"text_input": "", "max_tokens": 4})
    assert status == 400
    assert "text_input has no token" in answer
