"""The replicas of one stage, and the router in front of them, in the order of time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from heapq import heappop, heappush
from math import inf, isnan, nan

import numpy as np

from simulator.answers import Answers
from simulator.engine import Engine
from simulator.fleet import Fleet
from simulator.front_end import EventLoop, Round
from simulator.noise import resampled, seeds_of_replica
from simulator.prefixes import PrefixCache
from simulator.routers import chooser, chooser_of_changing
from simulator.stages import Stage
from simulator.traffic import Work

Observe = Callable[[Round], None]
At = tuple[float, int, int]
"""When, in s, in which stage, and which request."""


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

    def run(self, until_s: float, ends: list[At], observe: Observe | None) -> float:
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


class Pool:
    """The replicas of one stage and their router; those that have something to do by the time of their next event."""

    def __init__(self, stage: Stage, number: int, ends: list[At]) -> None:
        """``number`` is that of the stage; answers that end are added to ``ends``."""
        deployment, self._stage = stage.deployment, stage
        self._work = Work(stage.traffic)
        self._answered: Callable[[float, int], None] = lambda at_s, request: heappush(ends, (at_s, number, request))
        self._replicas: list[_Replica] = []
        self._outstanding: list[int] = []
        self._next: list[float] = []
        self._fleet = Fleet(deployment.replicas, deployment.failures, deployment.autoscaler)
        self._start()
        traffic = stage.traffic
        sessions = range(len(traffic)) if traffic.sessions is None else traffic.sessions
        if deployment.changes:
            self._choose = chooser_of_changing(deployment.router, sessions, traffic.prefixes, stage.seed)
        else:
            self._choose = chooser(deployment.router, deployment.replicas, sessions, traffic.prefixes, stage.seed)
        self._sent_s, self._replica_of, self._count = [nan] * len(traffic), [-1] * len(traffic), 0
        self._failed_s = [nan] * len(traffic)
        self._queue: list[tuple[float, int]] = []  # with entries that are no longer true

    def next(self) -> float:
        while self._queue and self._queue[0][0] != self._next[self._queue[0][1]]:
            heappop(self._queue)
        return self._queue[0][0] if self._queue else inf

    def next_change(self) -> float:
        """When the replicas that take requests change, or may change."""
        return self._fleet.next_change()

    def change(self) -> list[int]:
        """Make the next change; returns the requests that fail with a replica."""
        at_s = self._fleet.next_change()
        failed = self._fleet.change(self._outstanding)
        self._start()
        return [] if failed is None else self._fail(failed, at_s)

    def send(self, at_s: float, request: int) -> bool:
        """Send a request to a replica; returns False where none takes it, so that it has failed."""
        self._sent_s[request] = at_s
        if not self._fleet.taking:
            self._failed_s[request] = at_s
            return False
        replica = self._choose(self._count, request, self._outstanding, self._fleet.taking)
        self._replica_of[request], self._count = replica, self._count + 1
        self._outstanding[replica] += 1
        self._replicas[replica].front_end.send(at_s, request)
        self._plan(replica, self._replicas[replica].next())
        return True

    def ended(self, request: int, at_s: float) -> bool:
        """An answer ends; returns False where its replica failed before."""
        if not isnan(self._failed_s[request]):
            return False
        replica = self._replica_of[request]
        self._outstanding[replica] -= 1
        if not self._outstanding[replica]:
            self._fleet.released(replica, at_s)
        return True

    def advance(self, until_s: float, ends: list[At], observe: Observe | None) -> None:
        """Run the replica that is next, until another one is, or ``until_s``, or the first of ``ends``, to which it adds."""
        replica = heappop(self._queue)[1]
        others = self._queue[0][0] if self._queue else inf
        self._next[replica] = inf
        self._plan(replica, self._replicas[replica].run(min(until_s, others), ends, observe))

    def answers(self) -> Answers:
        answers = Answers(
            np.array(self._sent_s),
            np.array(self._work.first_s),
            np.array(self._work.last_s),
            self._stage.traffic.output_tokens,
            np.array(self._replica_of, np.int64),
            np.array(self._work.cached_tokens, np.int64),
            sum(replica.front_end.responses for replica in self._replicas),
            sum(replica.engine.steps for replica in self._replicas),
            sum(replica.engine.busy_s for replica in self._replicas),
            sum(replica.front_end.busy_s for replica in self._replicas),
        )
        if not self._stage.deployment.changes:
            return answers
        answers = replace(answers, failed_s=np.array(self._failed_s))
        ended_s = answers.ended_s
        return replace(answers, fleet=self._fleet.use(float(ended_s[np.isfinite(ended_s)].max(initial=0.0))))

    def _start(self) -> None:
        """Make the replicas that were started."""
        for number in range(len(self._replicas), self._fleet.started):
            self._replicas.append(_Replica(self._stage, number, self._work, self._answered))
            self._outstanding.append(0)
            self._next.append(inf)

    def _fail(self, replica: int, at_s: float) -> list[int]:
        """The requests of a replica that fails: those whose last token has not been sent."""
        work = self._work
        failed = [
            request
            for request, own in enumerate(self._replica_of)
            if own == replica and work.last_s[request] > at_s and isnan(self._failed_s[request])
        ]
        for request in failed:
            self._failed_s[request], work.last_s[request] = at_s, inf
            if work.first_s[request] > at_s:
                work.first_s[request] = inf
        self._outstanding[replica] = 0
        self._plan(replica, inf)
        return failed

    def _plan(self, replica: int, at_s: float) -> None:
        if at_s != self._next[replica]:
            self._next[replica] = at_s
            if at_s < inf:
                heappush(self._queue, (at_s, replica))
