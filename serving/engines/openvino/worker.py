"""Computing process of the OpenVINO engine: OpenVINO GenAI's continuous batching.

    python3 -m serving.engines.openvino.worker PIPE_FD ENGINE_DIR OPTIONS_JSON

``step()`` runs one iteration of in-flight batching: prefill chunks, and one token for each running sequence. It holds the GIL
throughout, hence a process separate from the one that responds to clients. The process ends when the pipe closes.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import openvino as ov
import openvino_genai as genai

from serving.engines.messages import (
    Cancel,
    Failed,
    PrefixCacheReset,
    Ready,
    RegisterLora,
    ResetPrefixCache,
    Step,
    Submit,
    decode_to_engine,
    encode,
)
from serving.engines.openvino.exact_request import ExactRunning, needs_exact
from serving.engines.openvino.folder import TOKENS_PER_BLOCK, read_geometry, read_limits
from serving.engines.openvino.guide_trial import structured_output
from serving.engines.openvino.guides import Guides, load_tokenizer_ir
from serving.engines.openvino.logged_steps import LoggedSteps
from serving.engines.openvino.logits import EXACT, LogitsModel
from serving.engines.openvino.lora import LoraCache
from serving.engines.openvino.prefix_cache import PrefixCacheAccount
from serving.engines.openvino.running_request import Running
from serving.engines.openvino.scheduling import (
    Admission,
    available_bytes,
    cache_blocks,
    step_tokens,
    worst_case_blocks,
)
from serving.engines.openvino.step_contents import StepContents
from serving.engines.openvino.step_time import Pace
from serving.engines.openvino.telemetry import Telemetry, resident_bytes
from serving.engines.protocol import EngineOptions, EngineStats, FinishReason, Increment, Sampling
from serving.errors import EngineError, RequestError

_LOG = logging.getLogger(__name__)
_NICENESS = 10
_TRIAL_POLL_S = 0.01
_NO_TOKEN = 2**31 - 1
_STATS_PERIOD_NS = 50_000_000


class _Worker:
    def __init__(self, pipe: Connection, engine_dir: Path, options: EngineOptions) -> None:
        self._pipe = pipe
        limits = read_limits(engine_dir)
        self._blocks = cache_blocks(options, read_geometry(engine_dir), available_bytes())
        self._load = partial(load_pipeline, engine_dir, limits.context_tokens, options, self._blocks)
        self._pipeline, self._guides = self._load()
        self._logits = LogitsModel.read(engine_dir)
        self._lora = LoraCache(engine_dir, options.lora_cache_host_memory_bytes)
        self._max_queue_size = options.max_queue_size
        self._admission = Admission(options.batch_scheduler_policy, options.max_num_sequences, self._blocks)
        self._new_account = partial(PrefixCacheAccount, enabled=options.enable_kv_cache_reuse)
        self._account = self._new_account()
        self._telemetry = Telemetry()
        self._waiting: dict[int, Submit] = {}  # queued here: with chunked prefill OpenVINO ignores max_num_seqs
        self._unchecked: dict[int, Submit] = {}  # guided requests whose guide is being checked
        self._running: dict[int, Running] = {}
        self._exact: dict[int, ExactRunning] = {}
        self._scheduled = 0
        self._stats_due_ns = 0
        self._stats = EngineStats(0, 0, options.max_num_sequences, 0, 0, 0, 0.0, self._blocks, TOKENS_PER_BLOCK)
        self._pace = Pace(options.min_step_time)
        self._contents = StepContents(step_tokens(options, limits.context_tokens), chunked=options.enable_chunked_context)
        self._steps = LoggedSteps(options, self._blocks) if options.step_log else None
        _give_precedence()
        pipe.send_bytes(encode(Ready(limits, self._current_stats())))

    def run(self) -> NoReturn:
        """Serve until the pipe closes."""
        while True:
            if not (self._running or self._exact or self._waiting):
                self._write_logs()
            while self._pipe.poll(self._poll_timeout_s()):
                self._receive()
            if self._unchecked and self._guides.poll():
                self._queue_checked()
            self._start_waiting()
            if self._running:
                self._step()
            if self._exact:
                self._step_exact()

    def end_logs(self) -> None:
        """Write the last rows of the step log, and what the log has not yet of the least time of the steps."""
        if self._steps is not None:
            self._steps.flush()
        self._pace.say(at_end=True)

    def _write_logs(self) -> None:
        if self._steps is not None:
            self._steps.flush()
        self._pace.say()

    def _poll_timeout_s(self) -> float | None:
        """Time to wait for a message: none while there is work."""
        if self._running or self._exact or self._waiting:
            return 0.0
        return _TRIAL_POLL_S if self._unchecked else None

    def _receive(self) -> None:
        message = decode_to_engine(self._pipe.recv_bytes())
        if isinstance(message, Submit) and message.sampling.guide is not None:
            self._unchecked[message.request_id] = message
            self._queue_checked()
        elif isinstance(message, Submit):
            self._queue(message)
        elif isinstance(message, RegisterLora):
            self._lora.register(message.task_id, message.weights, message.config)
        elif isinstance(message, ResetPrefixCache):
            self._pipe.send_bytes(encode(PrefixCacheReset(self._reset_prefix_cache())))
        else:
            self._cancel(message)

    def _reset_prefix_cache(self) -> str | None:
        """Load the pipeline anew, since OpenVINO has no call that empties its cache. Returns the reason why it is not empty."""
        in_flight = len(self._running) + len(self._exact) + len(self._waiting) + len(self._unchecked)
        if in_flight:
            return f"{in_flight} requests are in flight, and a prefix cache is emptied between requests"
        del self._pipeline  # two pipelines would need the memory of two caches
        self._pipeline, self._guides = self._load()
        self._account = self._new_account()
        return None

    def _queue_checked(self) -> None:
        """Queue the guided requests whose guide is valid; reject those whose guide is not."""
        for request_id, waiting in list(self._unchecked.items()):
            flaw = self._guides.flaw(waiting.sampling.guide) if waiting.sampling.guide is not None else ""
            if flaw is None:
                continue
            del self._unchecked[request_id]
            if flaw:
                self._reject(request_id, flaw)
            else:
                self._queue(waiting)

    def _queue(self, new: Submit) -> None:
        needed = _worst_case(new)
        if not self._admission.can_ever(needed, evictable=not needs_exact(new.sampling)):
            self._reject(
                new.request_id,
                f"the request may need {needed} blocks of the KV cache, which has {self._blocks}; "
                "raise max_tokens_in_paged_kv_cache, or request fewer tokens",
            )
            return
        self._waiting[new.request_id] = new
        if self._max_queue_size and len(self._waiting) > self._max_queue_size:
            self._start_waiting()
            if len(self._waiting) > self._max_queue_size:
                del self._waiting[new.request_id]
                full = f"Maximum queue size of {self._max_queue_size} has been reached, please try again later"
                self._reject(new.request_id, full)

    def _start_waiting(self) -> None:
        while self._waiting:
            new = next(iter(self._waiting.values()))
            if not self._admission.admit(new.request_id, _worst_case(new), evictable=not needs_exact(new.sampling)):
                return
            del self._waiting[new.request_id]
            self._start(new)

    def _start(self, new: Submit) -> None:
        now_ns = time.monotonic_ns()
        try:
            if needs_exact(new.sampling):
                task_id = new.sampling.lora_task_id
                model = self._logits if task_id is None else self._lora.model(task_id)
                self._exact[new.request_id] = ExactRunning(new, model.session(), now_ns)
            else:
                self._add_to_pipeline(new, now_ns)
        except Exception as error:
            self._admission.release(new.request_id)
            expected = isinstance(error, RequestError)
            self._reject(new.request_id, str(error) if expected else f"OpenVINO rejected the request: {error}")
            return
        self._telemetry.queue_time.add(now_ns - new.submitted_ns)
        self._telemetry.prompt_tokens += len(new.input_ids)

    def _add_to_pipeline(self, new: Submit, now_ns: int) -> None:
        config = generation_config(new.sampling, self._guides)
        if new.returns.log_probs:
            config.logprobs = 1
        prompt = ov.Tensor(np.array(new.input_ids, dtype=np.int64)[np.newaxis, :])
        handle = self._pipeline.add_request(new.request_id, prompt, config)
        allocation = self._account.start(new.input_ids)
        self._telemetry.prompt_blocks += allocation.new_blocks + allocation.reused_blocks
        self._telemetry.reused_blocks += allocation.reused_blocks
        self._running[new.request_id] = running = Running(new, handle, allocation, now_ns, self._logits)
        self._contents.add(new.request_id, running, allocation.reused_tokens)

    def _cancel(self, message: Cancel) -> None:
        running, exact = self._running.get(message.request_id), self._exact.get(message.request_id)
        if running is not None:
            self._telemetry.generated_tokens += running.undelivered_tokens()
            running.handle.cancel()
            self._end(message.request_id)
        elif exact is not None:
            self._telemetry.generated_tokens += exact.undelivered_tokens()
            self._end(message.request_id)
        elif (self._waiting.pop(message.request_id, None) or self._unchecked.pop(message.request_id, None)) is None:
            return
        self._send([(message.request_id, Increment((), finish=FinishReason.CANCELLED))])

    def _end(self, request_id: int) -> None:
        """Remove a request and free its resources. The pipeline drops a cancelled sequence in its next step."""
        self._admission.release(request_id)
        if request_id in self._exact:
            self._exact.pop(request_id).close()
            return
        running = self._running.pop(request_id)
        running.close()
        self._contents.remove(request_id)
        self._account.finish(running.allocation, running.submit.input_ids, running.output)
        if not self._running and self._pipeline.has_non_finished_requests():
            self._pipeline.step()

    def _step(self) -> None:
        planned = self._contents.plan()
        started_ns = time.monotonic_ns()
        self._pipeline.step()
        metrics = self._pipeline.get_metrics()
        self._scheduled = int(metrics.scheduled_requests)
        self._pace.keep(started_ns, None if planned is None else planned.contents.prefill_tokens, self._scheduled)
        now_ns = time.monotonic_ns()
        telemetry = self._telemetry
        increments, ended = [], []
        for request_id, running in list(self._running.items()):
            try:
                increment = running.read(now_ns, telemetry)
            except Exception as error:  # for example logits that do not fit into memory; the other requests continue
                running.handle.cancel()
                increment = _failed(error)
            if increment is not None:
                increments.append((request_id, increment))
                telemetry.generated_tokens += _tokens_of(increment)
                if increment.is_last:
                    ended.append(request_id)
        contents = self._contents.seen(planned, self._scheduled, now_ns)
        if self._steps is not None:
            self._steps.note(contents, started_ns, now_ns, self._in_pipeline_or_waiting(), metrics)
        for request_id in ended:
            self._end(request_id)
        telemetry.iterations += 1
        telemetry.scheduled_requests += self._scheduled
        self._send_step(increments, now_ns)

    def _step_exact(self) -> None:
        """Compute one token, or one chunk of the prompt, of one exact request, round-robin."""
        request_id, exact = next(iter(self._exact.items()))
        started_ns = time.monotonic_ns()
        failed = None
        try:
            exact.step()
        except Exception as error:
            failed = _failed(error)
        self._pace.keep(started_ns, 0, sequences=1)
        now_ns = time.monotonic_ns()
        increment = exact.read(now_ns, self._telemetry) if failed is None else failed
        if self._steps is not None:
            self._steps.note_single(started_ns, now_ns, len(self._exact))
        if increment is None or not increment.is_last:
            self._exact[request_id] = self._exact.pop(request_id)
        else:
            self._end(request_id)
        if increment is not None:
            self._telemetry.generated_tokens += _tokens_of(increment)
        self._send_step([] if increment is None else [(request_id, increment)], now_ns)

    def _in_pipeline_or_waiting(self) -> int:
        return len(self._running) + len(self._waiting) + len(self._unchecked)

    def _reject(self, request_id: int, reason: str) -> None:
        self._send([(request_id, Increment((), error=reason))])

    def _send_step(self, increments: list[tuple[int, Increment]], now_ns: int) -> None:
        """Send the increments of a step, or the state alone when due: unstreamed requests rarely have increments."""
        if increments or now_ns >= self._stats_due_ns:
            self._send(increments, now_ns)

    def _send(self, increments: list[tuple[int, Increment]], now_ns: int | None = None) -> None:
        """Send increments; with the state when it is due, and always when the engine becomes idle."""
        now_ns = time.monotonic_ns() if now_ns is None else now_ns
        idle = not (self._running or self._exact or self._waiting or self._unchecked)
        stats = self._current_stats() if idle or now_ns >= self._stats_due_ns else None
        if stats is not None:
            self._stats_due_ns = now_ns + _STATS_PERIOD_NS
        self._pipe.send_bytes(encode(Step(increments, stats)))

    def _current_stats(self) -> EngineStats:
        """Current state; an idle engine uses none of its cache (blocks kept for reuse count as free)."""
        telemetry = self._telemetry
        running = [*self._running.values(), *self._exact.values()]
        scheduled = (self._scheduled if self._running else 0) + bool(self._exact)
        in_context = [running_request for running_request in running if running_request.in_context]
        unscheduled = (
            len(self._running) - self._scheduled - sum(running_request.in_context for running_request in self._running.values())
        )
        return replace(
            self._stats,
            active_requests=len(running) + len(self._waiting) + len(self._unchecked),
            scheduled_requests=scheduled,
            iterations_total=telemetry.iterations,
            scheduled_requests_total=telemetry.scheduled_requests,
            generated_tokens_total=telemetry.generated_tokens,
            kv_cache_used_fraction=self._used_blocks() / self._blocks,
            waiting_requests=len(self._waiting) + len(self._unchecked),
            context_requests=len(in_context),
            generation_requests=len(running) - len(in_context),
            paused_requests=max(0, unscheduled) if self._running else 0,
            context_tokens=sum(len(running_request.submit.input_ids) for running_request in in_context),
            prompt_tokens_total=telemetry.prompt_tokens,
            kv_prompt_blocks_total=telemetry.prompt_blocks,
            kv_reused_blocks_total=telemetry.reused_blocks,
            memory_bytes=resident_bytes(),
            gpu_memory_bytes=0,  # it computes on the CPU
            pinned_memory_bytes=0,
            time_to_first_token=telemetry.time_to_first_token.histogram(),
            inter_token_latency=telemetry.inter_token_latency.histogram(),
            queue_time=telemetry.queue_time.histogram(),
        )

    def _used_blocks(self) -> int:
        used = round(float(self._pipeline.get_metrics().cache_usage) / 100.0 * self._blocks) if self._running else 0
        used += sum(exact.allocation.new_blocks for exact in self._exact.values())
        self._account.trim(self._blocks - used)
        return min(used, self._blocks)


def _worst_case(new: Submit) -> int:
    return worst_case_blocks(len(new.input_ids), new.sampling.max_tokens, new.sampling.beam_width)


def load_pipeline(engine_dir: Path, context_tokens: int, options: EngineOptions, blocks: int) -> tuple[Any, Guides]:
    """The ``ContinuousBatchingPipeline`` of an engine folder, and its guides where enabled. Raises EngineError."""
    scheduler = genai.SchedulerConfig()
    scheduler.num_kv_blocks = blocks
    scheduler.max_num_seqs = options.max_num_sequences
    scheduler.max_num_batched_tokens = step_tokens(options, context_tokens)
    scheduler.dynamic_split_fuse = options.enable_chunked_context
    scheduler.enable_prefix_caching = options.enable_kv_cache_reuse
    properties: Mapping[str, Any] = EXACT
    tokenizer, missing = None, "this model is deployed without guided_decoding_backend"
    if options.guided_decoding_backend:
        try:
            tokenizer, missing = load_tokenizer_ir(engine_dir), ""
        except EngineError as error:  # unguided requests can be served nevertheless
            missing = str(error)
    try:
        if tokenizer is None:
            pipeline = genai.ContinuousBatchingPipeline(str(engine_dir), scheduler, "CPU", properties)
        else:
            pipeline = genai.ContinuousBatchingPipeline(str(engine_dir), tokenizer, scheduler, "CPU", **properties)
    except Exception as error:
        raise EngineError(f"OpenVINO cannot load the engine in {engine_dir}: {error}") from error
    return pipeline, Guides(tokenizer, missing)


def generation_config(sampling: Sampling, guides: Guides) -> Any:
    """``sampling`` as OpenVINO's GenerationConfig; its guide must have been checked."""
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
    if sampling.beam_width > 1:
        config.num_beams = config.num_return_sequences = sampling.beam_width
        if sampling.end_id is None:  # beam search ignores ignore_eos, so its end token is one outside the vocabulary
            config.eos_token_id = _NO_TOKEN
            config.stop_token_ids = {_NO_TOKEN}
            config.min_new_tokens = 0  # no token can end it early, and the end token has no logit to suppress
        config.length_penalty = sampling.length_penalty
        config.stop_criteria = genai.StopCriteria.EARLY if sampling.early_stopping else genai.StopCriteria.HEURISTIC
        config.logprobs = 1
    elif not sampling.greedy:
        config.do_sample = True
        config.temperature = sampling.temperature
        config.top_p = sampling.top_p
        config.rng_seed = sampling.seed
        if sampling.top_k > 0:
            config.top_k = sampling.top_k
    if sampling.guide is not None:  # at the end of the guide only the tokenizer's end token is allowed
        config.structured_output_config = structured_output(sampling.guide)
        config.ignore_eos = False
        config.eos_token_id = guides.end_id
        config.stop_token_ids = {guides.end_id} if sampling.end_id is None else {guides.end_id, sampling.end_id}
    return config


def _failed(error: Exception) -> Increment:
    return Increment((), error=f"OpenVINO could not compute the request: {error or type(error).__name__}")


def _tokens_of(increment: Increment) -> int:
    beams = () if increment.details is None else increment.details.beams
    return len(increment.token_ids) + sum(len(beam.token_ids) for beam in beams)


def _give_precedence() -> None:
    """Lower the priority of this process once it has loaded.

    The network uses every core. The process that responds to requests, and a client on the same machine, need little CPU time
    but short latency, so they take precedence. While it loads, a low priority would only keep the server from being ready.
    """
    niceness = min(19, os.getpriority(os.PRIO_PROCESS, 0) + _NICENESS)
    for thread in os.listdir("/proc/self/task"):  # on Linux a priority is a thread's, and new threads inherit it
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(thread), niceness)


def main(pipe_fd: int, engine_dir: Path, options: EngineOptions) -> int:
    pipe = Connection(pipe_fd)
    worker = None
    try:
        worker = _Worker(pipe, engine_dir, options)
        worker.run()
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return 0  # the parent process has ended or closed the engine
    except Exception as error:
        _LOG.exception("the OpenVINO engine failed")
        pipe.send_bytes(encode(Failed(str(error))))
        return 1
    finally:
        if worker is not None:
            worker.end_logs()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), msgspec.json.decode(sys.argv[3], type=EngineOptions)))
