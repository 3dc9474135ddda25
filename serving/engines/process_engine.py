"""An engine in a process of its own, which is controlled through a pipe (``serving/engines/messages.py``).

The process may belong to another environment: it needs the messages alone.
"""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection

from serving.engines.messages import (
    Cancel,
    Failed,
    PrefixCacheReset,
    Ready,
    RegisterLora,
    ResetPrefixCache,
    Step,
    Submit,
    decode_from_engine,
    encode,
)
from serving.engines.protocol import TOKENS_ONLY, Deliver, EngineStats, Increment, Returns, Sampling
from serving.errors import EngineError

_CLOSE_TIMEOUT_S = 10
_RESET_TIMEOUT_S = 600  # a large model is loaded anew


class ProcessEngine:
    """An ``Engine`` in another process: beside the models it would share their interpreter's lock and their libraries."""

    def __init__(self, command: Callable[[int], Sequence[str]], environment: Mapping[str, str] | None = None) -> None:
        """Start ``command`` of the socket's file descriptor, and wait until it has loaded its engine.

        ``environment`` None is this process's. Raises EngineError when the engine cannot be loaded.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                command(theirs.fileno()), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
            )
        self._socket = ours
        self._pipe = Connection(os.dup(ours.fileno()))
        self._sending = threading.Lock()
        self._delivering: dict[int, Deliver] = {}
        self._failure: str | None = None
        self._resetting = threading.Lock()
        self._resets: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        ready = self._await_ready()
        self.limits = ready.limits
        self._stats = ready.stats
        self._thread = threading.Thread(target=self._deliver_all, name="engine", daemon=True)
        self._thread.start()

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
        self._delivering[request_id] = deliver
        self._send(encode(Submit(request_id, list(input_ids), sampling, streaming, returns, time.monotonic_ns())))
        if self._failure is not None:
            self._fail_all(self._failure)

    def cancel(self, request_id: int) -> None:
        self._send(encode(Cancel(request_id)))

    def register_lora(self, task_id: int, weights: bytes, config: bytes) -> None:
        self._send(encode(RegisterLora(task_id, weights, config)))

    def reset_prefix_cache(self) -> None:
        with self._resetting:
            self._send(encode(ResetPrefixCache()))
            try:
                problem = self._failure or self._resets.get(timeout=_RESET_TIMEOUT_S)
            except queue.Empty:
                problem = f"the engine did not answer for {_RESET_TIMEOUT_S} s"
        if problem is not None:
            raise EngineError(problem)

    def stats(self) -> EngineStats:
        return self._stats

    def close(self) -> None:
        self._failure = self._failure or "the engine was closed before this request ended"
        self._socket.shutdown(socket.SHUT_RDWR)  # closing alone would not wake the reading thread
        try:
            self._process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._fail_all(self._failure)

    def _await_ready(self) -> Ready:
        try:
            message = decode_from_engine(self._pipe.recv_bytes())
        except (EOFError, OSError):
            message = Failed(f"it ended with status {self._process.wait()} while loading")
        if isinstance(message, Ready):
            return message
        raise EngineError(message.reason if isinstance(message, Failed) else "the engine sent a message before it was ready")

    def _send(self, message: bytes) -> None:
        try:
            with self._sending:
                self._pipe.send_bytes(message)
        except OSError:  # the reading thread detects the end of the process, too, and records the reason
            self._failure = self._failure or "the engine's process has ended"

    def _deliver_all(self) -> None:
        reason = "the engine's process has ended"
        try:
            while True:
                message = decode_from_engine(self._pipe.recv_bytes())
                if isinstance(message, Failed):
                    reason = f"the engine failed: {message.reason}"
                elif isinstance(message, PrefixCacheReset):
                    self._resets.put(message.problem)
                elif isinstance(message, Step):
                    self._stats = message.stats or self._stats
                    self._deliver(message.increments)
        except (EOFError, OSError):
            self._failure = self._failure or reason
            self._fail_all(self._failure)

    def _deliver(self, increments: Sequence[tuple[int, Increment]]) -> None:
        for request_id, increment in increments:
            deliver = self._delivering.pop(request_id) if increment.is_last else self._delivering[request_id]
            deliver(increment)

    def _fail_all(self, reason: str) -> None:
        self._resets.put(reason)
        for request_id in list(self._delivering):
            deliver = self._delivering.pop(request_id, None)
            if deliver is not None:
                deliver(Increment((), error=reason))
