"""The part of ``tensorrt_llm`` that the llmapi model uses, without a GPU: each prompt is answered by counting.

Signatures and fields are those of the LLM API's stability reference: unknown arguments are refused, an answer can be awaited or
iterated, a streamed answer is one object whose text grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

_STEP_S = 0.005


@dataclass
class SamplingParams:
    """Upstream's defaults; the constructor rejects unknown arguments."""

    max_tokens: int = 32
    best_of: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    stop: list[str] | None = None
    logprobs: int | None = None
    exclude_input_from_output: bool = True
    return_perf_metrics: bool = False

    def __post_init__(self) -> None:
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ValueError(f"require 0 <= top_p <= 1, got top_p={self.top_p}")


@dataclass
class CompletionOutput:
    """One sequence of an answer."""

    index: int = 0
    text: str = ""
    text_diff: str = ""
    finish_reason: str | None = None
    stop_reason: str | None = None
    cumulative_logprob: float | None = None
    request_perf_metrics: Any = None


@dataclass
class RequestOutput:
    """An answer; awaited for the whole, iterated for its growth."""

    prompt: str
    params: SamplingParams
    streaming: bool
    lora: Any
    outputs: list[CompletionOutput] = field(default_factory=lambda: [CompletionOutput()])
    finished: bool = False
    _aborted: bool = False

    def abort(self) -> None:
        self._aborted = True

    def __await__(self) -> Generator[Any, None, RequestOutput]:
        return self._last().__await__()

    async def _last(self) -> RequestOutput:
        async for _ in self:
            pass
        return self

    async def __aiter__(self) -> AsyncIterator[RequestOutput]:
        output = self.outputs[0]
        lead = "" if self.params.exclude_input_from_output else self.prompt
        output.text = lead
        for number in range(self.params.max_tokens):
            await asyncio.sleep(_STEP_S)
            piece = f" {number}" if self.lora is None else f" {self.lora.lora_name}{self.lora.lora_int_id}"
            output.text_diff = (lead if number == 0 else "") + piece
            output.text += piece
            last = number == self.params.max_tokens - 1
            stopped = any(word in output.text for word in self.params.stop or [])
            if last or self._aborted or stopped:
                self._finish("cancelled" if self._aborted else "stop" if stopped else "length")
            yield self
            if self.finished:
                return

    def _finish(self, reason: str) -> None:
        output = self.outputs[0]
        self.finished = True
        output.finish_reason = reason
        output.stop_reason = self.params.stop[0] if reason == "stop" and self.params.stop else None
        output.cumulative_logprob = -1.5 if self.params.logprobs else None
        if self.params.return_perf_metrics:
            output.request_perf_metrics = _perf_metrics()


def _perf_metrics() -> SimpleNamespace:
    """As the runtime's RequestPerfMetrics: times since the steady clock's epoch."""
    times = ("arrival_time", "first_scheduled_time", "first_token_time", "last_token_time")
    return SimpleNamespace(
        kv_cache_metrics=SimpleNamespace(
            num_total_allocated_blocks=4, num_new_allocated_blocks=1, num_reused_blocks=3, num_missed_blocks=1,
            kv_cache_hit_rate=0.75,
        ),
        timing_metrics=SimpleNamespace(**{name: timedelta(days=2, microseconds=k) for k, name in enumerate(times)}),
        speculative_decoding=SimpleNamespace(acceptance_rate=0.5, total_accepted_draft_tokens=2, total_draft_tokens=4),
    )  # fmt: skip


class LLM:
    """Rejects unknown arguments, like the real class."""

    def __init__(self, model: str, tensor_parallel_size: int = 1) -> None:
        self.loop = asyncio.get_running_loop()

    def generate_async(
        self, inputs: str, sampling_params: SamplingParams, lora_request: Any = None, *, streaming: bool = False
    ) -> RequestOutput:
        assert asyncio.get_running_loop() is self.loop
        if inputs == "explode":
            raise RuntimeError("the engine is gone")
        return RequestOutput(inputs, sampling_params, streaming, lora_request)

    def shutdown(self) -> None: ...
