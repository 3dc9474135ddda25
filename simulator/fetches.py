"""KV caches that a server which decodes fetches from those that prefill.

Before a step the host posts the transfers of the requests that have arrived, one after the other, and does nothing else
meanwhile. A step whose sequences or tokens are at their limit posts none. After the host has launched the step it looks which
transfers have ended. What it saw is known with the step's tokens.

So does vLLM's NIXL connector, whose workers post in ``start_load_kv`` and look in ``get_finished``, both once a step
(``vllm/distributed/kv_transfer/kv_connector/v1/nixl/pull_worker.py``), with a scheduler that looks at no waiting request once a
step is full (``vllm/v1/core/sched/scheduler.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from simulator.arrays import FloatArray


@dataclass(frozen=True, eq=False)
class Fetch:
    """The time of the host to post each request's transfer, and that of the transfer from then on: s, shape [requests]."""

    post_s: FloatArray
    transfer_s: FloatArray


class Fetches:
    """The requests of one server whose KV cache is not there yet; times are s."""

    def __init__(self, fetch: Fetch) -> None:
        self._post_s: list[float] = fetch.post_s.tolist()
        self._transfer_s: list[float] = fetch.transfer_s.tolist()
        self._arrived: deque[tuple[float, int]] = deque()
        self._under_way: list[tuple[float, int, int]] = []  # until when, the number of its post, and the request
        self._posts = 0

    def accept(self, at_s: float, request: int) -> None:
        """Take a request whose transfer is to be posted; times ascend."""
        self._arrived.append((at_s, request))

    def next(self, has_room: Callable[[int], bool]) -> float:
        """When a transfer can be posted, or ends; infinite where neither will."""
        ends = self._under_way[0][0] if self._under_way else inf
        return min(ends, self._arrived[0][0]) if self._arrived and has_room(self._arrived[0][1]) else ends

    def first(self, at_s: float) -> int | None:
        """The request that arrived first, by ``at_s``."""
        return self._arrived[0][1] if self._arrived and self._arrived[0][0] <= at_s else None

    def post(self, at_s: float, request: int) -> float:
        """Post the transfer of ``first``; returns when that is done."""
        self._arrived.popleft()
        at_s += self._post_s[request]
        heappush(self._under_way, (at_s + self._transfer_s[request], self._posts, request))
        self._posts += 1
        return at_s

    def poll(self, at_s: float) -> list[int]:
        """The requests whose transfers have ended since the last look, in the order of their posts."""
        ended = []
        while self._under_way and self._under_way[0][0] <= at_s:
            ended.append(heappop(self._under_way)[1:])
        return [request for _, request in sorted(ended)]
