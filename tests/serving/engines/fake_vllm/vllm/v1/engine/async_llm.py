"""The engine: its answers depend on the prompt's sum and the position; the prompt [7] ends the engine, and after [8] its
prefix cache cannot be emptied.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from safetensors.numpy import load_file

from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind, SamplingParams

_STEP_S = float(os.environ.get("FAKE_VLLM_STEP_S", "0.001"))
_FATAL = [7]
_STAYS = (8,)


@dataclass
class _Running:
    prompt: list[int]
    parameters: SamplingParams
    cached: int
    shift: int = 0
    tokens: list[int] = field(default_factory=list)
    sent: int = 0
    finish: str | None = None
    started_s: float = field(default_factory=time.monotonic)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class PrometheusStatLogger:
    """As vLLM adds it to every engine that has loggers, for a page that no server of this process has."""

    def record(self, **_: Any) -> None:
        raise RuntimeError("these metrics have no reader, and each token pays for them")


class _Tokenizer:
    """The tokenizer of the checkpoint, which reads texts and not token ids."""

    max_token_id = 3071

    def encode(self, text: str, **_: Any) -> list[int]:
        return [0] * len(text)


def _ends_engine(running: _Running) -> bool:
    """Whether the request ends the engine: vLLM's newer runner has int64 for a seed, and room for 1,024 biases."""
    parameters = running.parameters
    return running.prompt == _FATAL or (parameters.seed or 0) >= 2**63 or len(parameters.logit_bias or ()) > 1024


class AsyncLLM:
    def __init__(self, config: Any, logger: Any) -> None:
        if config.fails:
            raise RuntimeError(config.fails)
        cache = config.cache_config
        cache.num_gpu_blocks = cache.num_gpu_blocks_override or cache.num_gpu_blocks
        self.vllm_config = config
        self.errored = False
        self.logger_manager = SimpleNamespace(stat_loggers=[logger, PrometheusStatLogger()])
        self._running: dict[str, _Running] = {}
        self._cached: set[tuple[int, ...]] = set()
        self._adapters: dict[int, int] = {}  # the shift of the tokens by the adapter's number
        # vLLM's engine is a process of its own, too
        self._core = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,))
        self._core.start()
        self._loop = asyncio.get_running_loop().create_task(self._steps())

    @classmethod
    def from_vllm_config(cls, vllm_config: Any, stat_loggers: list[Callable[..., Any]], disable_log_stats: bool) -> AsyncLLM:
        logger = stat_loggers[0](vllm_config, 0)
        logger.log_engine_initialized()
        return cls(vllm_config, logger)

    def shutdown(self, timeout: float | None = None) -> None:
        self._core.terminate()

    async def reset_prefix_cache(self) -> bool:
        if _STAYS in self._cached:
            raise RuntimeError("the cache is not to be emptied")
        self._cached.clear()
        return True

    async def add_lora(self, request: LoRARequest) -> bool:
        """Read an adapter, which shifts tokens by the number of its matrices."""
        folder = Path(request.lora_path)
        rank = json.loads((folder / "adapter_config.json").read_text())["r"]
        limit = self.vllm_config.lora_config.max_lora_rank
        if rank > limit:
            raise ValueError(f"LoRA rank {rank} is greater than max_lora_rank {limit}.")
        self._adapters[request.lora_int_id] = len(load_file(folder / "adapter_model.safetensors"))
        return True

    async def remove_lora(self, lora_id: int) -> bool:
        return self._adapters.pop(lora_id, None) is not None

    async def generate(
        self,
        prompt: dict[str, Any],
        sampling_params: SamplingParams,
        request_id: str,
        *,
        lora_request: LoRARequest | None = None,
    ) -> AsyncIterator[Any]:
        input_ids = prompt["prompt_token_ids"]
        if not input_ids:
            raise ValueError("The decoder prompt cannot be empty")
        sampling_params.update_from_tokenizer(_Tokenizer())
        block = self.vllm_config.cache_config.block_size
        cached = (len(input_ids) - 1) // block * block if tuple(input_ids) in self._cached else 0
        self._cached.add(tuple(input_ids))
        running = self._running[request_id] = _Running(input_ids, sampling_params, cached)
        running.shift = 0 if lora_request is None else self._adapters[lora_request.lora_int_id]
        try:
            while running.finish is None:
                await running.changed.wait()
                running.changed.clear()
                if self.errored:
                    raise RuntimeError("EngineCore encountered an issue")
                yield self._output(running)
        finally:
            self._running.pop(request_id, None)

    def _output(self, running: _Running) -> Any:
        new = running.tokens[running.sent :]
        running.sent = len(running.tokens)
        values = [{token: SimpleNamespace(logprob=-token / 1000)} for token in new]
        completion = SimpleNamespace(token_ids=new, finish_reason=running.finish, logprobs=values)
        now_s = time.monotonic()
        times = SimpleNamespace(
            scheduled_ts=running.started_s, first_token_ts=now_s, last_token_ts=now_s, num_generation_tokens=running.sent
        )
        return SimpleNamespace(
            outputs=[completion], prompt_token_ids=running.prompt, num_cached_tokens=running.cached, metrics=times
        )

    async def _steps(self) -> None:
        while True:
            await asyncio.sleep(_STEP_S)
            if not self._running:
                continue
            if any(_ends_engine(running) for running in self._running.values()):
                self.errored = True
            first = []
            generated = 0
            scheduled = list(self._running.values())[: self.vllm_config.scheduler_config.max_num_seqs]
            for running in scheduled:
                first += [0.01] if not running.tokens else []
                generated += 1
                self._step(running)
            scheduler = SimpleNamespace(
                num_running_reqs=len(scheduled),
                num_waiting_reqs=len(self._running) - len(scheduled),
                kv_cache_usage=0.5,
            )
            iteration = SimpleNamespace(
                num_generation_tokens=generated,
                time_to_first_tokens_iter=first,
                inter_token_latencies_iter=[0.001] * (generated - len(first)),
                finished_requests=[],
            )
            for logger in self.logger_manager.stat_loggers:
                logger.record(scheduler_stats=scheduler, iteration_stats=iteration, engine_idx=0)

    def _step(self, running: _Running) -> None:
        parameters, position = running.parameters, len(running.tokens)
        if running.finish is not None:
            return
        token = (sum(running.prompt) * 31 + position * 17 + (parameters.seed or 0)) % 3000 + 20 + running.shift
        if parameters.logit_bias:
            token = max(parameters.logit_bias, key=lambda token_id: parameters.logit_bias[token_id])
        while any([*running.tokens, token][-len(ids) :] == ids for ids in parameters.bad_words_token_ids or ()):
            token += 1
        if token in parameters.stop_token_ids and position + 1 <= parameters.min_tokens:
            token += 1
        running.tokens.append(token)
        if token in parameters.stop_token_ids:
            running.finish = "stop"
        elif len(running.tokens) == parameters.max_tokens:
            running.finish = "length"
        if parameters.output_kind is RequestOutputKind.DELTA or running.finish is not None or self.errored:
            running.changed.set()
