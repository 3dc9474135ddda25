"""Replicas that come and go: those that fail, and those that an autoscaler starts and stops.

The autoscaler has the rule of Kubernetes' HorizontalPodAutoscaler: the number of replicas whose mean load is the target, unless
the load is within a tenth of it; fewer only when no number of the last while was higher. Sources: the algorithm's description
in the Kubernetes documentation ("Horizontal Pod Autoscaling").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import ceil, inf, nan
from typing import Annotated

import numpy as np
from msgspec import Meta

_TOLERANCE = 0.1  # of the target, as Kubernetes has it
_Replicas = Annotated[int, Meta(ge=1, le=10_000)]


@dataclass(frozen=True)
class Failure:
    """The replica in place ``replica``, from 0, fails at ``at_s`` with all its requests; another one takes its place ``for_s``
    later, None: never. One that was stopped, and answers what it has, is not replaced.
    """

    replica: int
    at_s: float
    for_s: float | None = None


@dataclass(frozen=True)
class Autoscaler:
    """Every ``interval_s`` it looks at the requests in flight on the replicas that take requests, and wants as many replicas as
    make them ``target_in_flight`` for each, from ``min_replicas`` to ``max_replicas``.

    A new replica takes requests ``startup_s`` after. One is stopped when no look of the last ``scale_down_after_s`` wanted it,
    the youngest first: it takes no more requests, and answers those that it has.
    """

    target_in_flight: Annotated[float, Meta(gt=0, le=1e6)]
    max_replicas: _Replicas
    min_replicas: _Replicas = 1
    interval_s: Annotated[float, Meta(ge=0.1, le=1e7)] = 15.0
    startup_s: Annotated[float, Meta(ge=0, le=1e7)] = 60.0
    scale_down_after_s: Annotated[float, Meta(ge=0, le=1e7)] = 300.0


@dataclass(frozen=True)
class FleetUse:
    """The replicas that were there, in whatever state, over a simulation's time: the fewest, the most, the mean over time, and
    their time in s. ``idle`` are failures of places without a replica, ``late`` those after the end.
    """

    least: int
    most: int
    mean: float
    replica_s: float
    idle: tuple[Failure, ...]
    late: tuple[Failure, ...] = ()


class Fleet:
    """Which replicas take requests, in the order of time. Replicas are numbered in the order of their starts, and keep a place
    from their start to their end, the lowest that is free.
    """

    def __init__(self, replicas: int, failures: Sequence[Failure], autoscaler: Autoscaler | None) -> None:
        """``replicas`` take requests from the beginning."""
        self.taking: list[int] = list(range(replicas))
        self.started = replicas
        self._starting: list[int] = []
        self._draining: set[int] = set()
        self._place_of = list(range(replicas))
        self._at_place: dict[int, int] = {place: place for place in range(replicas)}
        self._began_s, self._ended_s = [0.0] * replicas, [nan] * replicas
        self._autoscaler = autoscaler
        self._wanted = deque([(0.0, replicas)])  # by looks of the last while that no later one wanted as many as
        self._ready: list[tuple[float, int]] = []
        self._failures = [(failure.at_s, number) for number, failure in enumerate(failures)]
        self._all_failures = failures
        self._returns: list[tuple[float, int]] = []  # of places
        self._look_s = inf if autoscaler is None else autoscaler.interval_s
        self._idle: list[Failure] = []
        heapify(self._failures)

    def next_change(self) -> float:
        """When the next replica fails or starts to take requests, or the autoscaler looks; infinite where nothing will."""
        queues = (self._failures, self._ready, self._returns)
        return min(self._look_s, *(queue[0][0] if queue else inf for queue in queues))

    def change(self, outstanding: Sequence[int]) -> int | None:
        """Make what comes next true; returns the replica that failed, if one did. ``outstanding`` are the requests that each
        replica that was started has not answered yet.
        """
        at_s = self.next_change()
        if self._ready and self._ready[0][0] == at_s:
            replica = heappop(self._ready)[1]
            if replica in self._starting:  # else it was stopped, or failed, before
                self._starting.remove(replica)
                self.taking.append(replica)
        elif self._returns and self._returns[0][0] == at_s:
            place = heappop(self._returns)[1]
            if place not in self._at_place:
                self.taking.append(self._start(at_s, place))
        elif self._failures and self._failures[0][0] == at_s:
            return self._fail(self._all_failures[heappop(self._failures)[1]])
        else:
            self._look(at_s, outstanding)
        return None

    def released(self, replica: int, at_s: float) -> None:
        """A replica has answered all that it had."""
        if replica in self._draining:
            self._draining.remove(replica)
            self._end(replica, at_s)

    def use(self, end_s: float) -> FleetUse:
        """What there was from 0 to ``end_s``."""
        began = np.minimum(self._began_s, end_s)
        ended = np.minimum(np.where(np.isnan(self._ended_s), end_s, self._ended_s), end_s)
        times = np.unique(np.concatenate([began, ended, [0.0, end_s]]))[:-1]
        there = [int(np.count_nonzero((began <= at) & (ended > at))) for at in times.tolist()] or [len(began)]
        replica_s = float((ended - began).sum())
        mean = replica_s / end_s if end_s else float(there[0])
        late = tuple(self._all_failures[number] for _, number in sorted(self._failures))
        return FleetUse(min(there), max(there), mean, replica_s, tuple(self._idle), late)

    def _start(self, at_s: float, place: int) -> int:
        replica, self.started = self.started, self.started + 1
        self._place_of.append(place)
        self._at_place[place] = replica
        self._began_s.append(at_s)
        self._ended_s.append(nan)
        return replica

    def _end(self, replica: int, at_s: float) -> None:
        self._ended_s[replica] = at_s
        del self._at_place[self._place_of[replica]]

    def _fail(self, failure: Failure) -> int | None:
        replica = self._at_place.get(failure.replica)
        if replica is None:
            self._idle.append(failure)
            return None
        for where in (self.taking, self._starting):
            if replica in where:
                where.remove(replica)
        self._end(replica, failure.at_s)
        if replica in self._draining:
            self._draining.remove(replica)
        elif failure.for_s is not None:
            heappush(self._returns, (failure.at_s + failure.for_s, failure.replica))
        return replica

    def _look(self, at_s: float, outstanding: Sequence[int]) -> None:
        scaler = self._autoscaler
        assert scaler is not None
        self._look_s += scaler.interval_s
        there = len(self.taking) + len(self._starting)
        load = sum(outstanding[replica] for replica in self.taking) / scaler.target_in_flight
        wanted = there if abs(load - there) <= _TOLERANCE * there else ceil(load)
        wanted = min(max(wanted, scaler.min_replicas), scaler.max_replicas)
        while self._wanted and self._wanted[-1][1] <= wanted:
            self._wanted.pop()
        self._wanted.append((at_s, wanted))
        while self._wanted[0][0] < at_s - scaler.scale_down_after_s:
            self._wanted.popleft()
        for _ in range(wanted - there):
            place = next(place for place in range(self.started + 1) if place not in self._at_place)
            self._starting.append(self._start(at_s, place))
            heappush(self._ready, (at_s + scaler.startup_s, self._starting[-1]))
        for _ in range(there - self._wanted[0][1]):
            self._stop(self._starting.pop() if self._starting else self._youngest(), at_s, outstanding)

    def _youngest(self) -> int:
        youngest = max(self.taking)
        self.taking.remove(youngest)
        return youngest

    def _stop(self, replica: int, at_s: float, outstanding: Sequence[int]) -> None:
        if outstanding[replica]:
            self._draining.add(replica)
        else:
            self._end(replica, at_s)
