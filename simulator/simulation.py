"""Traffic through one simulated server, or several with a router, in the order of time. Deterministic for a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from math import inf, nan

import numpy as np

from simulator.answers import Answers, Deployment
from simulator.clients import Clients, OpenLoop, clients_of
from simulator.compiled import compiled_answers
from simulator.engine import Engine
from simulator.errors import SimulatorError
from simulator.front_end import EventLoop, Round
from simulator.noise import resampled, seeds_of_replica
from simulator.prefixes import PrefixCache
from simulator.routers import chooser
from simulator.server import Admission, Server
from simulator.stages import Stage, answers_of_stages, stages_of, transfers_s
from simulator.traffic import Traffic, Work

Observe = Callable[[Round], None]
_At = tuple[float, int, int]  # when, in s, in which stage, and which request


def check_room(admission: Admission, traffic: Traffic) -> None:
    """Raises SimulatorError for a request that no replica could ever take: the others would wait for it without end."""
    longest = int((traffic.input_tokens + traffic.output_tokens).max(initial=0))
    needed = admission.blocks_of(longest)
    if admission.kv_blocks is not None and needed > admission.kv_blocks:
        raise SimulatorError(f"--kv_blocks {admission.kv_blocks}: a request of {longest:,} tokens needs {needed:,} of them")


class _Replica:
    """An engine and its front end, in the order of their times."""

    def __init__(self, stage: Stage, number: int, work: Work, answered: Callable[[float, int], None]) -> None:
        server, blocks = stage.deployment.server, stage.deployment.cache_blocks
        of_steps, of_launches = seeds_of_replica(stage.seed, number)
        noise, launch_noise = resampled(server.noise, of_steps), resampled(server.launch_noise, of_launches)
        self.engine = Engine(server, work, noise, launch_noise, None if blocks is None else PrefixCache(blocks))
        self.front_end = EventLoop(server.front_end, work, self.engine.accept, answered)

    def next(self) -> float:
        """When something happens next; infinite where nothing is to be done."""
        return min(self.engine.next_start(), self.front_end.next_round())

    def run(self, until_s: float, ends: list[_At], observe: Observe | None) -> float:
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


class _Pool:
    """The replicas of one stage and their router; those that have something to do by the time of their next event."""

    def __init__(self, stage: Stage, number: int, ends: list[_At]) -> None:
        """``number`` is that of the stage; answers that end are added to ``ends``."""
        deployment, self._traffic, self._number = stage.deployment, stage.traffic, number
        self._work = Work(stage.traffic)
        self._replicas = [
            _Replica(stage, replica, self._work, lambda at_s, request: heappush(ends, (at_s, number, request)))
            for replica in range(deployment.replicas)
        ]
        traffic = stage.traffic
        sessions = range(len(traffic)) if traffic.sessions is None else traffic.sessions
        self._choose = chooser(deployment.router, deployment.replicas, sessions, traffic.prefixes, stage.seed)
        self._outstanding = [0] * deployment.replicas
        self._sent_s, self._replica_of, self._count = [nan] * len(traffic), [-1] * len(traffic), 0
        self._next = [inf] * deployment.replicas
        self._queue: list[tuple[float, int]] = []  # with entries that are no longer true

    def next(self) -> float:
        while self._queue and self._queue[0][0] != self._next[self._queue[0][1]]:
            heappop(self._queue)
        return self._queue[0][0] if self._queue else inf

    def send(self, at_s: float, request: int) -> None:
        replica = self._choose(self._count, request, self._outstanding)
        self._sent_s[request], self._replica_of[request], self._count = at_s, replica, self._count + 1
        self._outstanding[replica] += 1
        self._replicas[replica].front_end.send(at_s, request)
        self._plan(replica, self._replicas[replica].next())

    def ended(self, request: int) -> None:
        """An answer of a replica has ended."""
        self._outstanding[self._replica_of[request]] -= 1

    def advance(self, until_s: float, ends: list[_At], observe: Observe | None) -> None:
        """Run the replica that is next, until another one is, or ``until_s``, or the first of ``ends``, to which it adds."""
        replica = heappop(self._queue)[1]
        others = self._queue[0][0] if self._queue else inf
        self._next[replica] = inf
        self._plan(replica, self._replicas[replica].run(min(until_s, others), ends, observe))

    def answers(self) -> Answers:
        return Answers(
            np.array(self._sent_s),
            np.array(self._work.first_s),
            np.array(self._work.last_s),
            self._traffic.output_tokens,
            np.array(self._replica_of, np.int64),
            np.array(self._work.cached_tokens, np.int64),
            sum(replica.front_end.responses for replica in self._replicas),
            sum(replica.engine.steps for replica in self._replicas),
            sum(replica.engine.busy_s for replica in self._replicas),
            sum(replica.front_end.busy_s for replica in self._replicas),
        )

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
    stages = stages_of(deployment, traffic, seed)
    if len(stages) == 1:
        compiled = compiled_answers(deployment, traffic, clients, seed) if observe is None else None
        return compiled or _in_python(deployment, stages, clients, observe)
    if not isinstance(clients, OpenLoop):
        return _in_python(deployment, stages, clients, observe)
    # What an open loop sends depends on no answer, so that the replicas that prefill are done before the others begin.
    prefill, decode = stages
    first = simulate_deployment(prefill.deployment, prefill.traffic, clients, prefill.seed)
    arrivals = OpenLoop((first.last_s + transfers_s(deployment, traffic)).tolist())
    return answers_of_stages([first, simulate_deployment(decode.deployment, decode.traffic, arrivals, decode.seed, observe)])


def simulate_in_python(
    deployment: Deployment, traffic: Traffic, clients: Clients, seed: int, observe: Observe | None = None
) -> Answers:
    """As ``simulate_deployment``, whatever is installed."""
    check_room(deployment.server.admission, traffic)
    return _in_python(deployment, stages_of(deployment, traffic, seed), clients, observe)


def _in_python(deployment: Deployment, stages: Sequence[Stage], clients: Clients, observe: Observe | None) -> Answers:
    """At one time the ends of answers come first, then what is sent, then the replicas."""
    ends: list[_At] = []
    pools = [_Pool(stage, number, ends) for number, stage in enumerate(stages)]
    last = len(pools) - 1
    transfers = transfers_s(deployment, stages[0].traffic).tolist()
    sends = [(at_s, 0, request) for at_s, request in clients.first()]
    heapify(sends)
    while True:
        end, send = ends[0][0] if ends else inf, sends[0][0] if sends else inf
        pool = min(pools, key=_Pool.next)
        if pool.next() < min(end, send):
            others = min((other.next() for other in pools if other is not pool), default=inf)
            pool.advance(min(end, send, others), ends, observe if pool is pools[last] else None)
        elif end <= send and end < inf:
            _, stage, request = heappop(ends)
            pools[stage].ended(request)
            if stage < last:
                heappush(sends, (end + transfers[request], stage + 1, request))
            else:
                for at_s, following in clients.answered(end, request):
                    heappush(sends, (at_s, 0, following))
        elif send < inf:
            _, stage, request = heappop(sends)
            pools[stage].send(send, request)
        else:
            break
    return answers_of_stages([pool.answers() for pool in pools])
