"""Ends of an engine in another process, at moments that a real one cannot be made to choose."""

from __future__ import annotations

import queue
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import pytest

from serving.engines import process_engine
from serving.engines.messages import Failed, Ready, Step, encode
from serving.engines.process_engine import Link, ProcessEngine, start
from serving.engines.protocol import EngineLimits, EngineStats, Increment, Sampling

_WAIT_S = 30.0


@contextmanager
def _engine() -> Iterator[tuple[ProcessEngine, Connection]]:
    """An engine, and the end of its pipe that the other process has."""
    ours, theirs = socket.socketpair()
    with Connection(theirs.detach()) as process:
        process.send_bytes(encode(Ready(EngineLimits(100, 100), EngineStats(0, 0, 1, 0, 0, 0, 0.0, 1, 16))))
        with ours:
            yield ProcessEngine(Link(ours, None)), process


def test_an_engine_closed_while_it_delivers_says_the_end_last() -> None:
    delivered: list[Increment] = []
    delivering, released, closed = threading.Event(), threading.Event(), threading.Event()

    def deliver(increment: Increment) -> None:
        delivering.set()
        released.wait(_WAIT_S)
        delivered.append(increment)

    with _engine() as (engine, process):
        engine.submit(1, [1], Sampling(10), deliver, streaming=True)
        process.recv_bytes()
        process.send_bytes(encode(Step([(1, Increment([1])), (1, Increment([2]))], None)))
        assert delivering.wait(_WAIT_S)
        closing = threading.Thread(target=lambda: (engine.close(), closed.set()))
        closing.start()
        while process.poll(_WAIT_S):  # until the engine has shut its end
            try:
                process.recv_bytes()
            except EOFError:
                break
        assert not closed.wait(0.1)
        released.set()
        closing.join(_WAIT_S)
    assert closed.is_set()
    assert [list(increment.token_ids) for increment in delivered] == [[1], [2], []]
    assert [increment.is_last for increment in delivered] == [False, False, True]


_STUBBORN = """
import sys, time
from multiprocessing.connection import Connection
from serving.engines.messages import Ready, encode
from serving.engines.protocol import EngineLimits, EngineStats
pipe = Connection(int(sys.argv[1]))
pipe.send_bytes(encode(Ready(EngineLimits(100, 100), EngineStats(0, 0, 1, 0, 0, 0, 0.0, 1, 16))))
time.sleep(600)
"""


def test_an_engine_that_does_not_end_is_killed_and_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_engine, "_CLOSE_TIMEOUT_S", 0.2)
    link = start(lambda fd: [sys.executable, "-c", _STUBBORN, str(fd)])
    ProcessEngine(link).close()
    assert link.process is not None
    assert link.process.returncode == -signal.SIGKILL
    assert "the engine's process did not end within 0.2 s, so it was killed" in caplog.text


def test_an_engine_that_cannot_be_read_ends_its_requests() -> None:
    ends: queue.SimpleQueue[Increment] = queue.SimpleQueue()
    with _engine() as (engine, process):
        engine.submit(1, [1], Sampling(10), ends.put, streaming=True)
        process.send_bytes(encode(Step([(7, Increment([1]))], None)))  # a request that nobody made
        assert "cannot be read" in str(ends.get(timeout=_WAIT_S).error)
        engine.submit(2, [1], Sampling(10), ends.put, streaming=True)
        assert "cannot be read" in str(ends.get(timeout=_WAIT_S).error)
        engine.close()


def test_requests_after_the_end_get_the_reason_of_the_end() -> None:
    ends: list[Increment] = []
    ended = threading.Event()
    with _engine() as (engine, process):
        engine.submit(1, [1], Sampling(10), lambda increment: (ends.append(increment), ended.set()), streaming=True)
        process.send_bytes(encode(Failed("no memory")))
        process.close()
        assert ended.wait(_WAIT_S)
        engine.submit(2, [1], Sampling(10), ends.append, streaming=True)
        engine.close()
        engine.submit(3, [1], Sampling(10), ends.append, streaming=True)
    assert [increment.error for increment in ends] == ["the engine failed: no memory"] * 3


def test_a_callback_that_fails_ends_no_other_request() -> None:
    delivered: queue.SimpleQueue[Increment] = queue.SimpleQueue()

    def fail(increment: Increment) -> None:
        raise ValueError("no room")

    with _engine() as (engine, process):
        engine.submit(1, [1], Sampling(10), fail, streaming=True)
        engine.submit(2, [1], Sampling(10), delivered.put, streaming=True)
        process.send_bytes(encode(Step([(1, Increment([1])), (2, Increment([2]))], None)))
        assert list(delivered.get(timeout=_WAIT_S).token_ids) == [2]
        engine.close()
