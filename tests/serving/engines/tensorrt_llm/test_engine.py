"""The TensorRT-LLM adapter beyond the contract of all engines, which test_contract.py checks."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from serving.engines import open_engine
from serving.engines.protocol import EngineLimits, EngineOptions, EngineStats, FinishReason, Increment, Returns, Sampling
from serving.engines.tensorrt_llm import engine as adapter
from serving.engines.tensorrt_llm.engine import _UNSUPPORTED, after_iteration, read_limits, sampling_arguments
from serving.engines.unsupported import first_unsupported
from serving.errors import EngineError
from tests.serving.engines import fake_tensorrt_llm

_STATS = EngineStats(3, 0, 256, 10, 20, 30, 0.0, 0, 0)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 100, "max_position_embeddings": 50}))
    return tmp_path


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    fakes = fake_tensorrt_llm.modules()
    for name, module in fakes.items():
        monkeypatch.setitem(sys.modules, name, module)
    return fakes


def test_missing_library_error_has_installation_instructions(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt_llm", None)
    with pytest.raises(EngineError, match=r"needs TensorRT-LLM .*pip install 'inflight-bench\[tensorrt-llm\]'"):
        open_engine("tensorrt_llm", checkpoint, EngineOptions())


def test_greedy_sampling_uses_the_defaults_of_the_library() -> None:
    arguments = sampling_arguments(Sampling(7))
    assert arguments == {
        "max_tokens": 7,
        "end_id": -1,
        "pad_id": 0,
        "ignore_eos": True,
        "detokenize": False,
        "add_special_tokens": False,
        "exclude_input_from_output": True,
    }
    fake_tensorrt_llm.SamplingParams(**arguments)


def test_every_field_of_a_sampling_is_passed_to_the_library() -> None:
    sampling = Sampling(
        7, 2, 3, greedy=False, temperature=0.5, top_k=40, top_p=0.9, top_p_decay=0.8, top_p_min=0.1,
        repetition_penalty=1.1, presence_penalty=0.2, frequency_penalty=0.3, seed=42,
    )  # fmt: skip
    arguments = sampling_arguments(sampling)
    expected = {
        "max_tokens": 7, "end_id": 2, "pad_id": 2, "ignore_eos": False, "min_tokens": 3, "temperature": 0.5, "top_k": 40,
        "top_p": 0.9, "repetition_penalty": 1.1, "presence_penalty": 0.2, "frequency_penalty": 0.3, "seed": 42,
        "top_p_decay": 0.8, "top_p_min": 0.1,
    }  # fmt: skip
    assert expected.items() <= arguments.items()
    fake_tensorrt_llm.SamplingParams(**arguments)


@pytest.mark.parametrize(
    ("sampling", "returns", "name"),
    [
        (Sampling(7, stop_words=((3, 4),)), Returns(), "stop_words_list"),
        (Sampling(7, beam_width=2), Returns(), "beam_width"),
        (Sampling(7, lora_task_id=1), Returns(), "lora_task_id"),
        (Sampling(7), Returns(log_probs=True), "return_log_probs"),
        (Sampling(7), Returns(perf_metrics=True), "return_perf_metrics"),
    ],
)
def test_unsupported_parameter_is_rejected_with_its_tensor_name(sampling: Sampling, returns: Returns, name: str) -> None:
    assert first_unsupported(_UNSUPPORTED, (), sampling, returns) == name
    assert first_unsupported(_UNSUPPORTED, (), Sampling(7), Returns()) is None


def test_unlimited_top_k_is_left_out() -> None:
    assert "top_k" not in sampling_arguments(Sampling(7, greedy=False))


def test_options_are_passed_to_the_library(checkpoint: Path, library: dict[str, Any]) -> None:
    options = EngineOptions(640, 3, 99, enable_kv_cache_reuse=False, enable_chunked_context=False)
    engine = open_engine("tensorrt_llm", checkpoint, options)
    try:
        llm = engine._llm  # type: ignore[attr-defined]
        assert type(llm).__name__ == "LLM"
        assert (llm.model, llm.max_batch_size) == (str(checkpoint), 3)
        assert llm.kv_cache_config == fake_tensorrt_llm.KvCacheConfig(enable_block_reuse=False, max_tokens=640)
    finally:
        engine.close()


def test_the_memory_alone_bounds_the_cache_by_default(checkpoint: Path, library: dict[str, Any]) -> None:
    engine = open_engine("tensorrt_llm", checkpoint, EngineOptions())
    try:
        cache = engine._llm.kv_cache_config  # type: ignore[attr-defined]
        assert (cache.max_tokens, cache.free_gpu_memory_fraction) == (None, 0.9)
    finally:
        engine.close()


def test_engine_of_trtllm_build_uses_the_tensorrt_class(checkpoint: Path, library: dict[str, Any]) -> None:
    (checkpoint / "rank0.engine").touch()
    engine = open_engine("tensorrt_llm", checkpoint, EngineOptions())
    engine.close()
    assert type(engine._llm).__name__ == "CompiledLLM"  # type: ignore[attr-defined]


def test_library_that_cannot_load_is_an_engine_error(tmp_path: Path, library: dict[str, Any]) -> None:
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"vocab_size": 100, "max_position_embeddings": 50}))
    with pytest.raises(EngineError, match=f"TensorRT-LLM cannot load {folder}: CUDA out of memory"):
        open_engine("tensorrt_llm", folder, EngineOptions())


def test_request_ends_even_if_the_library_ignores_its_abort(
    checkpoint: Path, library: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "_ABORT_GRACE_S", 0.1)
    monkeypatch.setattr(fake_tensorrt_llm.LLM, "ignores_abort", True)
    engine = open_engine("tensorrt_llm", checkpoint, EngineOptions())
    ended = threading.Event()
    got: list[Increment] = []

    def deliver(increment: Increment) -> None:
        got.append(increment)
        if increment.is_last:
            ended.set()

    engine.submit(1, [1, 2], Sampling(10**6), deliver, streaming=False)
    engine.submit(2, [1, 2], Sampling(3), lambda increment: None, streaming=False)
    threading.Event().wait(0.05)
    engine.cancel(1)
    assert ended.wait(120)
    engine.close()
    assert got == [Increment((), finish=FinishReason.CANCELLED)]


def test_limits_come_from_the_checkpoint_or_the_compiled_engine(checkpoint: Path) -> None:
    assert read_limits(checkpoint) == EngineLimits(100, 50)
    compiled = {"pretrained_config": {"vocab_size": 7}, "build_config": {"max_seq_len": 9}}
    (checkpoint / "config.json").write_text(json.dumps(compiled))
    assert read_limits(checkpoint) == EngineLimits(7, 9)


@pytest.mark.parametrize("config", [None, "{", "[]", "{}", '{"build_config": {}}'])
def test_folder_without_limits_error_names_the_file(tmp_path: Path, config: str | None) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    with pytest.raises(EngineError, match=rf"{tmp_path}/config\.json"):
        read_limits(tmp_path)


def test_iteration_statistics_are_counted() -> None:
    entry = {
        "maxNumActiveRequests": 64,
        "inflightBatchingStats": {"numScheduledRequests": 5},
        "kvCacheStats": {"maxNumBlocks": 200, "usedNumBlocks": 50, "tokensPerBlock": 32},
    }
    assert after_iteration(_STATS, entry) == EngineStats(3, 5, 64, 11, 25, 30, 0.25, 200, 32)


def test_what_the_batch_and_the_cache_hold_is_counted() -> None:
    entry = {
        "cpuMemUsage": 9_000,
        "inflightBatchingStats": {
            "numScheduledRequests": 5, "numContextRequests": 2, "numGenRequests": 3, "numPausedRequests": 1, "numCtxTokens": 640
        },
        "kvCacheStats": {"maxNumBlocks": 200, "usedNumBlocks": 50, "tokensPerBlock": 32, "reusedBlocks": 7, "missedBlocks": 13},
    }  # fmt: skip
    stats = after_iteration(_STATS, entry)
    assert (stats.context_requests, stats.generation_requests, stats.paused_requests, stats.context_tokens) == (2, 3, 1, 640)
    assert (stats.kv_reused_blocks_total, stats.kv_prompt_blocks_total, stats.memory_bytes) == (7, 20, 9_000)
    later = after_iteration(stats, {})
    assert (later.context_requests, later.kv_reused_blocks_total, later.kv_prompt_blocks_total) == (0, 7, 20)


def test_memory_is_unknown_until_the_back_end_counts_it() -> None:
    def memory(stats: EngineStats) -> tuple[int | None, ...]:
        return stats.memory_bytes, stats.gpu_memory_bytes, stats.pinned_memory_bytes

    uncounted = after_iteration(_STATS, {"cpuMemUsage": 0, "pinnedMemUsage": 0})
    assert memory(uncounted) == (None, None, None)
    counted = after_iteration(uncounted, {"cpuMemUsage": 0, "gpuMemUsage": 76_665_782_272, "pinnedMemUsage": 9_000})
    assert memory(counted) == memory(after_iteration(counted, {})) == (None, 76_665_782_272, 9_000)


def test_missing_statistics_are_unchanged() -> None:
    known = EngineStats(3, 5, 64, 11, 25, 30, 0.25, 200, 32)
    assert after_iteration(known, {"kvCacheStats": None}) == EngineStats(3, 0, 64, 12, 25, 30, 0.0, 200, 32)
