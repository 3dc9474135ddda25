"""Fake of the part of TensorRT-LLM's LLM API that the adapter uses, with a counting loop as its network.

Names, arguments and behaviour are those of the API's stability reference: unknown arguments are refused; a ``RequestOutput``
can be awaited or iterated, holds all tokens so far, and ends as cancelled some time after ``abort``; a request that cannot be
run raises in ``generate_async``. The n-th token of a prompt is a function of the prompt and n.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType
from typing import Any

VOCABULARY = 3072
_STEP_S = 0.002


@dataclass(kw_only=True)
class SamplingParams:
    max_tokens: int = 32
    min_tokens: int | None = None
    end_id: int | None = None
    pad_id: int | None = None
    ignore_eos: bool = False
    detokenize: bool = True
    add_special_tokens: bool = True
    exclude_input_from_output: bool = True
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    top_p_decay: float | None = None
    top_p_min: float | None = None


class CapacitySchedulerPolicy(Enum):
    GUARANTEED_NO_EVICT = "GUARANTEED_NO_EVICT"
    MAX_UTILIZATION = "MAX_UTILIZATION"
    STATIC_BATCH = "STATIC_BATCH"


@dataclass(kw_only=True)
class SchedulerConfig:
    capacity_scheduler_policy: CapacitySchedulerPolicy = CapacitySchedulerPolicy.GUARANTEED_NO_EVICT


@dataclass(kw_only=True)
class KvCacheConfig:
    enable_block_reuse: bool = True
    max_tokens: int | None = None
    free_gpu_memory_fraction: float | None = 0.9


@dataclass
class CompletionOutput:
    index: int = 0
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None


class RequestOutput:
    """Awaitable and asynchronously iterable, like the real class; bound to the event loop that created it."""

    def __init__(self, prompt: list[int], sampling: SamplingParams, streaming: bool) -> None:
        self.prompt_token_ids = prompt
        self.sampling = sampling
        self.streaming = streaming
        self.outputs = [CompletionOutput()]
        self.finished = False
        self.abort_asked = False
        self.generated = 0
        self._loop = asyncio.get_running_loop()
        self._responses: asyncio.Queue[tuple[list[int], str | None]] = asyncio.Queue()

    def abort(self) -> None:
        self.abort_asked = True

    def respond(self, tokens: list[int], reason: str | None) -> None:
        self._loop.call_soon_threadsafe(self._responses.put_nowait, (tokens, reason))

    def __aiter__(self) -> RequestOutput:
        return self

    async def __anext__(self) -> RequestOutput:
        if self.finished:
            raise StopAsyncIteration
        tokens, reason = await self._responses.get()
        self.outputs[0].token_ids.extend(tokens)
        self.outputs[0].finish_reason = reason
        self.finished = reason is not None
        return self

    def __await__(self) -> Any:
        return self._result().__await__()

    async def _result(self) -> RequestOutput:
        async for _ in self:
            pass
        return self


class LLM:
    """Runs ``max_batch_size`` requests at once, one token of each per step, on its own thread."""

    ignores_abort = False  # set by subclasses in tests

    def __init__(
        self,
        *,
        model: str,
        skip_tokenizer_init: bool = False,
        max_batch_size: int = 2048,
        max_num_tokens: int = 8192,
        enable_chunked_prefill: bool = False,
        kv_cache_config: KvCacheConfig,
        scheduler_config: SchedulerConfig,
        enable_iter_perf_stats: bool = False,
    ) -> None:
        assert skip_tokenizer_init  # there is no tokenizer here
        if "broken" in model:
            raise RuntimeError("CUDA out of memory")
        self.model = model
        self.max_batch_size = max_batch_size
        self.kv_cache_config = kv_cache_config
        self.scheduler_config = scheduler_config
        self._blocks = (kv_cache_config.max_tokens or 131_072) // 32
        self._lock = threading.Lock()
        self._waiting: list[RequestOutput] = []
        self._scheduled: list[RequestOutput] = []
        self._entries: list[dict[str, Any]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def generate_async(
        self,
        inputs: list[int],
        sampling_params: SamplingParams | None = None,
        lora_request: None = None,
        prompt_adapter_request: None = None,
        streaming: bool = False,
    ) -> RequestOutput:
        assert sampling_params is not None
        if sampling_params.end_id is None:
            raise ValueError("tokenizer is required to reset end_id if it is None")
        if not inputs:
            raise ValueError("prompt_token_ids is empty")
        output = RequestOutput(inputs, sampling_params, streaming)
        with self._lock:
            self._waiting.append(output)
        return output

    async def get_stats_async(self, timeout: float | None = 2) -> AsyncIterator[dict[str, Any]]:
        while True:
            with self._lock:
                entries, self._entries = self._entries, []
            if not entries:
                return
            for entry in entries:
                yield entry

    def shutdown(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._stopping.is_set():
            time.sleep(_STEP_S)
            with self._lock:
                free = self.max_batch_size - len(self._scheduled)
                self._scheduled += self._waiting[:free]
                self._waiting = self._waiting[free:]
                if self._scheduled:
                    self._step()

    def _step(self) -> None:
        for output in list(self._scheduled):
            if output.abort_asked and not self.ignores_abort:
                output.respond([], "cancelled")
                self._scheduled.remove(output)
                continue
            token = next_token(output.prompt_token_ids, output.generated)
            output.generated += 1
            may_end = output.generated >= (output.sampling.min_tokens or 0)
            reason = "stop" if token == output.sampling.end_id and may_end else None
            reason = reason or ("length" if output.generated >= output.sampling.max_tokens else None)
            if output.streaming or reason:
                first = output.generated - 1 if output.streaming else 0
                output.respond([next_token(output.prompt_token_ids, n) for n in range(first, output.generated)], reason)
            if reason:
                self._scheduled.remove(output)
        used = sum(1 + (len(o.prompt_token_ids) + o.generated) // 32 for o in self._scheduled)
        self._entries.append(
            {
                "iter": 0,
                "numActiveRequests": len(self._scheduled),
                "maxNumActiveRequests": self.max_batch_size,
                "inflightBatchingStats": {"numScheduledRequests": len(self._scheduled)},
                "kvCacheStats": {"maxNumBlocks": self._blocks, "usedNumBlocks": used, "tokensPerBlock": 32},
            }
        )


def next_token(prompt: list[int], position: int) -> int:
    return (sum(prompt) * 31 + len(prompt) * 7 + position * position * 13 + position) % VOCABULARY


def modules() -> dict[str, ModuleType]:
    """The fake modules by name, for ``sys.modules``."""
    top, api, compiled = (ModuleType(name) for name in ("tensorrt_llm", "tensorrt_llm.llmapi", "tensorrt_llm._tensorrt_engine"))
    top.LLM, top.SamplingParams = LLM, SamplingParams  # type: ignore[attr-defined]
    api.KvCacheConfig = KvCacheConfig  # type: ignore[attr-defined]
    api.SchedulerConfig, api.CapacitySchedulerPolicy = SchedulerConfig, CapacitySchedulerPolicy  # type: ignore[attr-defined]
    compiled.LLM = type("CompiledLLM", (LLM,), {})  # type: ignore[attr-defined]
    top.llmapi = api  # type: ignore[attr-defined]
    return {module.__name__: module for module in (top, api, compiled)}
