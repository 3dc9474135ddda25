"""Processes of a running vLLM that are stopped for a known time: its API server, or its engine."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.injection.windows import until_stop_s

STOPPED_S = 0.5
_ENGINE_S = 0.3
_ENGINE = "EngineCore"  # in the name that vLLM gives the process

Stops = list[tuple[int, int]]
"""From when to when, in ns of the monotonic clock."""


@contextlib.contextmanager
def api_server_stopped(port: int) -> Iterator[Stops]:
    """The process that listens on loopback at ``port`` is stopped twice in each window with delays."""
    with _stopped(_listening(port), STOPPED_S) as stops:
        yield stops


@contextlib.contextmanager
def engine_stopped(port: int) -> Iterator[Stops]:
    """The same of the engine of the vLLM whose API server listens there. Work that a GPU has already got goes on."""
    found = [child.pid for child in psutil.Process(_listening(port)).children(recursive=True) if _is_engine(child)]
    assert len(found) == 1, f"{len(found)} processes {_ENGINE} of the server at port {port}"
    with _stopped(found[0], _ENGINE_S) as stops:
        yield stops


def send_each(processes: Sequence[int], number: signal.Signals) -> None:
    """The signal to each of the processes that still runs."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def waited_ns(due_ns: NDArray[np.float64], stops: Stops) -> NDArray[np.float64]:
    """How long requests, due at these times of the monotonic clock, waited for the end of a stop, in ns, shape [n]."""
    waits = np.zeros(due_ns.size)
    for from_ns, to_ns in stops:
        waits += np.where((from_ns <= due_ns) & (due_ns < to_ns), to_ns - due_ns, 0.0)
    return waits


def decoding_ns(first_ns: NDArray[np.float64], last_ns: NDArray[np.float64], stops: Stops) -> NDArray[np.float64]:
    """How long requests were stopped between their first and their last tokens, of these times, in ns, shape [n]."""
    stopped = np.zeros(first_ns.size)
    for from_ns, to_ns in stops:
        stopped += np.where((first_ns < from_ns) & (to_ns < last_ns), to_ns - from_ns, 0.0)
    return stopped


@contextlib.contextmanager
def _stopped(process: int, for_s: float) -> Iterator[Stops]:
    over, stops = threading.Event(), Stops()

    def stop() -> None:
        while not over.wait(until_stop_s(time.monotonic())):
            from_ns = time.monotonic_ns()
            try:
                send_each([process], signal.SIGSTOP)
                time.sleep(for_s)
            finally:
                send_each([process], signal.SIGCONT)
            stops.append((from_ns, time.monotonic_ns()))

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield stops
    finally:
        over.set()
        thread.join()


def _listening(port: int) -> int:
    for each in psutil.net_connections("tcp4"):
        if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port and each.pid is not None:
            return each.pid
    raise ProcessLookupError(f"no process of this user listens at port {port}")


def _is_engine(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return _ENGINE in " ".join(process.cmdline())
    return False
