"""The clients of a simulated server: when each request is sent, by the answers so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Protocol

from simulator.traffic import Traffic

RETRY_S = 0.1
"""How long a user of a closed loop waits after a request that no server took; a test holds it to the harness."""
Send = tuple[float, int]  # when, in s, and which request


class Clients(Protocol):
    """What sends requests. Each is sent at most once. What follows a failure is what follows an answer, unless a kind of
    clients has another rule.
    """

    def first(self) -> list[Send]:
        """What is sent whatever is answered."""
        ...

    def answered(self, at_s: float, request: int) -> list[Send]:
        """What is sent because a request was answered at ``at_s``, at that time or later. Times of calls ascend."""
        ...

    def failed(self, at_s: float, request: int) -> list[Send]:
        """What is sent because the server of a request failed at ``at_s``. Times ascend, with those of ``answered``."""
        return self.answered(at_s, request)

    def refused(self, at_s: float, request: int) -> list[Send]:
        """What is sent because no server took a request at ``at_s``. Times of calls ascend, with those of the others."""
        return self.failed(at_s, request)


def clients_of(traffic: Traffic) -> Clients:
    """The clients of an open loop, or the users of a closed one."""
    arrivals = traffic.arrivals_s.tolist()
    return OpenLoop(arrivals) if traffic.users is None else Users(arrivals[: traffic.users], len(arrivals))


class OpenLoop(Clients):
    """Request i is sent at ``arrivals_s[i]``."""

    def __init__(self, arrivals_s: Sequence[float]) -> None:
        self.arrivals_s = arrivals_s

    def first(self) -> list[Send]:
        return [(at, request) for request, at in enumerate(self.arrivals_s)]

    def answered(self, at_s: float, request: int) -> list[Send]:
        return []


class Ceiling(Clients):
    """Request i arrives at ``arrivals_s[i]``, and waits, first in, first out, while ``most`` requests are in flight."""

    def __init__(self, arrivals_s: Sequence[float], most: int) -> None:
        order = sorted(range(len(arrivals_s)), key=arrivals_s.__getitem__)
        self._waiting = deque((arrivals_s[request], request) for request in order)
        self._most = most

    def first(self) -> list[Send]:
        return [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]

    def answered(self, at_s: float, request: int) -> list[Send]:
        if not self._waiting:
            return []
        arrival, following = self._waiting.popleft()
        return [(max(arrival, at_s), following)]


class Users(Clients):
    """A closed loop: user u starts at ``starts_s[u]``, and a free user sends the next of ``requests``, before ``end_s``."""

    def __init__(self, starts_s: Sequence[float], requests: int, end_s: float = inf) -> None:
        self.starts_s, self.end_s = sorted(starts_s)[:requests], end_s
        self.requests = requests
        self._next = len(self.starts_s)

    def first(self) -> list[Send]:
        return [(at, request) for request, at in enumerate(self.starts_s) if at < self.end_s]

    def answered(self, at_s: float, request: int) -> list[Send]:
        if self._next >= self.requests or at_s >= self.end_s:
            return []
        self._next += 1
        return [(at_s, self._next - 1)]

    def refused(self, at_s: float, request: int) -> list[Send]:
        """A user without a connection waits, as those of a measurement do."""
        return self.answered(at_s + RETRY_S, request)


class Turns(Clients):
    """Sessions: a request without a parent is sent at its ``offsets_s``, another one ``think_times_s`` after its parent's
    answer, and not before its offset, if it has one. Shape [requests] each; a parent has a smaller number. ``joins``, empty or
    of that shape, are requests that one waits for besides its parent.
    """

    def __init__(
        self,
        offsets_s: Sequence[float | None],
        parents: Sequence[int | None],
        think_times_s: Sequence[float],
        joins: Sequence[Sequence[int]] = (),
    ) -> None:
        self._offsets_s, self._parents, self._think_times_s = offsets_s, parents, think_times_s
        self._later: dict[int, list[int]] = {}
        self._missing = [0 if parent is None else 1 for parent in parents]  # answers that a request still waits for
        self._last_s = [0.0] * len(parents)  # of these answers
        for request, parent in enumerate(parents):
            if parent is not None:
                self._later.setdefault(parent, []).append(request)
        for request, joined in enumerate(joins):
            self._missing[request] += len(joined)
            for other in joined:
                self._later.setdefault(other, []).append(request)

    def first(self) -> list[Send]:
        return [
            (offset or 0.0, request)
            for request, (offset, parent) in enumerate(zip(self._offsets_s, self._parents, strict=True))
            if parent is None
        ]

    def answered(self, at_s: float, request: int) -> list[Send]:
        sends: list[Send] = []
        for turn in self._later.get(request, ()):
            self._missing[turn] -= 1
            self._last_s[turn] = max(self._last_s[turn], at_s)
            if not self._missing[turn]:
                sends.append((max(self._last_s[turn] + self._think_times_s[turn], self._offsets_s[turn] or 0.0), turn))
        return sends

    def failed(self, at_s: float, request: int) -> list[Send]:
        """Nothing: there is no answer for a later turn to follow."""
        return []
