"""A simulation as its client would have recorded it, response by response."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import numpy as np

from simulator.answers import Answers
from simulator.front_end import Round
from simulator.observed import Observed
from simulator.server import Server
from simulator.simulation import simulate
from simulator.traffic import Traffic


class Responses:
    """The arrival of each response of a request, in s, and its tokens: a list for each request. ``cost`` is that of a response,
    in s.
    """

    def __init__(self, requests: int, cost: float) -> None:
        self._cost = cost
        self.times_s: list[list[float]] = [[] for _ in range(requests)]
        self.counts: list[list[int]] = [[] for _ in range(requests)]

    def add(self, written: Round) -> None:
        """Take the responses of a round."""
        carried = Counter(chain.from_iterable(tokens.requests for tokens in written.tokens))
        for place, request in enumerate(written.requests, start=1):
            self.times_s[request].append(written.start_s + self._cost * place)
            self.counts[request].append(carried[request])


def simulated_run(server: Server, traffic: Traffic, seed: int, name: str) -> Observed:
    """Send ``traffic`` to ``server``; returns what the client saw."""
    responses = Responses(len(traffic), server.front_end.response)
    answers = simulate(server, traffic, seed, responses.add)
    return observed_of(traffic, answers, responses, name)


def observed_of(traffic: Traffic, answers: Answers, responses: Responses, name: str) -> Observed:
    """What the client of a simulation saw, which sent all of ``traffic``."""
    times, counts = responses.times_s, responses.counts
    return Observed(
        name=name,
        scheduled_s=answers.sent_s,
        sent_s=answers.sent_s,
        input_tokens=traffic.input_tokens,
        prefill_tokens=traffic.prefill_tokens,
        output_tokens=traffic.output_tokens,
        starts=np.concatenate([[0], np.cumsum([len(each) for each in times])]).astype(np.int64),
        times_s=np.fromiter(chain.from_iterable(times), np.float64),
        counts=np.fromiter(chain.from_iterable(counts), np.int64),
        users=traffic.users,
    )
