"""vLLM's ``AsyncLLM`` in an environment of its own, reached by a local socket.

    PYTHON host.py SOCKET_FD START_JSON

``PYTHON`` has vLLM and nothing of this project, so this file imports vLLM, msgspec, which vLLM requires, and the standard
library. The messages are those of ``serving/engines/messages.py``, as the maps that MessagePack makes of them.

``START_JSON`` has ``arguments``, those of vLLM's ``AsyncEngineArgs``; ``kv_cache_tokens``, None for as many as fit into memory;
``bounds_s``, of the histograms; and ``listener``, the descriptor of a socket at which other processes of the same user join
once the engine is loaded, or None. Each has requests and request ids of its own. The increments of one engine step leave in one
message to each. This process ends when the first socket closes or its parent dies, and its children end with it.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import gc
import hashlib
import itertools
import json
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec

_PR_SET_PDEATHSIG = 1
_LENGTH = struct.Struct("!i")  # as multiprocessing.connection frames a message
_STATS_PERIOD_NS = 50_000_000
_READ_BYTES = 1 << 24
_CLOSE_TIMEOUT_S = 2.0
_SHUTDOWN_S = 2.0
_TRIAL = [1, 2, 3]
_GUIDES = {"json_schema": "json", "regex": "regex", "ebnf_grammar": "grammar"}  # the kinds → vLLM's arguments
_MOST_BAD_WORDS, _MOST_BAD_TOKENS, _MOST_BIASES = 128, 1024, 1024  # what vLLM's newer model runner has room for
_LARGEST_SEED = 2**63 - 1  # of that runner, which has them as int64, and ends with the engine for a larger one
_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_FINISH = {"stop": "stop", "length": "length", "repetition": "stop", "abort": "cancelled"}  # vLLM's reasons

_KEPT_ADAPTERS = 64
_FOLDER_PREFIX = f"inflight-bench-lora-{socket.gethostname()}-"  # a lock may be that of one host alone
_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MODULES = {  # TensorRT-LLM's module ids → Hugging Face's names for Llama's layers, the widths of their inputs and outputs
    1: ("self_attn.q_proj", "hidden", "queries"),
    2: ("self_attn.k_proj", "hidden", "keys"),
    3: ("self_attn.v_proj", "hidden", "keys"),
    4: ("self_attn.o_proj", "queries", "hidden"),
    5: ("mlp.gate_proj", "hidden", "inner"),
    6: ("mlp.down_proj", "inner", "hidden"),
    7: ("mlp.up_proj", "hidden", "inner"),
}

_CREDENTIALS = struct.Struct("3i")  # of SO_PEERCRED: process, user, group

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode

Message = dict[str, Any]

_NO_RETURNS: Message = {"log_probs": False, "perf_metrics": False}  # the messages omit what has its default
_CANCELLED: Message = {"token_ids": [], "finish": "cancelled"}


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, for any reason, so that no engine keeps a GPU's memory."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


# vLLM's own processes import this file as their main module where they are spawned, and inherit the hook where they are forked.
if __name__ in ("__main__", "__mp_main__"):
    die_with_parent()
    os.register_at_fork(after_in_child=die_with_parent)


class Histogram:
    """Counts of durations by bucket, and their sum; ``bounds_s`` are the upper bounds."""

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def add(self, times_s: Sequence[float]) -> None:
        for time_s in times_s:
            self._counts[bisect_left(self._bounds_s, time_s)] += 1
            self._sum_s += time_s

    def message(self) -> Message:
        return {"counts": self._counts, "sum_s": self._sum_s}


class Telemetry:
    """vLLM's statistics as ``EngineStats``."""

    def __init__(self, bounds_s: Sequence[float]) -> None:
        self._iterations = self._scheduled = self._generated = self._prompt_tokens = 0
        self._prompt_blocks = self._reused_blocks = 0
        self._running = self._waiting = 0
        self._used = 0.0
        self._first_token, self._between_tokens, self._queue = Histogram(bounds_s), Histogram(bounds_s), Histogram(bounds_s)

    def record(self, scheduler: Any, iteration: Any) -> None:
        """Add one step: vLLM's ``SchedulerStats`` and ``IterationStats``."""
        if scheduler is not None:
            self._running = scheduler.num_running_reqs
            self._waiting = scheduler.num_waiting_reqs + getattr(scheduler, "num_skipped_waiting_reqs", 0)
            self._used = scheduler.kv_cache_usage
        if iteration is not None:
            self._iterations += 1
            self._scheduled += self._running
            self._generated += iteration.num_generation_tokens
            self._first_token.add(iteration.time_to_first_tokens_iter)
            self._between_tokens.add(getattr(iteration, "inter_token_latencies_iter", ()))
            self._queue.add([request.queued_time for request in iteration.finished_requests])

    def note_prompt(self, tokens: int, cached_tokens: int, block_size: int) -> None:
        """Count a prompt whose computation has ended."""
        self._prompt_tokens += tokens
        self._prompt_blocks += -(-tokens // block_size)
        self._reused_blocks += cached_tokens // block_size

    def message(self, active: int, silent: int, limits: Message) -> Message:
        """The state with ``active`` requests, ``silent`` of which stream and have no token.

        Others that run count as generating, since vLLM reports their end alone. An idle engine uses none of its cache.
        """
        waiting = min(self._waiting, active)
        in_context = min(max(0, silent - waiting), active - waiting)
        return {
            **limits,
            "active_requests": active,
            "scheduled_requests": min(self._running, active),
            "iterations_total": self._iterations,
            "scheduled_requests_total": self._scheduled,
            "generated_tokens_total": self._generated,
            "kv_cache_used_fraction": self._used if active else 0.0,
            "waiting_requests": waiting,
            "context_requests": in_context,
            "generation_requests": active - waiting - in_context,
            "prompt_tokens_total": self._prompt_tokens,
            "kv_prompt_blocks_total": self._prompt_blocks,
            "kv_reused_blocks_total": self._reused_blocks,
            "time_to_first_token": self._first_token.message(),
            "inter_token_latency": self._between_tokens.message(),
            "queue_time": self._queue.message(),
        }


class Front:
    """A process that sends requests: its socket, and the increments that wait for the end of a step."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.outbox: list[tuple[int, Message]] = []
        self._reader, self._writer = reader, writer

    async def receive(self) -> Message:
        length = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))[0]
        message: Message = _decode(await self._reader.readexactly(length))
        return message

    def send(self, message: Message) -> None:
        """Nothing where its socket has closed, which ``receive`` raises: others wait for what is sent after it."""
        if not self._writer.is_closing():
            content = _encode(message)
            self._writer.write(_LENGTH.pack(len(content)) + content)

    def is_of_this_user(self) -> bool:
        peer = self._writer.get_extra_info("socket")
        _, user, _ = _CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        return bool(user == os.getuid())

    def close(self) -> None:
        self._writer.close()


Key = tuple[Front, int]  # a request: its id is the front's


class Host:
    """Serves the requests of the fronts with one ``AsyncLLM``; ``first`` is that which started this process."""

    def __init__(self, start: Message, first: Front) -> None:
        self._first = first
        self._fronts = {first}  # those that are ready
        self._start = start
        self._loop = asyncio.get_running_loop()
        self._joined = 0
        self._telemetry = Telemetry(start["bounds_s"])
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._answering: set[Key] = set()  # those with an output
        self._silent: set[Key] = set()  # those that stream and have none
        self._stats_due_ns = 0
        self._will_flush = False
        self._llm: Any = None
        self._adapters: Adapters | None = None  # None where vLLM was started without them
        self._server: asyncio.Server | None = None  # uvloop closes a server that nothing refers to
        self._limits: Message = {}
        self._vocabulary_size = self._context_tokens = 0

    async def run(self) -> int:
        """Load the engine, and serve until the first socket closes; returns the exit status."""
        try:
            await self._load()
            if self._start["listener"] is not None:  # who came before waits in its backlog
                self._server = await asyncio.start_unix_server(
                    self._join, sock=socket.socket(fileno=self._start["listener"]), limit=_READ_BYTES
                )
            self._first.send(self._ready())
            await self._serve(self._first)
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        except Exception as error:
            traceback.print_exc()
            self._fail(str(error) or repr(error))
            return 1

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a process that joins, until its socket closes."""
        self._joined += 1
        front = Front(self._joined, reader, writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            if front.is_of_this_user():
                self._fronts.add(front)
                front.send(self._ready())
                await self._serve(front)
        self._fronts.discard(front)
        for key in [key for key in self._tasks if key[0] is front]:
            self._tasks[key].cancel()
        front.close()

    async def _serve(self, front: Front) -> NoReturn:
        while True:
            self._receive(front, await front.receive())

    def shut_down(self) -> None:
        """End vLLM's processes. Those that take long are killed when this one ends."""
        if self._adapters is not None:
            self._adapters.remove()
        if self._llm is not None:
            with suppress(TypeError):  # older releases have no time-out
                self._llm.shutdown(timeout=_SHUTDOWN_S)

    async def _load(self) -> None:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM

        config = AsyncEngineArgs(**self._start["arguments"]).create_engine_config(UsageContext.ENGINE_CONTEXT)
        cache, tokens = config.cache_config, self._start["kv_cache_tokens"]
        if tokens is not None:
            cache.num_gpu_blocks_override = -(-tokens // cache.block_size)
        loggers = [lambda *_: StatLogger(self)]
        self._llm = AsyncLLM.from_vllm_config(config, stat_loggers=loggers, disable_log_stats=True)
        leave_out_prometheus(self._llm)
        self._vocabulary_size = int(config.model_config.get_vocab_size())
        self._limits = {
            "max_requests": int(config.scheduler_config.max_num_seqs),
            "kv_cache_blocks": int(cache.num_gpu_blocks or 0),
            "kv_cache_tokens_per_block": int(cache.block_size),
        }
        if getattr(config, "lora_config", None) is not None:
            self._adapters = Adapters(self._llm, config.model_config.hf_text_config)
        await self._check_ids()
        self._telemetry = Telemetry(self._start["bounds_s"])
        self._context_tokens = int(config.model_config.max_model_len)
        settle()

    def _ready(self) -> Message:
        limits = {"vocabulary_size": self._vocabulary_size, "context_tokens": self._context_tokens}
        return {"type": "Ready", "limits": limits, "stats": self._stats()}

    async def _check_ids(self) -> None:
        """Raise ValueError unless vLLM computes the ids that it is given."""
        parameters = sampling_parameters({"max_tokens": 1, "greedy": True}, "last", log_probs=False)
        async for output in self._llm.generate(prompt(_TRIAL), parameters, "0"):
            received = list(output.prompt_token_ids)
            if received != _TRIAL:
                raise ValueError(f"vLLM received the token ids {received} where {_TRIAL} were sent")

    def record(self, scheduler: Any, iteration: Any) -> None:
        """Called by vLLM after every step."""
        self._telemetry.record(scheduler, iteration)
        if time.monotonic_ns() >= self._stats_due_ns:
            self._flush_soon()

    def _receive(self, front: Front, message: Message) -> None:
        match message["type"]:
            case "Submit":
                key = front, message["request_id"]
                adapter = self._take_adapter(message["sampling"])
                self._tasks[key] = self._loop.create_task(self._run(key, message, adapter))
                # a task that is cancelled before its first step does not run at all
                self._tasks[key].add_done_callback(lambda _: self._after(key, adapter))
            case "Cancel":
                if (running := self._tasks.get((front, message["request_id"]))) is not None:
                    running.cancel()
            case "RegisterLora":
                if self._adapters is not None:
                    self._adapters.register(message["task_id"], message["weights"], message["config"])
            case "Stop":
                for other in self._fronts - {front}:
                    other.send(message)
            case "ResetPrefixCache":
                self._loop.create_task(self._reset_prefix_cache(front))

    async def _reset_prefix_cache(self, front: Front) -> None:
        problem = None
        try:
            if self._tasks:
                problem = f"{len(self._tasks)} requests are in flight, and a prefix cache is emptied between requests"
            elif await self._llm.reset_prefix_cache() is False:
                problem = "vLLM did not empty its prefix cache"
        except Exception as error:  # who waits for the answer must get one
            problem = f"vLLM did not empty its prefix cache: {error}"
        front.send({"type": "PrefixCacheReset", "problem": problem})

    async def _run(self, key: Key, submit: Message, adapter: Adapter | None) -> None:
        try:
            last = await self._generate(key, submit, adapter)
        except asyncio.CancelledError:
            last = _CANCELLED
        except Exception as error:
            if getattr(self._llm, "errored", False):
                self._tasks.pop(key, None)  # it ends with the reason, as all others do, and is not cancelled
                self._fail(f"vLLM's engine has ended, for the reason in the log: {error}")
                self._first.close()
                return
            failure = "failed" if key in self._answering else "rejected the request"
            last = {"token_ids": [], "error": f"vLLM {failure}: {error}"}
        self._end(key, last)

    def _end(self, key: Key, last: Message) -> None:
        if self._tasks.pop(key, None) is not None:
            self._answering.discard(key)
            self._silent.discard(key)
            self._put(key, last)

    def _after(self, key: Key, adapter: Adapter | None) -> None:
        self._end(key, _CANCELLED)
        if adapter is not None and self._adapters is not None:
            self._adapters.give_back(adapter)

    async def _generate(self, key: Key, submit: Message, adapter: Adapter | None) -> Message:
        """Run one request to its end: put its increments, and return the last. Without ``streaming`` that has all tokens."""
        input_ids, sampling, streaming = submit["input_ids"], submit["sampling"], submit["streaming"]
        if input_ids and not 0 <= min(input_ids) <= max(input_ids) < self._vocabulary_size:  # it would end vLLM's engine
            raise ValueError(f"a token id lies outside the vocabulary, [0, {self._vocabulary_size})")
        ending = StopWords(sampling["stop_words"])
        returns = submit.get("returns", _NO_RETURNS)
        outputs_of = "each" if streaming or sampling["stop_words"] else "last"
        parameters = sampling_parameters(sampling, outputs_of, returns["log_probs"])
        exclude(parameters, sampling.get("bad_words", ()), self._vocabulary_size)
        lora = await self._lora(sampling, adapter)
        if streaming:
            self._silent.add(key)
        name = f"{key[0].number}-{key[1]}"
        increment: Message = {"token_ids": []}
        async with aclosing(self._llm.generate(prompt(input_ids), parameters, name, **lora)) as outputs:
            async for output in outputs:  # where this is left early, closing aborts the request
                self._note_answer(key, len(input_ids), output)
                completion = output.outputs[0]
                kept = ending.until_end(completion.token_ids)
                increment["token_ids"] += kept
                if returns["log_probs"]:
                    _add_log_probs(increment, kept, completion.logprobs)
                if returns["perf_metrics"]:
                    increment.setdefault("details", {})["perf"] = self._perf(len(input_ids), output)
                if ending.found:
                    return increment | {"finish": "stop"}
                if completion.finish_reason is not None:
                    return increment | _finish(completion.finish_reason)
                if streaming and kept:
                    self._put(key, increment)
                    increment = {"token_ids": []}
        return increment | {"error": "vLLM ended the request without a reason"}

    def _take_adapter(self, sampling: Message) -> Adapter | None:
        """The adapter of a request at the time of its submission."""
        task_id = sampling.get("lora_task_id")
        return None if task_id is None or self._adapters is None else self._adapters.take(task_id)

    async def _lora(self, sampling: Message, adapter: Adapter | None) -> Message:
        """The argument of ``generate`` that names the adapter; empty without one."""
        if (task_id := sampling.get("lora_task_id")) is None:
            return {}
        if self._adapters is None:
            raise ValueError("lora_task_id needs a server that was started with --engine_arg enable_lora=true")
        if adapter is None:
            raise ValueError(f"LoRA task {task_id} not found in cache. Please send LoRA weights with request")
        return {"lora_request": await self._adapters.request(adapter)}

    def _note_answer(self, key: Key, prompt_tokens: int, output: Any) -> None:
        """Count the prompt with its first output."""
        if key not in self._answering:
            self._answering.add(key)
            self._silent.discard(key)
            cached = getattr(output, "num_cached_tokens", None) or 0
            self._telemetry.note_prompt(prompt_tokens, cached, self._limits["kv_cache_tokens_per_block"])

    def _perf(self, prompt_tokens: int, output: Any) -> Message:
        """``PerfMetrics`` of a request; vLLM's times are seconds of the monotonic clock."""
        times, block = output.metrics, self._limits["kv_cache_tokens_per_block"]
        prompt_blocks = -(-prompt_tokens // block)
        reused = (output.num_cached_tokens or 0) // block
        return {
            "first_scheduled_time_ns": round(times.scheduled_ts * 1e9),
            "first_token_time_ns": round(times.first_token_ts * 1e9),
            "last_token_time_ns": round(times.last_token_ts * 1e9),
            "kv_new_blocks": prompt_blocks - reused,
            "kv_reused_blocks": reused,
            "kv_total_blocks": -(-(prompt_tokens + times.num_generation_tokens) // block) - reused,
        }

    def _put(self, key: Key, increment: Message) -> None:
        key[0].outbox.append((key[1], increment))
        self._flush_soon()

    def _flush_soon(self) -> None:
        """Send after the tasks that this step woke: they are in the loop's queue already."""
        if not self._will_flush:
            self._will_flush = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._will_flush = False
        now_ns = time.monotonic_ns()
        stats = None
        if not self._tasks or now_ns >= self._stats_due_ns:
            stats, self._stats_due_ns = self._stats(), now_ns + _STATS_PERIOD_NS
        for front in self._fronts:
            if front.outbox or stats is not None:
                increments, front.outbox = front.outbox, []
                front.send({"type": "Step", "increments": increments, "stats": stats})

    def _stats(self) -> Message:
        return self._telemetry.message(len(self._tasks), len(self._silent), self._limits)

    def _fail(self, reason: str) -> None:
        for front in self._fronts:
            front.send({"type": "Failed", "reason": reason})


@dataclass(eq=False)
class Adapter:
    """A task's LoRA adapter. ``users`` are its requests that have not ended; ``is_kept`` ends when another replaces it.

    ``load`` ends with vLLM's ``LoRARequest``; ``weights`` are empty from then on.
    """

    digest: bytes
    weights: bytes
    config: bytes
    users: int = 0
    is_kept: bool = True
    load: asyncio.Task[Any] | None = None


class Adapters:
    """LoRA adapters by task, in upstream's layout; vLLM reads each from a folder of PEFT's format once a request names it.

    The layout (``hf_lora_convert.py`` and TensorRT-LLM's LoRA documentation): a row of ``config``, int32 [modules, 3], is
    module id, layer, rank; the same row of ``weights``, float16 [modules, values], is A [rank, in], then B [out, rank], flat,
    zero-padded, already scaled by alpha / rank. The adapters of the tasks that were used last are kept.
    """

    def __init__(self, llm: Any, network: Any) -> None:
        """``network`` is the model's Hugging Face configuration."""
        self._llm, self._network = llm, network
        self._kept: OrderedDict[int, Adapter] = OrderedDict()
        self._numbers = itertools.count(1)
        remove_left_folders()
        self._folder = LockedFolder()
        self._discards: set[asyncio.Task[None]] = set()

    def register(self, task_id: int, weights: bytes, config: bytes) -> None:
        """The adapter of the task's requests from now on. Those that were submitted before keep theirs."""
        hashed = hashlib.blake2b(config)
        hashed.update(weights)  # not joined: an adapter's weights may take a hundred megabytes
        digest = hashed.digest()
        known = self._kept.get(task_id)
        if known is None or known.digest != digest:
            self._kept[task_id] = Adapter(digest, weights, config)
            self._let_go(known)
        self._kept.move_to_end(task_id)
        while len(self._kept) > _KEPT_ADAPTERS:
            self._let_go(self._kept.popitem(last=False)[1])

    def take(self, task_id: int) -> Adapter | None:
        """The adapter of a request that is submitted, until ``give_back``; None for an unknown task."""
        adapter = self._kept.get(task_id)
        if adapter is not None:
            self._kept.move_to_end(task_id)
            adapter.users += 1
        return adapter

    def give_back(self, adapter: Adapter) -> None:
        adapter.users -= 1
        self._discard_unused(adapter)

    async def request(self, adapter: Adapter) -> Any:
        """vLLM's ``LoRARequest``. Raises ValueError for an adapter that does not fit, and what vLLM raises."""
        if adapter.load is None or (adapter.load.done() and adapter.load.exception() is not None):
            adapter.load = asyncio.create_task(self._load(adapter))
        return await asyncio.shield(adapter.load)  # others wait for it, too

    def remove(self) -> None:
        self._folder.remove()

    async def _load(self, adapter: Adapter) -> Any:
        from vllm.lora.request import LoRARequest

        number = next(self._numbers)  # vLLM keeps an adapter by its number, so another adapter of a task needs another one
        folder = self._folder.path / str(number)
        try:
            await asyncio.to_thread(write_adapter, folder, adapter.weights, adapter.config, sizes_of(self._network))
            request = LoRARequest(f"adapter-{number}", number, str(folder))
            await self._llm.add_lora(request)  # an adapter that vLLM refuses fails here; in a request it would end the engine
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        adapter.weights = b""
        return request

    def _let_go(self, adapter: Adapter | None) -> None:
        if adapter is not None:
            adapter.is_kept = False
            self._discard_unused(adapter)

    def _discard_unused(self, adapter: Adapter) -> None:
        if not adapter.is_kept and adapter.users == 0 and adapter.load is not None:
            discard = asyncio.create_task(self._discard(adapter.load))
            self._discards.add(discard)
            discard.add_done_callback(self._discards.discard)

    async def _discard(self, load: asyncio.Task[Any]) -> None:
        with suppress(Exception):  # what has not been loaded has no folder
            request = await load
            await self._llm.remove_lora(request.lora_int_id)
            await asyncio.to_thread(shutil.rmtree, request.lora_path, ignore_errors=True)


class LockedFolder:
    """A temporary folder that this process has locked. The kernel ends the lock with the process, however that ends."""

    def __init__(self) -> None:
        descriptor = None
        while descriptor is None:
            self.path = Path(tempfile.mkdtemp(prefix=_FOLDER_PREFIX))
            descriptor = _hold(self.path)
        self._descriptor = descriptor

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)


def _hold(folder: Path) -> int | None:
    """A descriptor with the lock on ``folder``; None where another process took the folder for one that was left."""
    try:
        descriptor = os.open(folder, _OPEN_FOLDER)
    except FileNotFoundError:
        return None
    is_held = True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        is_held = False
    except OSError:  # a file system without locks: no process removes what another one uses
        pass
    if is_held and folder.exists():
        return descriptor
    os.close(descriptor)
    return None


def remove_left_folders() -> None:
    """Remove this user's folders whose processes were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        with suppress(OSError):  # another user's, or the lock of a process that lives
            descriptor = os.open(path, _OPEN_FOLDER)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


@dataclass(frozen=True)
class Sizes:
    """The layers of a network, and the widths of their inputs and outputs."""

    layers: int
    widths: Mapping[str, int]


def sizes_of(network: Any) -> Sizes:
    """The sizes by a Hugging Face configuration. Raises ValueError for a network without Llama's layers."""
    try:
        heads = network.num_attention_heads
        head = getattr(network, "head_dim", None) or network.hidden_size // heads
        keys = head * (getattr(network, "num_key_value_heads", None) or heads)
        widths = {"hidden": network.hidden_size, "queries": heads * head, "keys": keys, "inner": network.intermediate_size}
        return Sizes(network.num_hidden_layers, widths)
    except AttributeError as error:
        raise ValueError(f"lora_weights need a network with Llama's layers: {error}") from error


def write_adapter(folder: Path, weights: bytes, config: bytes, sizes: Sizes) -> None:
    """Write an adapter (see ``Adapters``) in PEFT's format: matrices of one rank, zero beyond their own.

    Raises ValueError for a module or layer that the network has not, and a row that is too short or comes twice.
    """
    import numpy as np
    from safetensors.numpy import save_file

    rows = np.frombuffer(config, dtype=np.int32).reshape(-1, 3).tolist()
    if not rows:
        raise ValueError("lora_config has no rows")
    rank = max(own for _, _, own in rows)
    tensors: dict[str, np.ndarray[Any, np.dtype[np.float16]]] = {}
    matrices = np.frombuffer(weights, dtype=np.float16).reshape(len(rows), -1)
    for (module, layer, own), values in zip(rows, matrices, strict=True):
        if module not in _MODULES:
            known = ", ".join(f"{number} ({name})" for number, (name, _, _) in _MODULES.items())
            raise ValueError(f"lora_config names module {module}; the vllm engine supports {known}")
        name, into, out_of = _MODULES[module]
        if not 0 <= layer < sizes.layers:
            raise ValueError(f"lora_config names layer {layer}; the network has {sizes.layers}")
        if own < 1:
            raise ValueError(f"lora_config has rank {own} for layer {layer}, {name}; it must be above 0")
        inputs, outputs = sizes.widths[into], sizes.widths[out_of]
        needed = own * (inputs + outputs)
        if needed > len(values):
            raise ValueError(f"lora_weights holds {len(values)} values for layer {layer}, {name}; rank {own} needs {needed}")
        down, up = np.zeros((rank, inputs), np.float16), np.zeros((outputs, rank), np.float16)
        down[:own] = values[: own * inputs].reshape(own, inputs)
        up[:, :own] = values[own * inputs : needed].reshape(outputs, own)
        key = f"base_model.model.model.layers.{layer}.{name}"
        if f"{key}.lora_A.weight" in tensors:
            raise ValueError(f"lora_config names layer {layer}, {name} twice")
        tensors |= {f"{key}.lora_A.weight": down, f"{key}.lora_B.weight": up}
    folder.mkdir()
    save_file(tensors, str(folder / "adapter_model.safetensors"))
    modules = sorted({_MODULES[module][0].rpartition(".")[2] for module, _, _ in rows})
    settings = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "target_modules": modules, "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(settings), encoding="utf-8")


class StopWords:
    """Token sequences that end an answer, searched in its tokens as they come."""

    def __init__(self, words: Sequence[Sequence[int]]) -> None:
        self.found = False
        self._words = [list(word) for word in words]
        self._longest = max(map(len, self._words), default=0)
        self._tail: list[int] = []

    def until_end(self, token_ids: Sequence[int]) -> Sequence[int]:
        """These tokens, up to the end of the first word."""
        if not self._words:
            return token_ids
        for number, token_id in enumerate(token_ids, start=1):
            self._tail = [*self._tail, token_id][-self._longest :]
            if any(self._tail[-len(word) :] == word for word in self._words):
                self.found = True
                return token_ids[:number]
        return token_ids


class StatLogger:
    """vLLM's ``StatLoggerBase`` by its shape: its methods differ between versions."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def record(self, scheduler_stats: Any = None, iteration_stats: Any = None, *_: Any, **__: Any) -> None:
        self._host.record(scheduler_stats, iteration_stats)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def leave_out_prometheus(llm: Any) -> None:
    """Spare each token vLLM's own metrics, which have no page in this process.

    vLLM adds them wherever there is another logger; they were a sixth of the time of this process at 20,000 tokens/s.
    """
    manager: Any = getattr(llm, "logger_manager", None)
    with suppress(AttributeError):
        manager.stat_loggers = [logger for logger in manager.stat_loggers if type(logger).__name__ != "PrometheusStatLogger"]


def settle() -> None:
    """Spare each token the cost of what loading vLLM left.

    Its variables are read again for each token unless they are cached, as its core process has them; older releases cannot.
    A collection that went through all loaded objects would stop all answers meanwhile.
    """
    with suppress(ImportError):
        from vllm.envs import enable_envs_cache

        enable_envs_cache()
    gc.collect()
    gc.freeze()


def prompt(input_ids: list[int]) -> Any:
    """vLLM's prompt of token ids; releases without ``tokens_input`` take the map alone."""
    try:
        from vllm.inputs import tokens_input
    except ImportError:
        return {"prompt_token_ids": input_ids}
    return tokens_input(input_ids)


def sampling_parameters(sampling: Message, outputs: str, log_probs: bool) -> Any:
    """vLLM's parameters for a ``Sampling``; absent entries have their defaults. ``outputs`` is "each" (of a step) or "last".

    The end token is a stop token: without a tokenizer vLLM knows none. The tokens are never turned into text. Raises ValueError
    for more biases than vLLM has room for, which would end its engine.
    """
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    arguments: Message = {
        "max_tokens": sampling["max_tokens"],
        "temperature": 0.0,
        "ignore_eos": True,
        "detokenize": False,
        "output_kind": RequestOutputKind.DELTA if outputs == "each" else RequestOutputKind.FINAL_ONLY,
    }
    if sampling.get("end_id") is not None:
        arguments["stop_token_ids"] = [sampling["end_id"]]
    if sampling.get("min_tokens"):
        arguments["min_tokens"] = min(sampling["min_tokens"], sampling["max_tokens"])
    if not sampling["greedy"]:
        arguments |= {name: sampling[name] for name in ("temperature", "top_k", "top_p")}
        arguments["seed"] = sampling["seed"] & _LARGEST_SEED
    arguments |= {name: sampling[name] for name in _PENALTIES if name in sampling}
    if sampling.get("embedding_bias"):
        bias = array("f", sampling["embedding_bias"])
        arguments["logit_bias"] = {token_id: value for token_id, value in enumerate(bias) if value}
        if len(arguments["logit_bias"]) > _MOST_BIASES:
            raise ValueError(f"embedding_bias may have {_MOST_BIASES:,} values that are not 0")
    if sampling.get("guide") is not None:  # where the guide ends, the tokenizer's end token alone is allowed
        arguments |= {"structured_outputs": _guide(sampling["guide"]), "ignore_eos": False}
    if log_probs:
        arguments["logprobs"] = 0  # that of the chosen token alone
    return SamplingParams(**arguments)


class _Ids:
    """A tokenizer, as far as vLLM needs one for words: their texts are token ids in decimal."""

    def __init__(self, vocabulary_size: int) -> None:
        self.max_token_id = vocabulary_size - 1

    def encode(self, text: str, **_: Any) -> list[int]:
        return [int(word) for word in text.split()]


def exclude(parameters: Any, words: Sequence[Sequence[int]], vocabulary_size: int) -> None:
    """Let vLLM's ``parameters`` exclude token sequences from the answer. Raises ValueError.

    vLLM takes texts and turns them into ids before the request goes to its engine, whose newer runner ends with the engine
    for more words than it has room for.
    """
    if not words:
        return
    if len(words) > _MOST_BAD_WORDS or sum(map(len, words)) > _MOST_BAD_TOKENS:
        raise ValueError(f"bad_words_list may hold {_MOST_BAD_WORDS} words and {_MOST_BAD_TOKENS:,} tokens in all")
    parameters.bad_words = [" ".join(map(str, word)) for word in words]
    parameters.update_from_tokenizer(_Ids(vocabulary_size))
    parameters.bad_words = []  # so that a tokenizer that the engine has for guides does not read them again


def _guide(guide: Message) -> Any:
    from vllm.sampling_params import StructuredOutputsParams

    if guide["type"] == "json":
        return StructuredOutputsParams(json_object=True)
    return StructuredOutputsParams(**{_GUIDES[guide["type"]]: guide["text"]})


def _finish(reason: str) -> Message:
    return {"finish": _FINISH[reason]} if reason in _FINISH else {"error": f"vLLM ended the request: {reason}"}


def _add_log_probs(increment: Message, token_ids: Sequence[int], log_probs: Sequence[Any]) -> None:
    values = [entry[token_id].logprob for token_id, entry in zip(token_ids, log_probs, strict=False)]
    increment.setdefault("details", {}).setdefault("log_probs", []).extend(values)


async def serve(socket_fd: int, start: Message) -> None:
    """Serve the socket, then end this process and thereby its children, whose own end may take long."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=socket_fd), limit=_READ_BYTES)
    host = Host(start, Front(0, reader, writer))
    status = await host.run()
    with suppress(Exception):
        await asyncio.wait_for(writer.drain(), _CLOSE_TIMEOUT_S)
    host.shut_down()
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    with suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.run(serve(int(sys.argv[1]), json.loads(sys.argv[2])))
