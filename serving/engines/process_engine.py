"""An engine in a process of its own, which is controlled through a pipe (``serving/engines/messages.py``).

The process may belong to another environment: it needs the messages alone. Several processes may share one, each over a socket
of its own: the one that starts it, and those that join.
"""

from __future__ import annotations

import logging
import os
import queue
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from serving.engines.messages import (
    Cancel,
    Failed,
    PrefixCacheReset,
    Ready,
    RegisterLora,
    ResetPrefixCache,
    Step,
    Stop,
    Submit,
    decode_from_engine,
    encode,
)
from serving.engines.protocol import TOKENS_ONLY, Deliver, EngineStats, Increment, Returns, Sampling
from serving.errors import EngineError

_LOG = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S = 10
_RESET_TIMEOUT_S = 600  # a large model is loaded anew
_JOIN_TIMEOUT_S = 300.0  # until the process that starts the engine listens
_JOIN_PERIOD_S = 0.05
_REFUSE_S = 30.0  # in which every process that shares an engine comes to join it
_BACKLOG = 64


@dataclass(frozen=True)
class Link:
    """The socket to an engine's process, and the process where it is a child of this one."""

    socket: socket.socket
    process: subprocess.Popen[bytes] | None


def start(
    command: Callable[[int], Sequence[str]],
    environment: Mapping[str, str] | None = None,
    listener: socket.socket | None = None,
) -> Link:
    """Start ``command`` of the socket's file descriptor, which inherits ``listener``, too.

    ``environment`` None is this process's.
    """
    ours, theirs = socket.socketpair()
    passed = [theirs.fileno(), *([] if listener is None else [listener.fileno()])]
    with theirs:
        process = subprocess.Popen(command(theirs.fileno()), pass_fds=passed, stdin=subprocess.DEVNULL, env=environment)
    return Link(ours, process)


def listen(name: str) -> socket.socket:
    """A socket at which others join the engine ``name``. Raises EngineError where there is one."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(_address(name))
    except OSError as error:
        listener.close()
        raise EngineError(f"the processes that share the engine cannot meet, is it loaded twice? {error}") from error
    listener.listen(_BACKLOG)
    return listener


def join(name: str, timeout_s: float = _JOIN_TIMEOUT_S) -> Link:
    """Join the engine that another process starts, which may happen later. Raises EngineError after ``timeout_s``."""
    end_s = time.monotonic() + timeout_s
    while True:
        joined = socket.socket(socket.AF_UNIX)
        try:
            joined.connect(_address(name))
            return Link(joined, None)
        except OSError as error:
            joined.close()
            if time.monotonic() > end_s:
                raise EngineError(f"no process has started the engine that this one shares: {error}") from error
        time.sleep(_JOIN_PERIOD_S)


def refuse(listener: socket.socket, joining: int, reason: str) -> None:
    """Say why the engine cannot be loaded to the processes that join it, also to those that come later, ``joining`` in all."""
    end_s = time.monotonic() + _REFUSE_S
    with suppress(OSError):  # the time is up
        for _ in range(joining):
            listener.settimeout(max(0.0, end_s - time.monotonic()))
            joined, _address_of_it = listener.accept()
            with joined, suppress(OSError), Connection(os.dup(joined.fileno())) as pipe:
                pipe.send_bytes(encode(Failed(reason)))


def _address(name: str) -> str:
    return f"\0inflight-bench-{name}"  # without a file, so that it ends with the process


class ProcessEngine:
    """An ``Engine`` in another process: beside the models it would share their interpreter's lock and their libraries."""

    def __init__(self, link: Link, on_stop: Callable[[str], None] = lambda client_id: None) -> None:
        """Wait until the process has loaded its engine; ``on_stop`` as of ``Front``.

        Raises EngineError when the engine cannot be loaded.
        """
        self._process = link.process
        self._socket = link.socket
        self._on_stop = on_stop
        self._pipe = Connection(os.dup(link.socket.fileno()))
        self._sending = threading.Lock()
        self._closed: str | None = None  # why, where this process closes the engine
        self._ended: str | None = None  # why; from then on no request is admitted
        self._admitting = threading.Lock()
        self._delivering: dict[int, Deliver] = {}  # the reading thread alone delivers, so that last is last
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
        with self._admitting:
            ended = self._ended
            if ended is None:
                self._delivering[request_id] = deliver
        if ended is not None:
            deliver(Increment((), error=ended))
        else:
            self._send(encode(Submit(request_id, list(input_ids), sampling, streaming, returns, time.monotonic_ns())))

    def cancel(self, request_id: int) -> None:
        self._send(encode(Cancel(request_id)))

    def register_lora(self, task_id: int, weights: bytes, config: bytes) -> None:
        self._send(encode(RegisterLora(task_id, weights, config)))

    def reset_prefix_cache(self) -> None:
        with self._resetting:
            self._send(encode(ResetPrefixCache()))
            try:
                problem = self._ended or self._resets.get(timeout=_RESET_TIMEOUT_S)
            except queue.Empty:
                problem = f"the engine did not answer for {_RESET_TIMEOUT_S} s"
        if problem is not None:
            raise EngineError(problem)

    def announce_stop(self, client_id: str) -> None:
        """Have the other processes that share the engine stop the requests with this client's id."""
        self._send(encode(Stop(client_id)))

    def stats(self) -> EngineStats:
        return self._stats

    def close(self) -> None:
        self._closed = "the engine was closed before this request ended"
        self._socket.shutdown(socket.SHUT_RDWR)  # closing alone would not wake the reading thread
        if self._process is not None:
            try:
                self._process.wait(_CLOSE_TIMEOUT_S)
            except subprocess.TimeoutExpired:  # Triton waits as long for its models, so the log must say what took the time
                _LOG.warning("the engine's process did not end within %g s, so it was killed", _CLOSE_TIMEOUT_S)
                self._process.kill()
                self._process.wait()
        self._thread.join()

    def _await_ready(self) -> Ready:
        try:
            message = decode_from_engine(self._pipe.recv_bytes())
        except (EOFError, OSError):
            status = "" if self._process is None else f" with status {self._process.wait()}"
            message = Failed(f"it ended{status} while loading")
        if isinstance(message, Ready):
            return message
        raise EngineError(message.reason if isinstance(message, Failed) else "the engine sent a message before it was ready")

    def _send(self, message: bytes) -> None:
        with self._sending, suppress(OSError):  # the reading thread detects the end of the process, too, and records the reason
            self._pipe.send_bytes(message)

    def _deliver_all(self) -> None:
        reason = "the engine's process has ended"
        try:
            while True:
                message = decode_from_engine(self._pipe.recv_bytes())
                if isinstance(message, Failed):
                    reason = f"the engine failed: {message.reason}"
                elif isinstance(message, PrefixCacheReset):
                    self._resets.put(message.problem)
                elif isinstance(message, Stop):
                    self._on_stop(message.client_id)
                elif isinstance(message, Step):
                    self._stats = message.stats or self._stats
                    self._deliver(message.increments)
        except (EOFError, OSError):
            pass
        except Exception as error:  # no request may wait for an engine that nobody reads
            _LOG.exception("the engine cannot be read")
            reason = f"the engine cannot be read: {error!r}"
        self._end(self._closed or reason)

    def _deliver(self, increments: Sequence[tuple[int, Increment]]) -> None:
        for request_id, increment in increments:
            deliver = self._delivering.pop(request_id) if increment.is_last else self._delivering[request_id]
            _call(deliver, increment)

    def _end(self, reason: str) -> None:
        with self._admitting:
            self._ended = reason
        self._resets.put(reason)
        for deliver in self._delivering.values():
            _call(deliver, Increment((), error=reason))
        self._delivering.clear()


def _call(deliver: Deliver, increment: Increment) -> None:
    try:
        deliver(increment)
    except Exception:  # an error in one callback must not end the other requests
        _LOG.exception("the callback of an increment failed")
