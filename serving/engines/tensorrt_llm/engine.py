"""TensorRT-LLM's LLM API as an engine. The library is imported when an engine is opened.

The LLM API is asynchronous: one event loop, on its own thread, starts each request, reads its ``RequestOutput`` and delivers
the increments. Source: TensorRT-LLM's ``llmapi`` (``LLM``, ``SamplingParams``, ``RequestOutput``).
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from serving.engines.protocol import (
    TOKENS_ONLY,
    Deliver,
    EngineLimits,
    EngineOptions,
    EngineStats,
    FinishReason,
    Increment,
    Returns,
    Sampling,
)
from serving.engines.unsupported import first_unsupported
from serving.errors import EngineError

_LOG = logging.getLogger(__name__)
_STATS_PERIOD_S = 0.1
_STATS_TIMEOUT_S = 0.1
_ABORT_GRACE_S = 5.0
_CLOSE_TIMEOUT_S = 30.0
_SAME_NAME = (
    "min_tokens", "repetition_penalty", "presence_penalty", "frequency_penalty", "top_p_decay", "top_p_min",
)  # fmt: skip
_UNSUPPORTED = {  # a field of Sampling → the tensor that sets it
    "top_p_reset_id": "runtime_top_p_reset_ids",
    "beam_width": "beam_width",
    "stop_words": "stop_words_list",
    "bad_words": "bad_words_list",
    "embedding_bias": "embedding_bias",
    "guide": "guided_decoding_guide_type",
    "lora_task_id": "lora_task_id",
    "draft_ids": "draft_input_ids",
}
_CLOSED = "the engine was closed before this request ended"


@dataclass(slots=True)
class _Running:
    """One request in flight; used on the event loop's thread only."""

    deliver: Deliver
    output: Any = None  # tensorrt_llm's RequestOutput, once the request has started
    task: asyncio.Task[None] | None = None
    cancelled: bool = False
    uncounted_prompt_tokens: int = 0  # until the first token


class TensorRtLlmEngine:
    """An ``Engine`` over ``tensorrt_llm.LLM``."""

    def __init__(self, engine_dir: Path, options: EngineOptions) -> None:
        """Load a Hugging Face checkpoint, or the output of ``trtllm-build``. Raises EngineError."""
        self.limits = read_limits(engine_dir)
        self._library = _import_library()
        self._llm = _load(self._library, engine_dir, options)
        self._running: dict[int, _Running] = {}
        self._stats = EngineStats(0, 0, options.max_num_sequences, 0, 0, 0, 0.0, 0, 0)
        self._closing = False
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tensorrt-llm-engine", daemon=True)
        self._thread.start()
        self._following = asyncio.run_coroutine_threadsafe(self._follow_stats(), self._loop)

    def submit(
        self,
        request_id: int,
        input_ids: Sequence[int],
        sampling: Sampling,
        deliver: Deliver,
        *,
        streaming: bool,
        returns: Returns = TOKENS_ONLY,
    ) -> None:
        if (name := first_unsupported(_UNSUPPORTED, (), sampling, returns)) is not None:
            deliver(Increment((), error=f"{name}: the tensorrt_llm engine does not support it"))
        elif not self._call(self._start, request_id, list(input_ids), sampling, deliver, streaming):
            deliver(Increment((), error=_CLOSED))

    def cancel(self, request_id: int) -> None:
        self._call(self._abort, request_id)

    def register_lora(self, task_id: int, weights: bytes, config: bytes) -> None:
        """No effect: requests with an adapter are rejected."""

    def reset_prefix_cache(self) -> None:
        raise EngineError("TensorRT-LLM's LLM API has no call that empties the prefix cache; load the model again")

    def stats(self) -> EngineStats:
        return self._stats

    def close(self) -> None:
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._following.cancel()
        asyncio.run_coroutine_threadsafe(self._end_all(), self._loop).result(_CLOSE_TIMEOUT_S)
        self._llm.shutdown()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _call(self, function: Any, *arguments: Any) -> bool:
        """Schedule ``function`` on the loop's thread, in the order of calls; False when the engine is closed."""
        with self._lock:
            if not self._closing:
                self._loop.call_soon_threadsafe(function, *arguments)
            return not self._closing

    # ---- on the loop's thread

    def _start(self, request_id: int, input_ids: list[int], sampling: Sampling, deliver: Deliver, streaming: bool) -> None:
        running = _Running(deliver, uncounted_prompt_tokens=len(input_ids))
        self._running[request_id] = running
        self._count_active()
        running.task = self._loop.create_task(self._run(request_id, running, input_ids, sampling, streaming))

    async def _run(self, request_id: int, running: _Running, input_ids: list[int], sampling: Sampling, streaming: bool) -> None:
        try:
            last = await self._generate(running, input_ids, sampling, streaming)
        except asyncio.CancelledError:  # the engine closes, or the library did not end an aborted request
            last = Increment((), finish=FinishReason.CANCELLED) if running.cancelled else Increment((), error=_CLOSED)
        except Exception as error:
            failure = "rejected the request" if running.output is None else "failed"
            last = Increment((), error=f"TensorRT-LLM {failure}: {error}")
        del self._running[request_id]
        self._count_active()
        self._deliver(running, last)

    async def _generate(self, running: _Running, input_ids: list[int], sampling: Sampling, streaming: bool) -> Increment:
        """Run one request to its end: deliver its increments, and return the last."""
        if running.cancelled:  # before the task started
            return Increment((), finish=FinishReason.CANCELLED)
        parameters = self._library.SamplingParams(**sampling_arguments(sampling))
        running.output = self._llm.generate_async(input_ids, sampling_params=parameters, streaming=streaming)
        sent = 0
        if streaming:
            async for output in running.output:
                tokens = output.outputs[0].token_ids[sent:]
                sent += len(tokens)
                if output.finished:
                    return _last(output.outputs[0], tokens)
                if tokens:
                    self._deliver(running, Increment(tuple(tokens)))
        output = await running.output
        return _last(output.outputs[0], output.outputs[0].token_ids[sent:])

    def _deliver(self, running: _Running, increment: Increment) -> None:
        if increment.token_ids:
            self._stats = replace(
                self._stats,
                generated_tokens_total=self._stats.generated_tokens_total + len(increment.token_ids),
                prompt_tokens_total=self._stats.prompt_tokens_total + running.uncounted_prompt_tokens,
            )
            running.uncounted_prompt_tokens = 0
        try:
            running.deliver(increment)
        except Exception:  # an error in one callback must not end the other requests
            _LOG.exception("the callback of an increment failed")

    def _abort(self, request_id: int) -> None:
        running = self._running.get(request_id)
        if running is None or running.cancelled:
            return
        running.cancelled = True
        if running.output is not None:
            running.output.abort()
            assert running.task is not None
            self._loop.call_later(_ABORT_GRACE_S, running.task.cancel)

    async def _end_all(self) -> None:
        tasks = [running.task for running in self._running.values() if running.task is not None]
        for running in list(self._running.values()):
            if running.output is not None:
                running.output.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # A task that was cancelled before its first step has not delivered a last increment.
        for request_id in list(self._running):
            self._deliver(self._running.pop(request_id), Increment((), error=_CLOSED))
        self._count_active()

    def _count_active(self) -> None:
        self._stats = replace(self._stats, active_requests=len(self._running))
        if not self._running:
            self._stats = replace(
                self._stats,
                scheduled_requests=0,
                context_requests=0,
                generation_requests=0,
                paused_requests=0,
                context_tokens=0,
                kv_cache_used_fraction=0.0,
            )

    async def _follow_stats(self) -> None:
        while True:
            try:
                async for entry in self._llm.get_stats_async(timeout=_STATS_TIMEOUT_S):
                    self._stats = after_iteration(self._stats, json.loads(entry) if isinstance(entry, str) else entry)
                    self._count_active()
            except Exception:
                _LOG.exception("TensorRT-LLM returned no statistics")
                return
            await asyncio.sleep(_STATS_PERIOD_S)


def sampling_arguments(sampling: Sampling) -> dict[str, object]:
    """Arguments of ``SamplingParams`` for ``sampling``, without those that have their default.

    Without a tokenizer the LLM API requires ``end_id``; -1 is no token. Without ``temperature``, ``top_k`` and ``top_p`` it
    decodes greedily.
    """
    arguments: dict[str, object] = {
        "max_tokens": sampling.max_tokens,
        "end_id": -1 if sampling.end_id is None else sampling.end_id,
        "pad_id": 0 if sampling.end_id is None else sampling.end_id,
        "ignore_eos": sampling.end_id is None,
        "detokenize": False,
        "add_special_tokens": False,
        "exclude_input_from_output": True,
    }
    if not sampling.greedy:
        arguments |= {"temperature": sampling.temperature, "top_p": sampling.top_p, "seed": sampling.seed}
        arguments |= {"top_k": sampling.top_k} if sampling.top_k > 0 else {}
    default = Sampling(sampling.max_tokens)
    for name in _SAME_NAME:
        if getattr(sampling, name) != getattr(default, name):
            arguments[name] = getattr(sampling, name)
    return arguments


def after_iteration(stats: EngineStats, entry: Mapping[str, Any]) -> EngineStats:
    """``stats`` updated with one entry of ``LLM.get_stats`` (one iteration). Values that a back end omits are unchanged."""
    batching = entry.get("inflightBatchingStats") or {}
    cache = entry.get("kvCacheStats") or {}
    scheduled = int(batching.get("numScheduledRequests", 0))
    blocks = int(cache.get("maxNumBlocks", stats.kv_cache_blocks))
    used = int(cache.get("usedNumBlocks", 0))
    reused = int(cache.get("reusedBlocks", stats.kv_reused_blocks_total))  # since the start, as those missed
    missed = int(cache.get("missedBlocks", stats.kv_prompt_blocks_total - stats.kv_reused_blocks_total))
    return replace(
        stats,
        scheduled_requests=scheduled,
        max_requests=int(entry.get("maxNumActiveRequests") or stats.max_requests),
        iterations_total=stats.iterations_total + 1,
        scheduled_requests_total=stats.scheduled_requests_total + scheduled,
        kv_cache_used_fraction=used / blocks if blocks else 0.0,
        kv_cache_blocks=blocks,
        kv_cache_tokens_per_block=int(cache.get("tokensPerBlock", stats.kv_cache_tokens_per_block)),
        context_requests=int(batching.get("numContextRequests", 0)),
        generation_requests=int(batching.get("numGenRequests", 0)),
        paused_requests=int(batching.get("numPausedRequests", 0)),
        context_tokens=int(batching.get("numCtxTokens", 0)),
        kv_prompt_blocks_total=reused + missed,
        kv_reused_blocks_total=reused,
        memory_bytes=_bytes(entry, "cpuMemUsage", stats.memory_bytes),
        gpu_memory_bytes=_bytes(entry, "gpuMemUsage", stats.gpu_memory_bytes),
        pinned_memory_bytes=_bytes(entry, "pinnedMemUsage", stats.pinned_memory_bytes),
    )


def _bytes(entry: Mapping[str, Any], name: str, before: int | None) -> int | None:
    """A back end writes 0 for memory that it does not count."""
    return int(entry.get(name) or 0) or before


def read_limits(engine_dir: Path) -> EngineLimits:
    """Vocabulary size and context length of a Hugging Face checkpoint or a ``trtllm-build`` engine. Raises EngineError."""
    path = engine_dir / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        if "build_config" in config:
            return EngineLimits(int(config["pretrained_config"]["vocab_size"]), int(config["build_config"]["max_seq_len"]))
        return EngineLimits(int(config["vocab_size"]), int(config["max_position_embeddings"]))
    except OSError as error:
        raise EngineError(f"{engine_dir} is neither a checkpoint nor a TensorRT-LLM engine: {path} cannot be read") from error
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(f"{path} does not define the vocabulary size and the context length: {error}") from error


def _import_library() -> Any:
    try:
        import tensorrt_llm
    except ImportError as error:
        raise EngineError(
            f"the engine tensorrt_llm needs TensorRT-LLM ({error}); install it, on a machine with an NVIDIA GPU, with: "
            "pip install 'inflight-bench[tensorrt-llm]'"
        ) from error
    return tensorrt_llm


def _load(library: Any, engine_dir: Path, options: EngineOptions) -> Any:
    from tensorrt_llm.llmapi import CapacitySchedulerPolicy, KvCacheConfig, SchedulerConfig

    if options.max_queue_size:
        raise EngineError("max_queue_size: the tensorrt_llm engine does not limit its queue; leave it at 0")
    llm_class = library.LLM
    if any(engine_dir.glob("rank*.engine")):  # since 1.0 the default LLM class runs PyTorch
        llm_class = importlib.import_module("tensorrt_llm._tensorrt_engine").LLM
    try:
        return llm_class(
            model=str(engine_dir),
            skip_tokenizer_init=True,
            max_batch_size=options.max_num_sequences,
            max_num_tokens=options.max_num_tokens,
            enable_chunked_prefill=options.enable_chunked_context,
            kv_cache_config=KvCacheConfig(
                enable_block_reuse=options.enable_kv_cache_reuse,
                max_tokens=options.gpu_cache_tokens,
                free_gpu_memory_fraction=options.kv_cache_free_gpu_mem_fraction,
            ),
            scheduler_config=SchedulerConfig(
                capacity_scheduler_policy=CapacitySchedulerPolicy[options.batch_scheduler_policy.name]
            ),
            enable_iter_perf_stats=True,
        )
    except Exception as error:
        raise EngineError(f"TensorRT-LLM cannot load {engine_dir}: {error}") from error


def _last(completion: Any, tokens: Sequence[int]) -> Increment:
    reason = completion.finish_reason
    if reason == "timeout":
        return Increment(tuple(tokens), error="the request timed out in TensorRT-LLM")
    return Increment(tuple(tokens), finish=FinishReason(reason) if reason else FinishReason.LENGTH)
