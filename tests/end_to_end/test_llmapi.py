"""The llmapi target on the real server, with a fake ``tensorrt_llm`` beside its ``model.py``."""

from __future__ import annotations

import json
import queue
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from bench_cli.tokenizers import open_tokenizer, token_counter
from bench_records.run_folder import RunFolder
from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.errors import LaunchError
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import embedded_plan
from serving.launch.plan import LaunchPlan
from serving.launch.run import running
from serving.launch.server import Server
from serving.repository.llmapi import LlmApiSpec, write_llmapi_repository
from tests.end_to_end.test_bench import assert_all_done, bench
from tests.end_to_end.triton_calls import collect, generate, wire

_HERE = Path(__file__).parent


@contextmanager
def _deploy(folder: Path, with_library: bool = True, **spec: Any) -> Iterator[Server]:
    repository = write_llmapi_repository(LlmApiSpec(**{"model": "org/model", **spec}), folder / "repository")
    if with_library:
        library = repository / "tensorrt_llm" / "1" / "tensorrt_llm"
        library.mkdir()
        shutil.copy(_HERE / "fake_tensorrt_llm.py", library / "__init__.py")
        shutil.copy(_HERE / "fake_tensorrt_llm_executor.py", library / "executor.py")
    with running(_plan(repository, folder / "server.log")) as server:
        yield server


def _plan(repository: Path, log: Path) -> LaunchPlan:
    return replace(embedded_plan(repository, choose_addresses(), log), models=("tensorrt_llm",))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with _deploy(tmp_path_factory.mktemp("llmapi"), llm={"tensor_parallel_size": 2}) as server:
        yield server


def _text(*values: str) -> Any:
    return np.array([value.encode() for value in values], dtype=np.object_)


def _ask(server: Server, requests: dict[str, dict[str, Any]], cancel_after_s: float | None = None) -> dict[str, list[Any]]:
    """Send requests at once over one stream; returns the responses to each, errors included, up to the final one."""
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    collected: dict[str, list[Any]] = {request_id: [] for request_id in requests}
    with grpcclient.InferenceServerClient(server.addresses.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for request_id, tensors in requests.items():
            client.async_stream_infer("tensorrt_llm", wire(tensors), request_id=request_id, enable_empty_final_response=True)
        if cancel_after_s is not None:
            time.sleep(cancel_after_s)
            client.stop_stream(cancel_requests=True)
            return collected
        collect(answers, collected)
        client.stop_stream()
    return collected


def _request(prompt: str = "Count:", tokens: int = 8, **more: Any) -> dict[str, Any]:
    return {"text_input": _text(prompt), "sampling_param_max_tokens": np.array([tokens], np.int32), **more}


_YES = np.array([True])
_BEGIN = {"sampling_param_exclude_input_from_output": _YES}


def _texts(results: list[Any]) -> list[str]:
    return [result.as_numpy("text_output")[0].decode() for result in results]


def test_unstreamed_text_includes_the_prompt_by_default(server: Server) -> None:
    answers = _ask(server, {"a": _request(tokens=3), "b": _request(tokens=3, **_BEGIN)})
    assert (_texts(answers["a"]), _texts(answers["b"])) == (["Count: 0 1 2"], [" 0 1 2"])


def test_streamed_pieces_join_to_the_unstreamed_text(server: Server) -> None:
    pieces = _texts(_ask(server, {"a": _request(streaming=_YES)})["a"])
    assert len(pieces) == 8
    assert "".join(pieces) == "Count: 0 1 2 3 4 5 6 7"


def test_requests_run_concurrently(server: Server) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with grpcclient.InferenceServerClient(server.addresses.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(20):
            client.async_stream_infer("tensorrt_llm", wire(_request(tokens=100, streaming=_YES)), request_id=str(number))
        responses = [answers.get(timeout=120) for _ in range(20 * 100)]
        client.stop_stream()
    assert [error for _, error in responses if error is not None] == []
    order = [result.get_response().id for result, _ in responses]
    assert Counter(order) == {str(number): 100 for number in range(20)}
    assert sum(before != after for before, after in pairwise(order)) > 200  # one after the other it would be 19


def test_generate_stream_serves_events(server: Server) -> None:
    body = {"text_input": "Count:", "sampling_param_max_tokens": 4, "streaming": True}
    status, answer = generate(server, "tensorrt_llm", body, "generate_stream")
    events = [json.loads(line.removeprefix("data: ")) for line in answer.splitlines() if line]
    assert status == 200
    assert "".join(event["text_output"] for event in events) == "Count: 0 1 2 3"


def test_requested_reasons_log_probability_and_metrics_have_their_types(server: Server) -> None:
    more = {
        "return_finish_reason": _YES, "return_stop_reason": _YES, "return_cumulative_logprob": _YES,
        "sampling_param_return_perf_metrics": _YES, "sampling_param_stop": _text("3"),
    }  # fmt: skip
    (result,) = _ask(server, {"a": _request(**more)})["a"]
    assert result.as_numpy("text_output")[0] == b"Count: 0 1 2 3"
    assert result.as_numpy("finish_reason")[0] == b"stop"
    assert result.as_numpy("stop_reason")[0] == b"3"
    assert result.as_numpy("cumulative_logprob").tolist() == [-1.5]
    expected = {
        "kv_cache_reused_block": 3, "kv_cache_missed_block": 1, "kv_cache_alloc_new_blocks": 1,
        "kv_cache_alloc_total_blocks": 4, "kv_cache_hit_rate": 0.75, "acceptance_rate": 0.5,
        "total_accepted_draft_tokens": 2, "total_draft_tokens": 4, "arrival_time_ns": 2 * 86_400 * 10**9,
        "last_token_time_ns": 2 * 86_400 * 10**9 + 3000,
    }  # fmt: skip
    assert {name: result.as_numpy(name).tolist() for name in expected} == {name: [value] for name, value in expected.items()}
    (plain,) = _ask(server, {"a": _request()})["a"]
    assert [output.name for output in plain.get_response().outputs] == ["text_output"]


def test_adapter_is_passed_on(server: Server) -> None:
    lora = {"lora_name": _text("a"), "lora_id": np.array([7], np.uint64), "lora_path": _text("/adapters/a")}
    assert _texts(_ask(server, {"a": _request(tokens=2, **lora)})["a"]) == ["Count: a7 a7"]


@pytest.mark.parametrize(
    ("request_tensors", "message"),
    [
        (_request(text_input=_text("a", "b")), "text_input must hold one non-empty prompt"),
        (_request(""), "text_input must hold one non-empty prompt"),
        (_request(tokens=0), "sampling_param_max_tokens must be at least 1"),
        (_request(sampling_param_top_p=np.array([2], np.float32)), "require 0 <= top_p <= 1"),
        (_request(lora_name=_text("a")), "lora_name, lora_id and lora_path belong together"),
        (_request("explode"), "the engine is gone"),
        (_request(text_input=np.array([b"\xff"], np.object_)), "text_input is not valid UTF-8"),
    ],
)
def test_bad_request_gets_an_error_and_the_next_is_served(
    server: Server, request_tensors: dict[str, Any], message: str
) -> None:
    with pytest.raises(InferenceServerException, match=message) as caught:
        _ask(server, {"a": request_tensors})
    assert "Traceback" not in str(caught.value)
    assert _texts(_ask(server, {"a": _request(tokens=1)})["a"]) == ["Count: 0"]


@pytest.mark.parametrize("streaming", [True, False])
def test_stop_ends_the_request_of_that_id_with_cancelled(server: Server, streaming: bool) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    request = _request(tokens=20_000, streaming=np.array([streaming]), return_finish_reason=_YES)
    with grpcclient.InferenceServerClient(server.addresses.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("tensorrt_llm", wire(request), request_id="mine")
        time.sleep(0.3)
        client.async_stream_infer("tensorrt_llm", wire({"text_input": _text(""), "stop": _YES}), request_id="mine")
        ended, cancelled = False, False
        while not (ended and cancelled):
            result, error = answers.get(timeout=60)  # 20,000 tokens take 100 s
            if error is None:
                ended = result.as_numpy("finish_reason")[0] == b"cancelled"
            else:
                assert "request mine is stopped" in str(error)
                cancelled = True
        client.stop_stream()


def test_stop_of_an_unknown_id_gets_cancelled(server: Server) -> None:
    with pytest.raises(InferenceServerException, match="request unknown is stopped"):
        _ask(server, {"unknown": {"text_input": _text(""), "stop": _YES}})


def test_cancelled_requests_do_not_affect_the_server(server: Server) -> None:
    _ask(server, {str(k): _request(tokens=1000, streaming=_YES) for k in range(10)}, cancel_after_s=0.3)
    time.sleep(0.5)
    assert _texts(_ask(server, {"a": _request(tokens=1)})["a"]) == ["Count: 0"]


def test_accumulated_text_is_the_whole_text_so_far(tmp_path: Path) -> None:
    with _deploy(tmp_path, accumulate_tokens=True) as server:
        pieces = _texts(_ask(server, {"a": _request(tokens=3, streaming=_YES, **_BEGIN)})["a"])
        assert pieces == [" 0", " 0 1", " 0 1 2"]


@pytest.mark.slow
@pytest.mark.parametrize("accumulates", [True, False])
def test_bench_measures_the_model(tmp_path: Path, accumulates: bool) -> None:
    with _deploy(tmp_path, accumulate_tokens=accumulates) as server:
        result = bench(
            "token_norm_dist", "-i", "grpc", "--url", server.addresses.grpc, "--tokenizer_dir", str(DEMO_ENGINE_DIR),
            "--isl", "9", "--osl", "12", "--num_requests", "6", "--request_rate", "50", "--warmup_requests", "1",
            "--server_timings", "--run_dir", "run", cwd=tmp_path,
        )  # fmt: skip
        assert_all_done(result, tmp_path / "run")
    rows = RunFolder(tmp_path / "run").read_requests().to_pylist()
    text = "".join(f" {number}" for number in range(12))
    assert {row["output_tokens"] for row in rows} == {token_counter(open_tokenizer(DEMO_ENGINE_DIR))(text)}
    assert {len(row["token_times_ns"]) for row in rows} == {12}
    assert {row["server_queue_ns"] for row in rows} == {1_000}


def test_streaming_is_rejected_unless_the_model_is_decoupled(tmp_path: Path) -> None:
    with _deploy(tmp_path, decoupled_mode=False) as server, grpcclient.InferenceServerClient(server.addresses.grpc) as client:
        answer = client.infer("tensorrt_llm", wire(_request(tokens=2)))
        assert answer.as_numpy("text_output")[0] == b"Count: 0 1"
        with pytest.raises(InferenceServerException, match="Streaming is only supported"):
            client.infer("tensorrt_llm", wire(_request(streaming=_YES)))


def test_missing_library_error_has_installation_instructions(tmp_path: Path) -> None:
    with pytest.raises(LaunchError) as caught, _deploy(tmp_path, with_library=False):
        pass
    log = (tmp_path / "server.log").read_text()
    assert "TensorRT-LLM is not installed" in str(caught.value) + log
    assert "pip install 'tensorrt-llm>=1.0'" in log


def test_model_yaml_that_contradicts_the_configuration_is_rejected(tmp_path: Path) -> None:
    repository = write_llmapi_repository(LlmApiSpec("org/model"), tmp_path / "repository")
    yaml = repository / "tensorrt_llm" / "1" / "model.yaml"
    yaml.write_text('model: "m"\ntriton_config: {"decoupled": false}\n')
    with pytest.raises(LaunchError), running(_plan(repository, tmp_path / "server.log")):
        pass
    assert "decoupled is False in model.yaml but True in config.pbtxt" in (tmp_path / "server.log").read_text()
