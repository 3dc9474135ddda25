"""Load modes: what decides when a request is sent. Small pure values that make a schedule, and print themselves.

Open loop: requests come when the arrival process says, however the target does, as from many users who do not know of
each other. A target that stalls finds all of them waiting. With ``max_concurrency`` no more than so many are in flight;
whoever comes beyond waits in the client, first come first served, and is counted from when it came.

Closed loop: so many users, each of whom sends the next request the moment the last one ended. A target that stalls is
asked less: the mode shows what so many users get out of it, not what a rate of arrivals would feel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from workloads.arrivals import Arrivals, offsets_within
from workloads.request import Request
from workloads.schedule import ClosedSchedule, Schedule

_FASTEST_TOKENS_PER_S = 1_000.0  # that a user gets
_MOST_PREPARED_TOKENS = 10_000_000  # in the prompts of a closed loop, of which nobody knows how many it will need


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests at the times of ``arrivals``, those below ``duration_s`` (None: all), below the ceiling ``max_concurrency``."""

    arrivals: Arrivals
    duration_s: float | None = None
    max_concurrency: int | None = None

    @property
    def ends_by_the_clock(self) -> bool:
        """Never: how many requests there are is known when they are scheduled."""
        return False

    def most_requests(self, seed: int, num_requests: int | None) -> int | None:
        """How many requests the load has use for, when it is not to send more than ``num_requests``; None is any number."""
        if self.duration_s is None:
            return num_requests
        return int(offsets_within(self.arrivals, self.duration_s, seed, num_requests).size)

    def schedule(self, requests: Sequence[Request], seed: int) -> Schedule:
        """Give each request its arrival time; those that would come after the end are left out."""
        if self.duration_s is None:
            offsets = self.arrivals.offsets_ns(len(requests), seed)
        else:
            offsets = offsets_within(self.arrivals, self.duration_s, seed, len(requests))
        return Schedule(tuple(requests[: offsets.size]), tuple(offsets.tolist()), seed, self.max_concurrency)

    def __str__(self) -> str:
        parts = [str(self.arrivals)]
        if self.max_concurrency is not None:
            parts.append(f"at most {self.max_concurrency} in flight")
        if self.duration_s is not None:
            parts.append(f"for {self.duration_s:g} s")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """``concurrency`` users who come evenly over ``ramp_up_s`` and send nothing new at ``duration_s`` or after."""

    concurrency: int
    duration_s: float | None = None
    ramp_up_s: float = 0.0

    @property
    def ends_by_the_clock(self) -> bool:
        """Whether the clock decides how many requests are sent, so that nobody knows before."""
        return self.duration_s is not None

    def most_requests(self, seed: int, num_requests: int | None) -> int | None:
        """How many requests the load has use for: how fast users are, only the target knows."""
        return num_requests

    def enough_requests(self, input_tokens: float, output_tokens: float) -> int:
        """How many requests of so many tokens keep the users at work for ``duration_s``, should each get 1,000 tokens/s.

        The prompts of all together stay below 10 million tokens, or some 400 MB.
        """
        assert self.duration_s is not None
        fastest = math.ceil(self.concurrency * self.duration_s * _FASTEST_TOKENS_PER_S / output_tokens)
        return max(self.concurrency, min(fastest, int(_MOST_PREPARED_TOKENS / input_tokens)))

    def schedule(self, requests: Sequence[Request], seed: int) -> ClosedSchedule:
        """Give the users their starts; they take the requests in their order."""
        starts_ns = (round(user * self.ramp_up_s * 1e9 / self.concurrency) for user in range(self.concurrency))
        end_ns = None if self.duration_s is None else round(self.duration_s * 1e9)
        return ClosedSchedule(tuple(requests), tuple(starts_ns), seed, end_ns)

    def __str__(self) -> str:
        parts = [f"closed loop of {self.concurrency} {'user' if self.concurrency == 1 else 'users'}"]
        if self.ramp_up_s:
            parts.append(f"coming over {self.ramp_up_s:g} s")
        if self.duration_s is not None:
            parts.append(f"for {self.duration_s:g} s")
        return ", ".join(parts)


Load = OpenLoop | ClosedLoop
