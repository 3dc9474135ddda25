"""Traffic through a simulated server: engine and front end in the order of their times. Deterministic for a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

from simulator.arrays import FloatArray, IntArray
from simulator.engine import Engine
from simulator.front_end import EventLoop, Round
from simulator.noise import resampled
from simulator.server import Server
from simulator.traffic import Traffic


@dataclass(frozen=True, eq=False)
class Answers:
    """When each request was sent, and when its first and last token arrived at the client: s, shape [requests].

    ``responses`` counts all responses, ``steps`` the steps of the engine; ``engine_busy_s`` and ``front_end_busy_s`` are the
    times in which they worked.
    """

    sent_s: FloatArray
    first_s: FloatArray
    last_s: FloatArray
    output_tokens: IntArray
    responses: int
    steps: int
    engine_busy_s: float
    front_end_busy_s: float


class _Users:
    """Sends the next request when an answer has ended, if the loop is closed."""

    def __init__(self, traffic: Traffic) -> None:
        self.sent_s = traffic.arrivals_s.tolist()
        self._next = len(traffic) if traffic.users is None else min(traffic.users, len(traffic))
        self.first = self.sent_s[: self._next]
        self.send: Callable[[float, int], None] = lambda at_s, request: None

    def answered(self, at_s: float) -> None:
        if self._next < len(self.sent_s):
            self.sent_s[self._next] = at_s
            self.send(at_s, self._next)
            self._next += 1


def simulate(server: Server, traffic: Traffic, seed: int, observe: Callable[[Round], None] | None = None) -> Answers:
    """Send ``traffic`` to ``server``; ``observe`` is called with each round of responses, in the order of time."""
    users = _Users(traffic)
    engine = Engine(server, traffic, resampled(server.noise, seed), resampled(server.launch_noise, seed + 1))
    front_end = EventLoop(server.front_end, users.first, len(traffic), engine.accept, users.answered)
    users.send = front_end.send
    while True:
        step, loop = engine.next_start(), front_end.next_round()
        if step <= loop and step < inf:
            front_end.take(engine.step())
        elif loop < inf:
            written = front_end.round()
            if written is not None and observe is not None:
                observe(written)
        else:
            break
    return Answers(
        np.array(users.sent_s),
        np.array(front_end.first_s),
        np.array(front_end.last_s),
        traffic.output_tokens,
        front_end.responses,
        engine.steps,
        engine.busy_s,
        front_end.busy_s,
    )
