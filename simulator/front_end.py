"""The one process between clients and engine: an event loop, whose rounds take what became ready during the round before.

Within a round come first the responses of the tokens that the round before took in, then the stages of the requests that are on
their way in, then the tokens that the engine handed over. So while many responses are written, a request waits a round at each
of its stages, and tokens of one request that are handed over meanwhile become one response.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain
from math import inf

from simulator.engine import Tokens
from simulator.server import FrontEnd
from simulator.traffic import Work


@dataclass(frozen=True, slots=True)
class Round:
    """Responses that are written one after the other: the first at ``start_s`` and one response's time, in the order of
    ``requests``. ``tokens`` are the steps whose tokens they carry.
    """

    start_s: float
    requests: list[int]
    tokens: list[Tokens]


class EventLoop:
    """The state of the process; times are s."""

    def __init__(
        self,
        costs: FrontEnd,
        work: Work,
        hand_over: Callable[[float, int], None],
        answered: Callable[[float, int], None],
    ) -> None:
        """``hand_over`` takes a request that is ready for the engine and its time, ``answered`` the end of each answer. The
        times of first and last tokens are written to ``work``.
        """
        self._costs, self._work, self._hand_over, self._answered = costs, work, hand_over, answered
        self._arrivals: list[tuple[float, int]] = []
        self._staged: list[tuple[int, int]] = []  # request, and the rounds that it needs yet
        self._tokens: deque[Tokens] = deque()
        self._unwritten: tuple[list[int], list[Tokens]] | None = None
        self._free_at = 0.0
        self.responses = 0
        self.busy_s = 0.0

    def send(self, at_s: float, request: int) -> None:
        """A client sends a request."""
        heappush(self._arrivals, (at_s + self._costs.delay, request))

    def take(self, tokens: list[Tokens]) -> None:
        """Take what the engine hands over; times ascend."""
        self._tokens.extend(tokens)

    def next_round(self) -> float:
        """When the next round starts; infinite where nothing is to be done."""
        if self._staged or self._unwritten is not None:
            return self._free_at
        arrival = self._arrivals[0][0] if self._arrivals else inf
        return max(self._free_at, min(arrival, self._tokens[0].at_s if self._tokens else inf))

    def round(self) -> Round | None:
        """Run the next round; returns the responses that it wrote."""
        start = self.next_round()
        unwritten, self._unwritten = self._unwritten, None
        written = None if unwritten is None else Round(start, *unwritten)
        clock = start if written is None else self._write(written)
        clock = self._take_in(clock, start)
        self._free_at = self._collect(clock, start)
        self.busy_s += self._free_at - start
        return written

    def _write(self, responses: Round) -> float:
        """Write the responses; returns when it is done."""
        cost, start, requests = self._costs.response, responses.start_s, responses.requests
        for tokens in responses.tokens:
            for request in tokens.firsts:
                self._work.first_s[request] = start + cost * (requests.index(request) + 1)
            for request in tokens.lasts:
                at = start + cost * (requests.index(request) + 1)
                self._work.last_s[request] = at
                self._answered(at, request)
        self.responses += len(requests)
        return start + cost * len(requests)

    def _take_in(self, clock: float, start: float) -> float:
        """Bring the requests that were ready at ``start`` a stage further; returns when it is done.

        Only the last stage takes time, so the engine has the first request of a burst before the process has taken in the
        others.
        """
        rounds = self._costs.intake_rounds
        ready, self._staged = self._staged, []
        while self._arrivals and self._arrivals[0][0] <= start:
            ready.append((heappop(self._arrivals)[1], rounds))
        for request, left in ready:
            if left == 1:
                clock += self._costs.intake
                self._hand_over(clock, request)
            else:
                self._staged.append((request, left - 1))
        return clock

    def _collect(self, clock: float, start: float) -> float:
        """Take the tokens that were there at ``start``, for the next round to write; returns when it is done."""
        collected = []
        while self._tokens and self._tokens[0].at_s <= start:
            collected.append(self._tokens.popleft())
        if not collected:
            return clock
        each = [tokens.requests for tokens in collected]
        requests = each[0] if len(each) == 1 else list(dict.fromkeys(chain.from_iterable(each)))
        self._unwritten = requests, collected
        return clock + self._costs.token * sum(map(len, each))
