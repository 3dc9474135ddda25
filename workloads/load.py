"""Load modes: small pure values that create a schedule, and print themselves.

Open loop: requests are sent at the times of the arrival process, independent of the target, like those of many independent
users. When the target stalls, requests pile up. With ``max_concurrency`` the number of requests in flight is limited; further
requests wait in the client, first come first served, and their latency counts from their arrival.

Closed loop: a number of users, each of which sends its next request as soon as the previous one has ended. When the target
stalls, fewer requests are sent: the mode measures the throughput of so many users, not the latency at a rate of arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from workloads.arrivals import Arrivals, offsets_within
from workloads.request import Request
from workloads.schedule import ClosedSchedule, Schedule

_FASTEST_TOKENS_PER_S = 1_000.0  # per user
_MOST_PREPARED_TOKENS = 10_000_000  # in the prompts of a closed loop, which needs an unknown number of them


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Requests at the times of ``arrivals`` below ``duration_s`` (None: all), at most ``max_concurrency`` in flight."""

    arrivals: Arrivals
    duration_s: float | None = None
    max_concurrency: int | None = None

    @property
    def ends_by_the_clock(self) -> bool:
        """Always False: the number of requests is known when they are scheduled."""
        return False

    def most_requests(self, seed: int, num_requests: int | None) -> int | None:
        """Largest number of requests that the load can send, up to ``num_requests``; None is unlimited."""
        if self.duration_s is None:
            return num_requests
        return int(offsets_within(self.arrivals, self.duration_s, seed, num_requests).size)

    def schedule(self, requests: Sequence[Request], seed: int) -> Schedule:
        """Assign arrival times to the requests; those after the end are omitted."""
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
    """``concurrency`` users that start evenly over ``ramp_up_s`` and send no new requests from ``duration_s`` on."""

    concurrency: int
    duration_s: float | None = None
    ramp_up_s: float = 0.0

    @property
    def ends_by_the_clock(self) -> bool:
        """Whether a time limit determines the number of requests, which is then unknown in advance."""
        return self.duration_s is not None

    def most_requests(self, seed: int, num_requests: int | None) -> int | None:
        """``num_requests``: the users' pace depends on the target."""
        return num_requests

    def enough_requests(self, input_tokens: float, output_tokens: float) -> int:
        """Number of requests that suffices for ``duration_s`` if each user gets 1,000 tokens/s.

        The prompts stay below 10 million tokens in total, about 400 MB.
        """
        assert self.duration_s is not None
        fastest = math.ceil(self.concurrency * self.duration_s * _FASTEST_TOKENS_PER_S / output_tokens)
        return max(self.concurrency, min(fastest, int(_MOST_PREPARED_TOKENS / input_tokens)))

    def schedule(self, requests: Sequence[Request], seed: int) -> ClosedSchedule:
        """Assign start times to the users, which take the requests in order."""
        starts_ns = (round(user * self.ramp_up_s * 1e9 / self.concurrency) for user in range(self.concurrency))
        end_ns = None if self.duration_s is None else round(self.duration_s * 1e9)
        return ClosedSchedule(tuple(requests), tuple(starts_ns), seed, end_ns)

    def __str__(self) -> str:
        parts = [f"closed loop of {self.concurrency} {'user' if self.concurrency == 1 else 'users'}"]
        if self.ramp_up_s:
            parts.append(f"starting over {self.ramp_up_s:g} s")
        if self.duration_s is not None:
            parts.append(f"for {self.duration_s:g} s")
        return ", ".join(parts)


Load = OpenLoop | ClosedLoop
