"""Traffic through one simulated server, or several with a router, in the order of time. Deterministic for a seed."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from math import inf, nan

import numpy as np

from simulator.answers import Answers, Deployment
from simulator.clients import Clients, Send, clients_of
from simulator.compiled import compiled_answers
from simulator.engine import Engine
from simulator.errors import SimulatorError
from simulator.front_end import EventLoop, Round
from simulator.noise import resampled, seeds_of_replica
from simulator.prefixes import PrefixCache
from simulator.routers import chooser
from simulator.server import Admission, Server
from simulator.traffic import Traffic, Work

Observe = Callable[[Round], None]


def check_room(admission: Admission, traffic: Traffic) -> None:
    """Raises SimulatorError for a request that no replica could ever take: the others would wait for it without end."""
    longest = int((traffic.input_tokens + traffic.output_tokens).max(initial=0))
    needed = admission.blocks_of(longest)
    if admission.kv_blocks is not None and needed > admission.kv_blocks:
        raise SimulatorError(f"--kv_blocks {admission.kv_blocks}: a request of {longest:,} tokens needs {needed:,} of them")


class _Replica:
    """An engine and its front end, in the order of their times."""

    def __init__(
        self, deployment: Deployment, number: int, work: Work, seed: int, answered: Callable[[float, int], None]
    ) -> None:
        server, blocks = deployment.server, deployment.cache_blocks
        of_steps, of_launches = seeds_of_replica(seed, number)
        noise, launch_noise = resampled(server.noise, of_steps), resampled(server.launch_noise, of_launches)
        self.engine = Engine(server, work, noise, launch_noise, None if blocks is None else PrefixCache(blocks))
        self.front_end = EventLoop(server.front_end, work, self.engine.accept, answered)

    def next(self) -> float:
        """When something happens next; infinite where nothing is to be done."""
        return min(self.engine.next_start(), self.front_end.next_round())

    def run(self, until_s: float, ends: list[Send], observe: Observe | None) -> float:
        """Run what happens next, and on until ``until_s``, or the first of ``ends``, to which the answers add; returns
        ``next`` then.
        """
        engine, front_end = self.engine, self.front_end
        step, loop = engine.next_start(), front_end.next_round()
        while True:
            if step <= loop:
                front_end.take(engine.step())
            elif (written := front_end.round()) is not None and observe is not None:
                observe(written)
            step, loop = engine.next_start(), front_end.next_round()
            at_s = step if step <= loop else loop
            if at_s >= until_s or (ends and ends[0][0] <= at_s):
                return at_s


class _Replicas:
    """The replicas that have something to do, by the time of their next event."""

    def __init__(self, replicas: list[_Replica]) -> None:
        self._replicas = replicas
        self._next = [inf] * len(replicas)
        self._queue: list[tuple[float, int]] = []  # with entries that are no longer true

    def next(self) -> float:
        while self._queue and self._queue[0][0] != self._next[self._queue[0][1]]:
            heappop(self._queue)
        return self._queue[0][0] if self._queue else inf

    def send(self, replica: int, at_s: float, request: int) -> None:
        self._replicas[replica].front_end.send(at_s, request)
        self._plan(replica, self._replicas[replica].next())

    def advance(self, until_s: float, ends: list[Send], observe: Observe | None) -> None:
        """Run the replica that is next, until another one is, or ``until_s``, or the first of ``ends``, to which it adds."""
        replica = heappop(self._queue)[1]
        others = self._queue[0][0] if self._queue else inf
        self._next[replica] = inf
        self._plan(replica, self._replicas[replica].run(min(until_s, others), ends, observe))

    def _plan(self, replica: int, at_s: float) -> None:
        if at_s != self._next[replica]:
            self._next[replica] = at_s
            if at_s < inf:
                heappush(self._queue, (at_s, replica))


def simulate(server: Server, traffic: Traffic, seed: int, observe: Observe | None = None) -> Answers:
    """Send ``traffic`` to one ``server``; ``observe`` is called with each round of responses, in the order of time."""
    return simulate_deployment(Deployment(server), traffic, clients_of(traffic), seed, observe)


def simulate_deployment(
    deployment: Deployment, traffic: Traffic, clients: Clients, seed: int, observe: Observe | None = None
) -> Answers:
    """Send the requests of ``traffic`` to the replicas at the times of ``clients``. ``observe`` is called with each round of
    responses of any replica, in the order of the times at which they start. Raises SimulatorError for a request that is larger
    than the KV cache.

    Where nothing is observed, and numba is installed, much work is done by the compiled twin, which gives the same bits.
    """
    check_room(deployment.server.admission, traffic)
    compiled = compiled_answers(deployment, traffic, clients, seed) if observe is None else None
    return compiled or _in_python(deployment, traffic, clients, seed, observe)


def simulate_in_python(
    deployment: Deployment, traffic: Traffic, clients: Clients, seed: int, observe: Observe | None = None
) -> Answers:
    """As ``simulate_deployment``, whatever is installed."""
    check_room(deployment.server.admission, traffic)
    return _in_python(deployment, traffic, clients, seed, observe)


def _in_python(deployment: Deployment, traffic: Traffic, clients: Clients, seed: int, observe: Observe | None) -> Answers:
    """At one time the ends of answers come first, then what is sent, then the replicas."""
    work = Work(traffic)
    ends: list[Send] = []
    servers = [
        _Replica(deployment, number, work, seed, lambda at_s, request: heappush(ends, (at_s, request)))
        for number in range(deployment.replicas)
    ]
    replicas = _Replicas(servers)
    sessions = range(len(traffic)) if traffic.sessions is None else traffic.sessions
    choose = chooser(deployment.router, deployment.replicas, sessions, traffic.prefixes, seed)
    outstanding = [0] * deployment.replicas
    sent_s, replica_of, count = [nan] * len(traffic), [-1] * len(traffic), 0
    sends = clients.first()
    heapify(sends)
    while True:
        end, send = ends[0][0] if ends else inf, sends[0][0] if sends else inf
        if replicas.next() < min(end, send):
            replicas.advance(min(end, send), ends, observe)
        elif end <= send and end < inf:
            _, request = heappop(ends)
            outstanding[replica_of[request]] -= 1
            for following in clients.answered(end, request):
                heappush(sends, following)
        elif send < inf:
            _, request = heappop(sends)
            replica = choose(count, request, outstanding)
            sent_s[request], replica_of[request], count = send, replica, count + 1
            outstanding[replica] += 1
            replicas.send(replica, send, request)
        else:
            break
    return Answers(
        np.array(sent_s),
        np.array(work.first_s),
        np.array(work.last_s),
        traffic.output_tokens,
        np.array(replica_of, np.int64),
        np.array(work.cached_tokens, np.int64),
        sum(server.front_end.responses for server in servers),
        sum(server.engine.steps for server in servers),
        sum(server.engine.busy_s for server in servers),
        sum(server.front_end.busy_s for server in servers),
    )
