"""Queue, cache, cancellation and metrics of the core model, on real servers."""

import math
import queue
import random
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
from tritonclient.utils import InferenceServerException

from serving.engines.openvino.folder import DEMO_ENGINE_DIR
from serving.engines.protocol import EngineOptions
from serving.errors import LaunchError
from serving.launch.addresses import choose_addresses
from serving.launch.embedded import deploy, embedded_plan
from serving.launch.run import running
from serving.launch.server import Server
from serving.repository.pipeline import MODEL_NAMES, RepositorySpec
from tests.end_to_end.triton_calls import (
    core_inputs,
    flag,
    generated_tokens,
    ids_of,
    int32,
    metrics_page,
    settled,
    stream,
    value_of,
    wait_until_busy,
    wait_until_idle,
    wire,
)

PERF = (
    "kv_cache_alloc_new_blocks",
    "kv_cache_reused_blocks",
    "kv_cache_alloc_total_blocks",
    "arrival_time_ns",
    "first_scheduled_time_ns",
    "first_token_time_ns",
    "last_token_time_ns",
)
STOP = {"input_ids": int32(0), "input_lengths": int32(0), "request_output_len": int32(0), "stop": flag(True)}


@contextmanager
def deployed(folder: Path, **options: Any) -> Iterator[Server]:
    spec = RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR, engine_options=EngineOptions(**options))
    with deploy(spec, choose_addresses(), folder / "server.log") as server:
        yield server


def perf(answer: grpcclient.InferResult) -> dict[str, int]:
    return {name: answer.as_numpy(name).item() for name in PERF}


def histogram(page: str, name: str) -> dict[str, float]:
    """Cumulative counts by upper bound, with count and sum."""
    found = {}
    for line in page.splitlines():
        if match := re.fullmatch(rf"{name}_(bucket|sum|count)\{{(.*)\}} (\S+)", line):
            bound = re.search(r'le="([^"]+)"', match[2])
            found[bound[1] if bound else match[1]] = float(match[3])
    return found


# ---- performance metrics


def test_perf_metrics_have_ordered_times_and_cache_blocks(decoupled_server: Server) -> None:
    prompt = [1000 + k * 7 % 997 for k in range(100)]  # 3 full blocks of 32 and a partial one
    inputs = core_inputs(prompt, 40, return_perf_metrics=flag(True))
    before = time.monotonic_ns()
    [[first]] = stream(decoupled_server, "tensorrt_llm", [inputs])
    after = time.monotonic_ns()
    [[again]] = stream(decoupled_server, "tensorrt_llm", [inputs])
    times = [value for name, value in perf(first).items() if name.endswith("_ns")]
    order = [before, *times, after]
    assert order == sorted(order)
    blocks = [name for name in PERF if name.startswith("kv")]
    assert [perf(first)[name] for name in blocks] == [4, 0, 5]  # 139 tokens are cached: the last is never an input
    assert [perf(again)[name] for name in blocks] == [1, 3, 2]
    assert (first.as_numpy("acceptance_rate").item(), first.as_numpy("total_draft_tokens").item()) == (0.0, 0)


def test_perf_metrics_are_absent_unless_requested(decoupled_server: Server) -> None:
    [[answer]] = stream(decoupled_server, "tensorrt_llm", [core_inputs(range(9), 4)])
    assert all(answer.as_numpy(name) is None for name in PERF)


def test_streamed_perf_metrics_grow_to_their_final_values(decoupled_server: Server) -> None:
    inputs = core_inputs(range(40, 90), 20, return_perf_metrics=flag(True), streaming=flag(True))
    [answers] = stream(decoupled_server, "tensorrt_llm", [inputs])
    assert all(perf(answer)["first_token_time_ns"] > 0 for answer in answers)
    assert [perf(answer)["last_token_time_ns"] for answer in answers[:-1]] == [0] * (len(answers) - 1)
    assert perf(answers[-1])["last_token_time_ns"] > perf(answers[-1])["first_token_time_ns"]


# ---- stop and cancellation


def test_stop_needs_an_id_and_accepts_an_ended_one(decoupled_server: Server) -> None:
    stream(decoupled_server, "tensorrt_llm", [core_inputs([5, 6], 4)], ["ended"])
    assert stream(decoupled_server, "tensorrt_llm", [STOP], ["ended"]) == [[]]
    with pytest.raises(InferenceServerException, match="Trying to stop a request but request ID is not provided"):
        stream(decoupled_server, "tensorrt_llm", [STOP], [""])


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"beam_width": int32(3)},
        {"num_return_sequences": int32(3)},
        {"bad_words_list": np.array([[[5], [1]]], dtype=np.int32)},
    ],
    ids=["plain", "beams", "sequences", "exact"],
)
def test_stop_frees_every_kind_of_request_at_once(decoupled_server: Server, more: dict[str, Any]) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    before = generated_tokens(wait_until_idle(decoupled_server))
    with grpcclient.InferenceServerClient(decoupled_server.addresses.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        long = core_inputs(range(30, 50), 3000, **more)
        client.async_stream_infer("tensorrt_llm", wire(long), request_id="mine", enable_empty_final_response=True)
        wait_until_busy(decoupled_server)
        client.async_stream_infer("tensorrt_llm", wire(STOP), request_id="mine", enable_empty_final_response=True)
        finals = 0
        while finals < 2:
            result, error = answers.get(timeout=120)
            assert error is None
            finals += result.get_response().parameters["triton_final_response"].bool_param
        client.stop_stream()
    assert generated_tokens(wait_until_idle(decoupled_server)) - before < 2900


@pytest.mark.slow
def test_400_random_cancellations_leak_no_block_and_change_no_output(decoupled_server: Server) -> None:
    mine = core_inputs(range(30, 80), 40)
    [before] = stream(decoupled_server, "tensorrt_llm", [mine])
    chance = random.Random(20261121)
    kinds: list[dict[str, Any]] = [{}, {"streaming": flag(True)}, {"beam_width": int32(2)}, {"num_return_sequences": int32(2)}]

    def abandon(number: int) -> None:
        for turn in range(2):
            with grpcclient.InferenceServerClient(decoupled_server.addresses.grpc) as client:
                client.start_stream(lambda result, error: None)
                for k in range(25):
                    inputs = core_inputs(range(5 + k, 60 + 2 * k), 400, **kinds[(number + turn + k) % len(kinds)])
                    client.async_stream_infer("tensorrt_llm", wire(inputs))
                time.sleep(chance.uniform(0.05, 0.6))
                client.stop_stream(cancel_requests=True)

    threads = [threading.Thread(target=abandon, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    [during] = stream(decoupled_server, "tensorrt_llm", [mine])
    for thread in threads:
        thread.join()
    wait_until_idle(decoupled_server)
    [after] = stream(decoupled_server, "tensorrt_llm", [mine])
    assert ids_of(before) == ids_of(during) == ids_of(after)
    wait_until_idle(decoupled_server)
    with grpcclient.InferenceServerClient(decoupled_server.addresses.grpc) as client:
        client.start_stream(lambda result, error: None)
        client.async_stream_infer("tensorrt_llm", wire(core_inputs(range(30, 80), 1000)))
        used = value_of(wait_until_busy(decoupled_server), "nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type="used")
        client.stop_stream(cancel_requests=True)
    assert used <= math.ceil(1050 / 32)  # a busy engine, as leaked blocks would not show in an idle one


# ---- deployments


def test_full_queue_rejects_with_upstreams_message_and_serves_the_rest(narrow_server: Server) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with grpcclient.InferenceServerClient(narrow_server.addresses.grpc) as client:
        client.start_stream(lambda result, error: answers.put((result, error)))
        for number in range(8):
            client.async_stream_infer("tensorrt_llm", wire(core_inputs(range(20, 40), 300)), request_id=str(number))
        got = [answers.get(timeout=120) for _ in range(8)]
        client.stop_stream()
    errors = [str(error) for _, error in got if error is not None]
    assert len(errors) == 5  # one runs, two wait
    assert all("Maximum queue size of 2 has been reached" in error for error in errors)
    assert all(len(ids_of([result])) == 300 for result, error in got if error is None)


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("gpt_model_type", "V2", "Invalid gpt_model_type 'V2'"),
        ("batch_scheduler_policy", "static", "batch_scheduler_policy must be guaranteed_no_evict or max_utilization"),
    ],
)
def test_invalid_parameter_is_rejected_at_load_with_a_message(tmp_path: Path, parameter: str, value: str, message: str) -> None:
    from serving.repository import pipeline as written

    folder = written.write_repository(RepositorySpec(DEMO_ENGINE_DIR, DEMO_ENGINE_DIR), tmp_path / "repository")
    for other in set(MODEL_NAMES) - {"tensorrt_llm"}:  # loading them is not needed
        shutil.rmtree(folder / other)
    config = folder / "tensorrt_llm" / "config.pbtxt"
    text = config.read_text()
    pattern = rf'(key: "{parameter}"\s+value {{\s+string_value: )"[^"]*"'
    assert re.search(pattern, text)
    config.write_text(re.sub(pattern, rf'\1"{value}"', text))
    log = tmp_path / "server.log"
    with pytest.raises(LaunchError), running(embedded_plan(folder, choose_addresses(), log)):
        pass
    assert message in log.read_text()


# ---- metrics


def test_request_metrics_and_token_histograms_are_exact(decoupled_server: Server) -> None:
    page = settled(decoupled_server)
    before = {name: histogram(page, name) for name in ("nv_llm_input_token_len", "nv_llm_output_token_len")}
    times = {name: histogram(page, f"inflight_bench_{name}_seconds") for name in ("time_to_first_token", "queue_time")}
    requests = [core_inputs(range(5, 5 + length), 20) for length in (3, 30, 70, 300)]
    stream(decoupled_server, "tensorrt_llm", [*requests, core_inputs(range(5, 12), 50, beam_width=int32(2))])
    page = settled(decoupled_server)
    grown = {name: {key: value - before[name][key] for key, value in histogram(page, name).items()} for name in before}
    assert grown["nv_llm_input_token_len"] == {
        "10": 2, "50": 3, "100": 4, "500": 5, "1000": 5, "+Inf": 5, "count": 5, "sum": 3 + 30 + 70 + 300 + 7,
    }  # fmt: skip
    assert grown["nv_llm_output_token_len"] == {
        "10": 0, "50": 4, "100": 5, "500": 5, "1000": 5, "+Inf": 5, "count": 5, "sum": 4 * 20 + 2 * 50,
    }  # fmt: skip
    for name, known in (("time_to_first_token", 4), ("queue_time", 5)):  # a beam search gives its tokens at its end
        now, was = histogram(page, f"inflight_bench_{name}_seconds"), times[name]
        assert now["count"] - was["count"] == known
        assert now["+Inf"] == now["count"]


def test_metrics_of_a_busy_engine_match_its_requests(tmp_path: Path) -> None:
    with deployed(tmp_path, max_tokens_in_paged_kv_cache=3200, max_num_sequences=4) as server:
        answers: queue.Queue[Any] = queue.Queue()
        with grpcclient.InferenceServerClient(server.addresses.grpc) as client:
            client.start_stream(lambda result, error: answers.put(error))
            for number in range(6):
                inputs = core_inputs(range(20 + number, 60 + number), 700)
                client.async_stream_infer("tensorrt_llm", wire(inputs), request_id=str(number))
            expected = {"active": 6, "max": 4, "scheduled": 4, "waiting": 2, "generating": 4, "blocks": 100}
            published: dict[str, float] = {}
            deadline = time.monotonic() + 120
            while published != expected:  # a page may be read during its update
                assert time.monotonic() < deadline, f"{published} never became {expected}"
                page = metrics_page(server)
                blocks = {
                    kind: value_of(page, "nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type=kind)
                    for kind in ("max", "used", "free", "tokens_per")
                }
                kinds = ("active", "max", "scheduled", "waiting")
                published = {kind: value_of(page, "nv_trt_llm_request_metrics", request_type=kind) for kind in kinds}
                published["generating"] = value_of(
                    page, "nv_trt_llm_inflight_batcher_metrics", inflight_batcher_specific_metric="generation_requests"
                )
                published["blocks"] = blocks["used"] + blocks["free"]
            assert [answers.get(timeout=120) for _ in range(6)] == [None] * 6
            client.stop_stream()
        assert (blocks["max"], blocks["tokens_per"]) == (100, 32)
        assert 4 <= blocks["used"] <= 96
        before_s = time.time()
        page = wait_until_idle(server)
        assert before_s < value_of(page, "nv_trt_llm_general_metrics", general_type="timestamp") / 1e6 < time.time()
        assert generated_tokens(page) == 6 * 700
        memory = {
            kind: value_of(page, "nv_trt_llm_runtime_memory_metrics", memory_type=kind) for kind in ("cpu", "gpu", "pinned")
        }
        assert memory.pop("cpu") > 1e7
        assert memory == {"gpu": 0.0, "pinned": 0.0}  # it computes on the CPU


def test_the_hit_rate_counts_blocks_found_in_the_cache(narrow_server: Server) -> None:
    def counted() -> list[float]:
        page = settled(narrow_server)
        return [value_of(page, f"inflight_bench_engine_kv_{kind}_blocks") for kind in ("prompt", "reused")]

    prompt, reused = counted()
    for _ in range(3):
        stream(narrow_server, "tensorrt_llm", [core_inputs(range(100, 228), 2)])
    assert counted() == [prompt + 3 * 4, reused + 2 * 4]
