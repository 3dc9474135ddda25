"""The half of the OpenVINO engine that computes: OpenVINO GenAI's continuous batching, in a process of its own.

    python3 -m serving.engines.openvino_worker PIPE_FD ENGINE_DIR OPTIONS_JSON

``step()`` runs one iteration of in-flight batching: prefill chunks, and one token for each running sequence. It holds
the GIL all the while, which is why it lives apart from the process that answers clients. Ends when the pipe closes.
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import openvino as ov
import openvino_genai as genai

from serving.engines.openvino_folder import read_limits
from serving.engines.openvino_messages import Cancel, Failed, Ready, Step, Submit, decode_to_engine, encode
from serving.engines.protocol import EngineLimits, EngineOptions, EngineStats, FinishReason, Increment, Sampling
from serving.errors import EngineError

_LOG = logging.getLogger(__name__)
_NICENESS = 10
_TOKENS_PER_BLOCK = 32  # fixed by OpenVINO's CPU plugin

# The CPU plugin may otherwise compute in bfloat16, quantise activations and keep an 8-bit KV cache; then a greedy
# answer depends on which other requests share its batch. Exact float32 costs some speed and removes that.
_EXACT = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}


@dataclass(frozen=True, slots=True)
class _Running:
    handle: Any  # openvino_genai.GenerationHandle
    streaming: bool


class _Worker:
    def __init__(self, pipe: Connection, engine_dir: Path, options: EngineOptions) -> None:
        self._pipe = pipe
        limits = read_limits(engine_dir)
        self._pipeline, kv_blocks = load_pipeline(engine_dir, limits, options)
        self._waiting: dict[int, Submit] = {}  # OpenVINO's own scheduler heeds max_num_seqs only without chunked prefill
        self._running: dict[int, _Running] = {}
        self._stats = EngineStats(0, 0, options.max_num_sequences, 0, 0, 0, 0.0, kv_blocks, _TOKENS_PER_BLOCK)
        pipe.send_bytes(encode(Ready(limits, self._stats)))

    def run(self) -> NoReturn:
        """Serve until the pipe closes."""
        while True:
            while self._pipe.poll(0 if self._running or self._waiting else None):
                self._receive()
            while self._waiting and len(self._running) < self._stats.max_requests:
                self._start(self._waiting.pop(next(iter(self._waiting))))
            if self._running:
                self._step()

    def _receive(self) -> None:
        message = decode_to_engine(self._pipe.recv_bytes())
        if isinstance(message, Submit):
            self._waiting[message.request_id] = message
        else:
            self._cancel(message)

    def _start(self, new: Submit) -> None:
        try:
            prompt = ov.Tensor(np.array(new.input_ids, dtype=np.int64)[np.newaxis, :])
            handle = self._pipeline.add_request(new.request_id, prompt, generation_config(new.sampling))
        except Exception as error:
            self._send([(new.request_id, Increment((), error=f"OpenVINO refused the request: {error}"))])
            return
        self._running[new.request_id] = _Running(handle, new.streaming)

    def _cancel(self, message: Cancel) -> None:
        running = self._running.pop(message.request_id, None)
        if running is not None:
            running.handle.cancel()
            if not self._running:  # the pipeline drops a cancelled sequence, and frees its blocks, in its next step
                self._pipeline.step()
                self._stats = self._now(scheduled=0)
        elif self._waiting.pop(message.request_id, None) is None:
            return
        self._send([(message.request_id, Increment((), finish=FinishReason.CANCELLED))])

    def _step(self) -> None:
        self._pipeline.step()
        metrics = self._pipeline.get_metrics()
        increments = []
        for request_id, running in list(self._running.items()):
            status = running.handle.get_status()
            ended = status != genai.GenerationStatus.RUNNING
            if not (ended or running.streaming):
                continue
            increment = _read(running.handle, status, ended)
            if ended:
                del self._running[request_id]
            if increment.token_ids or ended:
                increments.append((request_id, increment))
        scheduled = int(metrics.scheduled_requests)
        self._stats = replace(
            self._now(scheduled),
            iterations_total=self._stats.iterations_total + 1,
            scheduled_requests_total=self._stats.scheduled_requests_total + scheduled,
            generated_tokens_total=self._stats.generated_tokens_total + sum(len(i.token_ids) for _, i in increments),
        )
        if increments:
            self._send(increments)

    def _now(self, scheduled: int) -> EngineStats:
        """The stats with what is true now; an idle engine uses none of its cache (blocks kept for reuse count as free)."""
        running = len(self._running)
        used = float(self._pipeline.get_metrics().cache_usage) / 100.0
        return replace(
            self._stats,
            active_requests=running + len(self._waiting),
            scheduled_requests=scheduled if running else 0,
            kv_cache_used_fraction=used if running else 0.0,
        )

    def _send(self, increments: list[tuple[int, Increment]]) -> None:
        self._pipe.send_bytes(encode(Step(increments, self._stats)))


def load_pipeline(engine_dir: Path, limits: EngineLimits, options: EngineOptions) -> tuple[Any, int]:
    """The ``ContinuousBatchingPipeline`` of an engine folder, and its KV blocks. Raises EngineError."""
    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = -(-options.max_tokens_in_paged_kv_cache // _TOKENS_PER_BLOCK)
    scheduler.max_num_seqs = options.max_num_sequences
    scheduler.max_num_batched_tokens = options.max_num_tokens
    scheduler.dynamic_split_fuse = options.enable_chunked_context
    scheduler.enable_prefix_caching = options.enable_kv_cache_reuse
    if not options.enable_chunked_context:  # a whole prompt must then fit one step
        scheduler.max_num_batched_tokens = max(options.max_num_tokens, limits.context_tokens)
    try:
        pipeline = genai.ContinuousBatchingPipeline(str(engine_dir), scheduler, "CPU", _EXACT)
    except Exception as error:
        raise EngineError(f"OpenVINO cannot load the engine in {engine_dir}: {error}") from error
    return pipeline, scheduler.num_kv_blocks


def _read(handle: Any, status: Any, ended: bool) -> Increment:
    tokens: list[int] = []
    finish: FinishReason | None = None
    while handle.can_read():
        for output in handle.read().values():
            tokens.extend(output.generated_ids)
            if output.finish_reason == genai.GenerationFinishReason.STOP:
                finish = FinishReason.STOP
    if not ended:
        return Increment(tokens)
    if status == genai.GenerationStatus.IGNORED:
        return Increment(tokens, error="the KV cache is too small for this request; raise max_tokens_in_paged_kv_cache")
    return Increment(tokens, finish=finish or FinishReason.LENGTH)


def generation_config(sampling: Sampling) -> Any:
    """``sampling`` as OpenVINO's GenerationConfig."""
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


def main(pipe_fd: int, engine_dir: Path, options: EngineOptions) -> int:
    # The network would take every core there is. What answers requests, and a client on the same machine, come first:
    # they need little, but at once.
    os.nice(_NICENESS)
    pipe = Connection(pipe_fd)
    try:
        _Worker(pipe, engine_dir, options).run()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return 0  # the other half is gone, or wants us gone
    except Exception as error:
        _LOG.exception("the OpenVINO engine failed")
        pipe.send_bytes(encode(Failed(str(error))))
        return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), msgspec.json.decode(sys.argv[3], type=EngineOptions)))
