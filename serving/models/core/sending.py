"""The threads that send the core model's responses. Independent of Triton, to be tested without it."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from serving.models.core.stream_pace import StreamPace

_MOST_THREADS = 4
_CORES_A_THREAD = 2  # on fewer, switching between threads costs more than waiting for Triton


def sending_threads(instances: int) -> int:
    """The number of threads that suits each of ``instances`` of the model on this machine."""
    return max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0)) // (_CORES_A_THREAD * instances)))


class Lane:
    """The replies that one thread sends: ``put`` those that have something to send; ``pace`` is the thread's."""

    def __init__(self, largest_interval: int) -> None:
        self.pace = StreamPace(largest_interval)
        self.waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.put = self.waiting.put


class SendingThreads:
    """``threads`` threads that call ``send`` with the replies that are put into their lanes.

    Triton's response sender waits until the server has taken a response, for about 100 µs and without the interpreter's lock:
    one thread would send 5,000 to 10,000 responses a second. All responses of a request are one thread's, in their order.
    """

    def __init__(self, threads: int, largest_interval: int, send: Callable[[Any], None]) -> None:
        self._send = send
        self._lanes = [Lane(largest_interval) for _ in range(threads)]
        self._threads = [threading.Thread(target=self._work, args=(lane,), name="replies") for lane in self._lanes]
        for thread in self._threads:
            thread.start()

    def lane(self, request_id: int) -> Lane:
        """The lane of a request."""
        return self._lanes[request_id % len(self._lanes)]

    def close(self) -> None:
        """Send what waits, and end the threads."""
        for lane in self._lanes:
            lane.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, lane: Lane) -> None:
        closes = False
        while not closes or not lane.waiting.empty():  # a reply with more to send waits again, also after the end
            reply = lane.waiting.get()
            if reply is None:
                closes = True
                continue
            started_s = time.monotonic()
            self._send(reply)
            lane.pace.sent(started_s, time.monotonic())
