"""The embedded engine: OpenVINO GenAI's continuous batching on the CPU.

All calls of the pipeline are made on one thread of ours. OpenVINO's ``step()`` runs one iteration of in-flight batching
(prefill chunks and one token for each running sequence) and releases the GIL meanwhile.
"""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino_genai as genai

from serving.engines.protocol import Deliver, EngineLimits, EngineOptions, EngineStats, FinishReason, Increment, Sampling
from serving.errors import EngineError

_LOG = logging.getLogger(__name__)
_TOKENS_PER_BLOCK = 32  # fixed by OpenVINO's CPU plugin

# The CPU plugin may otherwise compute in bfloat16, quantise activations and keep an 8-bit KV cache; then a greedy
# answer depends on which other requests share its batch. Exact float32 costs a little speed and removes that.
_EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}


@dataclass(frozen=True, slots=True)
class _Submission:
    request_id: int
    input_ids: Sequence[int]
    sampling: Sampling
    deliver: Deliver
    streaming: bool


@dataclass(frozen=True, slots=True)
class _Cancellation:
    request_id: int


@dataclass(frozen=True, slots=True)
class _Running:
    handle: Any  # openvino_genai.GenerationHandle
    deliver: Deliver
    streaming: bool


class OpenVinoEngine:
    """An ``Engine`` over ``openvino_genai.ContinuousBatchingPipeline``."""

    def __init__(self, engine_dir: Path, options: EngineOptions) -> None:
        """Load an OpenVINO IR folder as ``bench engine build`` writes it. Raises EngineError when it cannot be loaded."""
        self.limits = _read_limits(engine_dir)
        self._options = options
        scheduler = genai.SchedulerConfig()
        scheduler.num_kv_blocks = options.max_tokens_in_paged_kv_cache // _TOKENS_PER_BLOCK
        scheduler.max_num_seqs = options.max_num_sequences
        scheduler.max_num_batched_tokens = options.max_num_tokens
        scheduler.dynamic_split_fuse = options.enable_chunked_context
        scheduler.enable_prefix_caching = options.enable_kv_cache_reuse
        if not options.enable_chunked_context:  # a whole prompt must then fit one step
            scheduler.max_num_batched_tokens = max(options.max_num_tokens, self.limits.context_tokens)
        try:
            self._pipeline = genai.ContinuousBatchingPipeline(str(engine_dir), scheduler, "CPU", _EXACT)
        except Exception as error:
            raise EngineError(f"OpenVINO cannot load the engine in {engine_dir}: {error}") from error
        self._inbox: queue.SimpleQueue[_Submission | _Cancellation | None] = queue.SimpleQueue()
        self._running: dict[int, _Running] = {}
        self._stats = EngineStats(0, 0, options.max_num_sequences, 0, 0, 0, 0.0, scheduler.num_kv_blocks, _TOKENS_PER_BLOCK)
        self._thread = threading.Thread(target=self._run, name="openvino-engine", daemon=True)
        self._thread.start()

    def submit(
        self, request_id: int, input_ids: Sequence[int], sampling: Sampling, deliver: Deliver, *, streaming: bool
    ) -> None:
        self._inbox.put(_Submission(request_id, input_ids, sampling, deliver, streaming))

    def cancel(self, request_id: int) -> None:
        self._inbox.put(_Cancellation(request_id))

    def stats(self) -> EngineStats:
        return self._stats

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join(timeout=30)

    def _run(self) -> None:
        try:
            while self._receive():
                self._pipeline.step()
                self._deliver_step()
            self._abandon("the engine was closed before this request ended")
        except Exception as error:
            _LOG.exception("the engine's thread failed")
            reason = f"the engine failed: {error}"
            self._abandon(reason)
            while (item := self._inbox.get()) is not None:
                if isinstance(item, _Submission):
                    item.deliver(Increment((), error=reason))

    def _abandon(self, reason: str) -> None:
        for running in self._running.values():
            running.deliver(Increment((), error=reason))
        self._running.clear()

    def _receive(self) -> bool:
        """Take in what was submitted, waiting for it when nothing runs; False once the engine is being closed."""
        while True:
            try:
                item = self._inbox.get(block=not self._running)
            except queue.Empty:
                return True
            match item:
                case None:
                    return False
                case _Submission():
                    self._start(item)
                case _Cancellation():
                    self._stop(item.request_id)

    def _start(self, new: _Submission) -> None:
        try:
            prompt = ov.Tensor(np.asarray(new.input_ids, dtype=np.int64)[np.newaxis, :])
            handle = self._pipeline.add_request(new.request_id, prompt, _generation_config(new.sampling))
        except Exception as error:
            new.deliver(Increment((), error=f"OpenVINO refused the request: {error}"))
            return
        self._running[new.request_id] = _Running(handle, new.deliver, new.streaming)

    def _stop(self, request_id: int) -> None:
        running = self._running.pop(request_id, None)
        if running is None:
            return
        running.handle.cancel()
        if not self._running:  # the pipeline drops a cancelled sequence, and frees its blocks, in its next step
            self._pipeline.step()
        running.deliver(Increment((), finish=FinishReason.CANCELLED))

    def _deliver_step(self) -> None:
        generated = 0
        metrics = self._pipeline.get_metrics()
        active = len(self._running)
        for request_id, running in list(self._running.items()):
            status = running.handle.get_status()
            ended = status != genai.GenerationStatus.RUNNING
            if not (ended or running.streaming):
                continue
            increment = _read(running.handle, status, ended)
            if ended:
                del self._running[request_id]
            if increment.token_ids or ended:
                generated += len(increment.token_ids)
                running.deliver(increment)
        self._stats = replace(
            self._stats,
            active_requests=active,
            scheduled_requests=int(metrics.scheduled_requests),
            iterations_total=self._stats.iterations_total + 1,
            scheduled_requests_total=self._stats.scheduled_requests_total + int(metrics.scheduled_requests),
            generated_tokens_total=self._stats.generated_tokens_total + generated,
            kv_cache_used_fraction=float(metrics.cache_usage) / 100.0,
        )


def _read(handle: Any, status: Any, ended: bool) -> Increment:
    tokens: list[int] = []
    finish: FinishReason | None = None
    while handle.can_read():
        for output in handle.read().values():  # one sequence: beams come with a later change
            tokens.extend(output.generated_ids)
            if output.finish_reason == genai.GenerationFinishReason.STOP:
                finish = FinishReason.STOP
    if not ended:
        return Increment(tokens)
    if status == genai.GenerationStatus.IGNORED:
        return Increment(tokens, error="the KV cache is too small for this request; raise max_tokens_in_paged_kv_cache")
    return Increment(tokens, finish=finish or FinishReason.LENGTH)


def _generation_config(sampling: Sampling) -> Any:
    config = genai.GenerationConfig()
    config.max_new_tokens = sampling.max_tokens
    config.min_new_tokens = sampling.min_tokens
    config.ignore_eos = sampling.end_id is None
    if sampling.end_id is not None:
        config.eos_token_id = sampling.end_id
        config.stop_token_ids = {sampling.end_id}
    config.repetition_penalty = sampling.repetition_penalty
    config.presence_penalty = sampling.presence_penalty
    config.frequency_penalty = sampling.frequency_penalty
    if not sampling.greedy:
        config.do_sample = True
        config.temperature = sampling.temperature
        config.top_p = sampling.top_p
        config.rng_seed = sampling.seed
        if sampling.top_k > 0:
            config.top_k = sampling.top_k
    return config


def _read_limits(engine_dir: Path) -> EngineLimits:
    path = engine_dir / "config.json"
    if not (engine_dir / "openvino_model.xml").is_file():
        raise EngineError(f"{engine_dir} holds no OpenVINO engine (openvino_model.xml); make one with 'bench engine build'")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        return EngineLimits(int(config["vocab_size"]), int(config["max_position_embeddings"]))
    except (OSError, ValueError, KeyError) as error:
        raise EngineError(f"{path} does not give vocab_size and max_position_embeddings: {error}") from error
