"""A server that fetches KV caches beside another simulator of it, written from the documentation: event by event, in whole ns,
with lists that are searched, so that it shares neither code nor structure with the first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from simulator.answers import Deployment
from simulator.clients import clients_of
from simulator.fetches import Fetch
from simulator.front_end import Round
from simulator.server import KV_BLOCK_TOKENS, Admission, FrontEnd, Order, Server, StepLaw
from simulator.simulation import simulate_in_python
from simulator.traffic import Traffic

NS = 1e-9
_ENDLESS = 1 << 60


@dataclass(eq=False)
class _Request:
    arrival: int
    prompt: int
    output: int
    post: int
    transfer: int
    tokens: list[int] = field(default_factory=list)
    given: int = 0
    there: int = -1  # when the transfer ends, from its post on

    @property
    def blocks(self) -> int:
        return -(-(self.prompt + self.output) // KV_BLOCK_TOKENS)


@dataclass(eq=False)
class _Launched:
    end: int
    requests: list[_Request]
    seen: list[_Request]
    ended: list[_Request]


class _Other:
    """The server: ``law`` in ns."""

    def __init__(self, law: dict[str, int], admission: Admission, requests: list[_Request]) -> None:
        self.law, self.admission = law, admission
        self.arriving = sorted(requests, key=lambda request: request.arrival)
        self.under_way: list[_Request] = []
        self.ready: list[_Request] = []
        self.running: list[_Request] = []
        self.free = _ENDLESS if admission.kv_blocks is None else admission.kv_blocks
        self.now = self.accelerator = 0
        self.before: _Launched | None = None

    def run(self) -> None:
        while self.arriving or self.under_way or self.ready or self.running:
            self.turn()

    def turn(self) -> None:
        if not self.running:
            self.wait()
        decided = self.now
        taken = self.taken()
        if self.can_take_more(taken):
            while self.arriving and self.arriving[0].arrival <= decided and self.arriving[0].blocks <= self.free:
                request = self.arriving.pop(0)
                self.free -= request.blocks
                self.now += request.post
                request.there = self.now + request.transfer
                self.under_way.append(request)
        if taken or self.running:
            self.give(self.launch(taken))

    def wait(self) -> None:
        """Until a request can be posted, or a transfer ends, which is seen at once."""
        if not self.ready:
            can = [request.there for request in self.under_way]
            can += [request.arrival for request in self.arriving[:1] if request.blocks <= self.free]
            self.now = max(self.now, min(can))
        self.ready += self.seen()

    def seen(self) -> list[_Request]:
        """Those whose transfers have ended, in the order of their posts."""
        seen = [each for each in self.under_way if each.there <= self.now]
        self.under_way = [each for each in self.under_way if each.there > self.now]
        return seen

    def places(self) -> int:
        admission, decoding = self.admission, len(self.running)
        kept = 0 if self.before is None else len(self.before.ended)
        sequences = _ENDLESS if admission.max_sequences is None else admission.max_sequences - decoding - kept
        used = decoding if admission.order is Order.MIXED else 0
        tokens = _ENDLESS if admission.token_budget is None else admission.token_budget - used
        return max(0, min(sequences, tokens))

    def taken(self) -> list[_Request]:
        return self.ready[: self.places()]

    def can_take_more(self, taken: list[_Request]) -> bool:
        return self.places() > len(taken)

    def launch(self, taken: list[_Request]) -> _Launched:
        del self.ready[: len(taken)]
        decoding = self.running if self.admission.order is Order.MIXED or not taken else []
        requests, law = decoding + taken, self.law
        work = law["step"] + law["sequence"] * len(requests)
        work += sum(law["context"] * (each.prompt + each.given + 1) for each in requests)
        if taken:
            work += law["prefill"] * len(taken) + law["prefill_step"]
        launched = self.now + (law["launch"] if taken else 0)
        self.accelerator = max(max(self.accelerator, self.now) + work, launched)
        self.now = launched
        self.running = self.running + taken
        for request in requests:
            request.given += 1
        ended = [each for each in requests if each.given == each.output]
        self.running = [each for each in self.running if each not in ended]
        return _Launched(self.accelerator, requests, self.seen(), ended)

    def give(self, step: _Launched) -> None:
        """The tokens of the step, or with a lookahead of the one before, of both where no step follows."""
        if not self.admission.lookahead:
            self.end(step)
            return
        if self.before is not None:
            self.end(self.before)
        self.before = step
        if not self.running and not (self.ready and self.places()):
            self.end(step)
            self.before = None

    def end(self, step: _Launched) -> None:
        self.now = max(self.now, step.end) if self.admission.lookahead else step.end
        for request in step.requests:
            request.tokens.append(self.now)
        self.ready += step.seen
        self.free += sum(request.blocks for request in step.ended)


def _drawn(draw: random.Random) -> tuple[dict[str, int], Admission, list[_Request]]:
    law = {
        "step": draw.randint(10**5, 5 * 10**6),
        "prefill": draw.choice([0, draw.randint(0, 10**5)]),
        "prefill_step": draw.choice([0, draw.randint(0, 10**6)]),
        "sequence": draw.randint(0, 10**5),
        "context": draw.choice([0, draw.randint(0, 100)]),
        "launch": draw.choice([0, draw.randint(0, 6 * 10**6)]),
    }
    span, count = draw.choice([10**6, 10**7, 10**8]), draw.randint(1, 14)
    requests = [
        _Request(
            arrival=draw.randint(0, span),
            prompt=draw.randint(1, 200),
            output=draw.choice([1, 2, draw.randint(1, 12)]),
            post=draw.choice([0, draw.randint(0, 5 * 10**6)]),
            transfer=draw.choice([0, draw.randint(0, 2 * 10**7)]),
        )
        for _ in range(count)
    ]
    largest = max(request.blocks for request in requests)
    admission = Admission(
        order=draw.choice(list(Order)),
        max_sequences=draw.choice([None, 1, 2, 4]),
        token_budget=draw.choice([None, 1, 2, 5]),
        lookahead=draw.randint(0, 1),
        kv_blocks=draw.choice([None, largest, largest + 3, 2 * largest]),
    )
    return law, admission, requests


def _simulated(law: dict[str, int], admission: Admission, requests: list[_Request]) -> list[list[float]]:
    def each(name: str) -> Any:
        return np.array([getattr(request, name) for request in requests])

    fetch = Fetch(each("post") * NS, each("transfer") * NS)
    traffic = Traffic(each("arrival") * NS, np.ones(len(requests), np.int64), each("prompt"), each("output"), fetch=fetch)
    server = Server(StepLaw(**{term: ns * NS for term, ns in law.items()}), admission, FrontEnd())
    times: list[list[float]] = [[] for _ in requests]

    def written(responses: Round) -> None:
        for tokens in responses.tokens:
            for request in tokens.requests:
                times[request].append(tokens.at_s)

    simulate_in_python(Deployment(server), traffic, clients_of(traffic), 0, written)
    return times


@pytest.mark.parametrize("hundred", range(4))
def test_both_simulators_give_each_token_at_the_same_time(hundred: int) -> None:
    for seed in range(100 * hundred, 100 * hundred + 100):
        law, admission, requests = _drawn(random.Random(seed))
        _Other(law, admission, requests).run()
        for found, request in zip(_simulated(law, admission, requests), requests, strict=True):
            assert found == pytest.approx([at * NS for at in request.tokens], rel=0, abs=2e-9), f"case {seed}"
